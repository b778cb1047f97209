package gorgonia

import (
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Ops that train are read with their derivatives, and those of other kinds are not taken
// for them.
func TestModes(t *testing.T) {
	node, g := node(t), G.NewGraph()
	x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(4, 6))
	one := G.NewMatrix(g, tensor.Float64, G.WithName("one"), G.WithShape(1, 6))
	batch, _, _, op, err := G.BatchNorm(node(G.Dropout(x, 0.375)), one, one, 0.25, 1e-3)
	if err != nil {
		t.Fatal(err)
	}
	cost := node(G.Sum(node(G.GroupNorm(batch, one, one, 3, 6, 1e-2))))
	if _, err := G.Grad(cost, x); err != nil {
		t.Fatal(err)
	}
	for _, training := range []bool{true, false} {
		if err := op.SetTraining(training); err != nil {
			t.Fatal(err)
		}
		seen, dropouts := map[string]int{}, map[uintptr]int{}
		for _, n := range g.AllNodes() {
			name := OpName(n.Op())
			d, dropout := Dropout(n.Op())
			b, batchNorm := BatchNorm(n.Op())
			groups, epsilon, derivative, groupNorm := GroupNorm(n.Op())
			switch {
			case dropout:
				dropouts[d.Op]++
				if d.Probability != 0.375 || !d.Training || d.Derivative != (name == "dropoutDiffOp") {
					t.Errorf("%s is %+v", name, d)
				}
			case batchNorm:
				if b.Op != op || b.Momentum != 0.25 || b.Epsilon != 1e-3 || b.Training != training || b.Derivative != (name == "batchnormDiffOp") {
					t.Errorf("%s is %+v", name, b)
				}
			case groupNorm:
				if groups != 3 || epsilon != 1e-2 || derivative != (name == "groupNormDiffOp") {
					t.Errorf("%s has %d groups, epsilon %v, derivative %v", name, groups, epsilon, derivative)
				}
			default:
				continue
			}
			if got, ok := Training(n.Op()); ok == groupNorm || ok && got != (dropout || training) {
				t.Errorf("%s trains: %v, %v", name, got, ok)
			}
			seen[name]++
		}
		for _, name := range []string{"dropoutOp", "dropoutDiffOp", "BatchNormOp", "batchnormDiffOp", "GroupNormOp", "groupNormDiffOp"} {
			if seen[name] != 1 {
				t.Errorf("read %d of %s, want 1", seen[name], name)
			}
		}
		if len(dropouts) != 1 {
			t.Errorf("Dropout and its derivative are %d ops", len(dropouts))
		}
	}
}

// Random tensors are distinguished from each other, with their parameters.
func TestRandom(t *testing.T) {
	for want, node := range randomConstructors {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			for _, shape := range [][]int{nil, {3}, {2, 3}} {
				name, a, b, ok := Random(node(G.NewGraph(), dt, 5, 0.75, shape...).Op())
				if !ok || name != want || a != 5 || b != 0.75 {
					t.Errorf("%s of %v is taken for %q of %v and %v, %v", want, shape, name, a, b, ok)
				}
			}
		}
	}
	x := G.NewVector(G.NewGraph(), tensor.Float64, G.WithName("x"), G.WithShape(3))
	if name, _, _, ok := Random(G.Must(G.Tanh(x)).Op()); ok {
		t.Errorf("tanh is taken for %q", name)
	}
}
