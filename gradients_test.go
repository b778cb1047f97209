package stheno_test

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// checkGradients compares the gradients of a case with differences.
func checkGradients(r *rand.Rand, c opspec.Case, dt kernels.Dtype, opts ...gradcheck.Option) error {
	vs := c.Values(dt, opspec.Normal.Draw(r, c, dt))
	return gradcheck.Check(c.Build, vs, append(opts, gradcheck.Seed(r.Uint64()), gradcheck.MaxElements(10))...)
}

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

// TestGradients: SymDiff on every machine but the LispMachine, and DoDiff.
func TestGradients(t *testing.T) {
	each(t, 5000, differentiable, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		parallelOnHost(t)
		r := random(t)
		if err := checkGradients(r, c, dt, gradcheck.Modes(gradcheck.DoDiff)); err != nil {
			t.Error(err)
		}
		for _, m := range machines() {
			if m.name == "LispMachine" || strings.Contains(m.name, "strict") { // the check's loss is no kernel
				continue
			}
			if err := checkGradients(r, c, dt, gradcheck.Modes(gradcheck.SymDiff), gradcheck.Machine(m.make)); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	})
}

// TestSecondDerivatives: the adjoints of an op have gradients too.
func TestSecondDerivatives(t *testing.T) {
	each(t, 600, differentiableOp, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		parallelOnHost(t)
		_, out, err := c.Nodes(dt, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Shapes {
			err := checkGradients(random(t), adjoint(c, i, out.Shape()), dt)
			if errors.Is(err, stheno.ErrNoDevice) { // gradients add up by an op of Gorgonia's
				t.Skipf("with the tag cuda the graph needs a GPU: %v", err)
			}
			if err != nil {
				t.Errorf("derivative by input %d: %v", i, err)
			}
		}
	})
}

// TestNoGradient: ops without a gradient report it, whichever way Gorgonia asks.
func TestNoGradient(t *testing.T) {
	for _, s := range opspec.All() {
		if !s.NoGradient {
			continue
		}
		for _, c := range s.Cases {
			if !c.Tested() || c.Elements() > 1<<12 {
				continue
			}
			in, out, err := c.Nodes(c.Types[0], c.Values(c.Types[0], opspec.Normal.Draw(random(t), c, c.Types[0])))
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

// inflated is 1.01 times an op, under the op's own gradient, which so is wrong.
type inflated struct{ hostOp }

// hostOp holds the methods that the machines of the host call on an op.
type hostOp interface {
	gorgonia.SDOp
	gorgonia.ADOp
}

func (o inflated) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	v, err := o.hostOp.Do(in...)
	if err != nil {
		return nil, err
	}
	mem, err := values.Bytes(v)
	if err != nil {
		return nil, err
	}
	if v.Dtype() == tensor.Float32 {
		for i := range kernels.Elements[float32](mem) {
			kernels.Elements[float32](mem)[i] *= 1.01
		}
		return v, nil
	}
	for i := range kernels.Elements[float64](mem) {
		kernels.Elements[float64](mem)[i] *= 1.01
	}
	return v, nil
}

func (o inflated) UsePreallocDo(_ gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	return o.Do(in...)
}

// WriteHash differs from the op's: a graph keeps one node of one hash.
func (o inflated) WriteHash(h hash.Hash) { fmt.Fprintf(h, "inflated %v", o.hostOp) }

func (o inflated) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

// TestSuiteCatchesWrongGradients: for every op, a gradient that is wrong by one
// percent fails the function that all gradients pass, in both modes. Inputs of a case of few elements may have
// no gradient to speak of, of which a percent is nothing: then others are drawn.
func TestSuiteCatchesWrongGradients(t *testing.T) {
	each(t, 600, differentiableOp, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		parallelOnHost(t)
		lying := c
		lying.Build = func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			y, err := c.Build(in...)
			if err != nil {
				return nil, err
			}
			return gorgonia.ApplyOp(inflated{y.Op().(hostOp)}, in...)
		}
		for _, mode := range []gradcheck.Mode{gradcheck.SymDiff, gradcheck.DoDiff} {
			r := random(t)
			err := checkGradients(r, lying, dt, gradcheck.Modes(mode))
			for draws := 1; err == nil && draws < 8; draws++ {
				err = checkGradients(r, lying, dt, gradcheck.Modes(mode))
			}
			var m *gradcheck.Mismatch
			if !errors.As(err, &m) || m.Mode != mode {
				t.Errorf("%v: got %v, want a *Mismatch", mode, err)
			}
		}
	})
}
