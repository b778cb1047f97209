package suite

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// adjoint is the derivative of a case by input i as a case of its own, on the
// case's inputs and the gradient of its output: its gradients are second
// derivatives.
func adjoint(c opspec.Case, i int, out tensor.Shape) opspec.Case {
	n := len(c.Shapes)
	return opspec.Case{
		Shapes: append(append([]tensor.Shape(nil), c.Shapes...), out),
		Build: func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			y, err := c.Build(in[:n]...)
			if err != nil {
				return nil, err
			}
			ds, err := y.Op().(gorgonia.SDOp).SymDiff(in[:n], y, in[n])
			if err != nil {
				return nil, err
			}
			return ds[i], nil
		},
	}
}

// The gradients of every op's adjoints agree with differences.
func TestSecondDerivatives(t *testing.T) {
	twice := func(s opspec.Spec, c opspec.Case) bool { return differentiableOp(s, c) && !s.Once }
	each(t, 600, twice, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		parallelOnHost(t)
		if !drawnType(s, c, dt) {
			return
		}
		_, out, err := c.Nodes(dt, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Shapes {
			err := checkGradients(Random(t), adjoint(c, i, out.Shape()), dt)
			if errors.Is(err, stheno.ErrNoDevice) { // gradients add up by an op of Gorgonia's
				t.Skipf("with the tag cuda the graph needs a GPU: %v", err)
			}
			if err != nil {
				t.Errorf("derivative by input %d: %v", i, err)
			}
		}
	})
}

// Ops without a gradient report it, whichever way Gorgonia asks.
func TestNoGradient(t *testing.T) {
	for _, s := range opspec.All() {
		if !s.NoGradient {
			continue
		}
		for _, c := range s.Cases {
			if !c.Tested() || c.Elements() > 1<<12 {
				continue
			}
			in, out, err := c.Nodes(c.Types[0], c.Values(c.Types[0], opspec.Normal.Draw(Random(t), c, c.Types[0])))
			if err != nil {
				t.Fatal(err)
			}
			op := out.Op().(interface {
				gorgonia.SDOp
				gorgonia.ADOp
			})
			if wrt := op.DiffWRT(len(in)); slices.Contains(wrt, false) {
				t.Errorf("%v: DiffWRT is %v, want all, so that SymDiff is asked", op, wrt)
			}
			_, symbolic := op.SymDiff(in, out, out)
			for name, err := range map[string]error{"SymDiff": symbolic, "DoDiff": op.DoDiff(gorgonia.ExecutionContext{}, in, out)} {
				if err == nil || !strings.Contains(err.Error(), "has no gradient: ") {
					t.Errorf("%v: %s gave %v, want an error that says why there is no gradient", op, name, err)
				}
			}
			// For a cost of integers Grad returns neither nodes nor an error.
			if grads, err := gorgonia.Grad(gorgonia.Must(gorgonia.Sum(out)), in...); err == nil && len(grads) > 0 {
				t.Errorf("%v: Grad gave %v", op, grads)
			}
		}
	}
}
