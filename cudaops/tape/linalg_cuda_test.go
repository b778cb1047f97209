//go:build cuda

package tape

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The products that Stheno's kernels do for Gorgonia's ops are those that the ops
// do on the host.
func TestProducts(t *testing.T) {
	batch := func(transA, transB bool) func(a, b *gorgonia.Node) (*gorgonia.Node, error) {
		return func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.BatchedMatMul(a, b, transA, transB) }
	}
	for name, c := range map[string]struct {
		f    func(a, b *gorgonia.Node) (*gorgonia.Node, error)
		a, b tensor.Shape
		ours bool
	}{
		"vectors":           {gorgonia.Mul, tensor.Shape{5}, tensor.Shape{5}, true},
		"one number":        {gorgonia.Mul, tensor.Shape{1}, tensor.Shape{1}, true},
		"batch":             {batch(false, false), tensor.Shape{2, 3, 4}, tensor.Shape{2, 4, 5}, true},
		"batch, A":          {batch(true, false), tensor.Shape{2, 4, 3}, tensor.Shape{2, 4, 5}, true},
		"batch, B":          {batch(false, true), tensor.Shape{2, 3, 4}, tensor.Shape{2, 5, 4}, true},
		"batch, A and B":    {batch(true, true), tensor.Shape{2, 4, 3}, tensor.Shape{2, 5, 4}, true},
		"batch of batches":  {batch(false, false), tensor.Shape{2, 3, 2, 4}, tensor.Shape{2, 3, 4, 3}, true},
		"matrices":          {gorgonia.Mul, tensor.Shape{3, 4}, tensor.Shape{4, 5}, false},
		"matrix and vector": {gorgonia.Mul, tensor.Shape{3, 4}, tensor.Shape{4}, false},
		"outer":             {gorgonia.OuterProd, tensor.Shape{3}, tensor.Shape{4}, false},
	} {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			g := gorgonia.NewGraph()
			var in []gorgonia.Value
			var nodes gorgonia.Nodes
			for i, shape := range []tensor.Shape{c.a, c.b} {
				v := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(tensor.Random(dt, shape.TotalSize())))
				in = append(in, v)
				nodes = append(nodes, gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(string(rune('a'+i)))))
			}
			n, err := c.f(nodes[0], nodes[1])
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			l, ok := ordered(n.Op()).(linAlg)
			if !ok {
				t.Fatalf("%s: the op is a %T", name, n.Op())
			}
			p, ok := l.product(in)
			if ok != c.ours {
				t.Errorf("%s: a product of Stheno's: %v, want %v", name, ok, c.ours)
			}
			if !ok {
				continue
			}
			pdt, _ := values.Dtype(dt)
			got, _ := values.New(pdt, n.Shape())
			if err := p.onHost(got, in); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want, err := n.Op().Do(in...)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			x, y := float64s(t, got), float64s(t, want)
			for i := range y {
				if len(x) != len(y) || !(math.Abs(x[i]-y[i]) <= 1e-5*(1+math.Abs(y[i]))) {
					t.Fatalf("%s of %v: got %v, want %v", name, dt, x, y)
				}
			}
		}
	}
}

func float64s(t *testing.T, v gorgonia.Value) (x []float64) {
	t.Helper()
	switch d := v.Data().(type) {
	case float32:
		return []float64{float64(d)}
	case float64:
		return []float64{d}
	case []float32:
		for _, e := range d {
			x = append(x, float64(e))
		}
		return x
	case []float64:
		return d
	}
	t.Fatalf("got a %T", v.Data())
	return nil
}
