package gradcheck_test

import (
	"errors"
	"fmt"
	"hash"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type builder = func(in ...*gorgonia.Node) (*gorgonia.Node, error)

func unary(f func(*gorgonia.Node) (*gorgonia.Node, error)) builder {
	return func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return f(in[0]) }
}

func binary(f func(a, b *gorgonia.Node) (*gorgonia.Node, error)) builder {
	return func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return f(in[0], in[1]) }
}

func both(t *testing.T, f func(t *testing.T, dt tensor.Dtype)) {
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		t.Run(dt.String(), func(t *testing.T) { f(t, dt) })
	}
}

func random(t *testing.T, dt tensor.Dtype, shapes ...tensor.Shape) []gorgonia.Value {
	t.Helper()
	vs, err := gradcheck.Random(7, dt, shapes...)
	if err != nil {
		t.Fatal(err)
	}
	return vs
}

func TestRightGradients(t *testing.T) {
	for _, c := range []struct {
		name   string
		build  builder
		shapes []tensor.Shape
	}{
		{"tanh of a scalar", unary(gorgonia.Tanh), []tensor.Shape{{}}},
		{"tanh of a vector", unary(gorgonia.Tanh), []tensor.Shape{{5}}},
		{"one element", binary(ops.Add), []tensor.Shape{{1}, {1}}},
		{"tanh of a matrix", unary(gorgonia.Tanh), []tensor.Shape{{3, 4}}},
		{"matrix x matrix", binary(gorgonia.Mul), []tensor.Shape{{3, 4}, {4, 2}}},
		{"matrix x vector", binary(gorgonia.Mul), []tensor.Shape{{3, 4}, {4}}},
		{"element by element", binary(gorgonia.HadamardProd), []tensor.Shape{{3, 4}, {3, 4}}},
		{"ops.Add", binary(ops.Add), []tensor.Shape{{3, 4}, {3, 4}}},
		{"ops.Add of rank 4", binary(ops.Add), []tensor.Shape{{2, 1, 3, 2}, {2, 1, 3, 2}}},
		{"one node twice", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Add(x, x) }), []tensor.Shape{{4}}},
		{"an input itself", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return x, nil }), []tensor.Shape{{4}}},
		{"an input not used", unary(gorgonia.Tanh), []tensor.Shape{{3}, {2}}},
		{"a node left over", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) {
			if _, err := gorgonia.Square(x); err != nil {
				return nil, err
			}
			return gorgonia.Tanh(x)
		}), []tensor.Shape{{3}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, dt tensor.Dtype) {
				if err := gradcheck.Check(c.build, random(t, dt, c.shapes...)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The right way to a second derivative: the adjoint of an op is an expression
// of the op's inputs and the gradient of its output.
func TestSecondDerivative(t *testing.T) {
	adjoint := func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		y, err := gorgonia.Tanh(in[0])
		if err != nil {
			return nil, err
		}
		gs, err := y.Op().(gorgonia.SDOp).SymDiff(gorgonia.Nodes{in[0]}, y, in[1])
		if err != nil {
			return nil, err
		}
		return gs[0], nil
	}
	both(t, func(t *testing.T, dt tensor.Dtype) {
		if err := gradcheck.Check(adjoint, random(t, dt, tensor.Shape{2, 3}, tensor.Shape{2, 3})); err != nil {
			t.Error(err)
		}
	})
}

func TestOptions(t *testing.T) {
	x := random(t, tensor.Float64, tensor.Shape{20})
	wrongSign := func(x []float64, _, _ int) []float64 {
		y := make([]float64, len(x))
		for i := range x {
			y[i] = -x[i]
		}
		return y
	}
	two := append(x, x[0])
	var m *gradcheck.Mismatch
	if err := gradcheck.Check(spoiltAdd(wrongSign), two, gradcheck.MaxElements(3)); !errors.As(err, &m) || m.Checked != 6 || m.Bad != 3 {
		t.Fatalf("MaxElements(3): got %v, want 3 of 6 elements wrong", err)
	}
	if err := gradcheck.Check(spoiltAdd(wrongSign), two, gradcheck.Tolerance(10, 0)); err != nil {
		t.Errorf("Tolerance(10, 0): %v", err)
	}
	again := new(gradcheck.Mismatch)
	if err := gradcheck.Check(spoiltAdd(wrongSign), two, gradcheck.MaxElements(3), gradcheck.Seed(m.Seed)); !errors.As(err, &again) ||
		again.Got != m.Got || again.Index[0] != m.Index[0] {
		t.Errorf("Seed(%d): got %v, want %v again", m.Seed, err, m)
	}
	if gradcheck.Check(unary(gorgonia.Tanh), x, gradcheck.Step(0.5)) == nil {
		t.Error("Step(0.5): the gradient of tanh passed")
	}
	made := 0
	machine := gradcheck.Machine(func(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
		made++
		return gorgonia.NewTapeMachine(g), nil
	})
	if err := gradcheck.Check(unary(gorgonia.Tanh), x, machine); err != nil || made != 1 {
		t.Errorf("Machine: got %v and %d machines, want 1", err, made)
	}
	none := errors.New("no machine here")
	broken := gradcheck.Machine(func(*gorgonia.ExprGraph) (gorgonia.VM, error) { return nil, none })
	if err := gradcheck.Check(unary(gorgonia.Tanh), x, broken); !errors.Is(err, none) {
		t.Errorf("a machine that cannot be made: got %v, want %v", err, none)
	}
}

// A view is checked as the numbers it shows, and is not written.
func TestStridedInput(t *testing.T) {
	both(t, func(t *testing.T, dt tensor.Dtype) {
		x := random(t, dt, tensor.Shape{3, 4})[0].(*tensor.Dense)
		before := x.Clone().(*tensor.Dense)
		if err := x.T(); err != nil {
			t.Fatal(err)
		}
		if err := gradcheck.Check(unary(gorgonia.Tanh), []gorgonia.Value{x}); err != nil {
			t.Error(err)
		}
		x.UT()
		if !x.Eq(before) {
			t.Error("the input was written")
		}
	})
}

// noDoDiff is an op without dual values.
type noDoDiff struct{ gorgonia.SDOp }

func (noDoDiff) WriteHash(h hash.Hash) { fmt.Fprint(h, "noDoDiff") }
func (noDoDiff) Hashcode() uint32      { return 1 }

func TestErrors(t *testing.T) {
	vec := random(t, tensor.Float64, tensor.Shape{3})
	fails := errors.New("no such expression")
	for _, c := range []struct {
		name   string
		build  builder
		inputs []gorgonia.Value
		opts   []gradcheck.Option
		want   string
	}{
		{"nil function", nil, vec, nil, "no function"},
		{"build fails", unary(func(*gorgonia.Node) (*gorgonia.Node, error) { return nil, fails }), vec, nil, fails.Error()},
		{"build gives nil", unary(func(*gorgonia.Node) (*gorgonia.Node, error) { return nil, nil }), vec, nil, "no node"},
		{"build panics", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Must(nil, fails), nil }), vec, nil, fails.Error()},
		{"nil option", unary(gorgonia.Tanh), vec, []gradcheck.Option{nil}, "nil option"},
		{"empty input", unary(gorgonia.Tanh), []gorgonia.Value{tensor.New(tensor.WithShape(0), tensor.WithBacking([]float64{}))}, nil, "at least one element"},
		{"nil input", unary(gorgonia.Tanh), []gorgonia.Value{nil}, nil, "input 0 is no value"},
		{"int input", unary(gorgonia.Tanh), []gorgonia.Value{tensor.New(tensor.WithBacking([]int{1, 2}))}, nil, "input 0"},
		{"node without value", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Add(x, gorgonia.NewVector(x.Graph(), x.Dtype(), gorgonia.WithShape(3), gorgonia.WithName("unset")))
		}), vec, nil, "unset"},
		{"float32 only", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Dot(x, gorgonia.NewVector(x.Graph(), tensor.Float32, gorgonia.WithShape(3)))
		}), random(t, tensor.Float32, tensor.Shape{3}), nil, "on float64 inputs"},
		{"differentiated before", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) {
			y, err := gorgonia.Sum(x)
			if err != nil {
				return nil, err
			}
			if _, err := gorgonia.Grad(y, x); err != nil {
				return nil, err
			}
			return gorgonia.Tanh(x)
		}), vec, nil, "differentiated before"},
		{"no DoDiff", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) {
			y, err := ops.Add(x, x)
			if err != nil {
				return nil, err
			}
			return gorgonia.ApplyOp(noDoDiff{y.Op().(gorgonia.SDOp)}, x, x)
		}), vec, nil, "has no DoDiff"},
		{"bad step", unary(gorgonia.Tanh), vec, []gradcheck.Option{gradcheck.Step(0)}, "Step"},
		{"bad tolerance", unary(gorgonia.Tanh), vec, []gradcheck.Option{gradcheck.Tolerance(-1, 0)}, "Tolerance"},
		{"bad modes", unary(gorgonia.Tanh), vec, []gradcheck.Option{gradcheck.Modes(7)}, "Modes"},
		{"no modes", unary(gorgonia.Tanh), vec, []gradcheck.Option{gradcheck.Modes()}, "Modes"},
		{"bad MaxElements", unary(gorgonia.Tanh), vec, []gradcheck.Option{gradcheck.MaxElements(-1)}, "MaxElements"},
		{"no machine", unary(gorgonia.Tanh), vec, []gradcheck.Option{gradcheck.Machine(nil)}, "Machine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := gradcheck.Check(c.build, c.inputs, c.opts...)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "gradcheck: ") {
				t.Errorf("got %v, want a gradcheck error with %q", err, c.want)
			}
		})
	}
	if _, err := gradcheck.Random(1, tensor.Int, tensor.Shape{2}); err == nil {
		t.Error("Random of int gave no error")
	}
	for _, shape := range []tensor.Shape{{0}, {2, -1}} {
		if _, err := gradcheck.Random(1, tensor.Float64, shape); err == nil {
			t.Errorf("Random of shape %v gave no error", shape)
		}
	}
}

// Where the function jumps to NaN beside the input, no gradient passes.
func TestNotFinite(t *testing.T) {
	edge := []gorgonia.Value{tensor.New(tensor.WithBacking([]float64{1, 1e-9}))}
	var m *gradcheck.Mismatch
	if err := gradcheck.Check(unary(gorgonia.Sqrt), edge); !errors.As(err, &m) || m.Index[0] != 1 || !math.IsNaN(m.Want) {
		t.Errorf("got %v, want a *Mismatch at element 1", err)
	}
}
