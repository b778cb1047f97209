package gradcheck_test

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// wrong is an op whose gradient is spoilt.
type wrong struct {
	differentiable
	spoil func(x []float64, rows, cols int) []float64
	shape tensor.Shape
}

// differentiable holds the methods that the machines of the host call on an op.
type differentiable interface {
	gorgonia.SDOp
	gorgonia.ADOp
}

// WriteHash differs from the right op's: a graph keeps one node of one hash.
func (w wrong) WriteHash(h hash.Hash) { fmt.Fprintf(h, "wrong %v %v", w.differentiable, w.shape) }

func (w wrong) Hashcode() uint32 {
	h := fnv.New32a()
	w.WriteHash(h)
	return h.Sum32()
}

func (w wrong) set(dst, src gorgonia.Value) error {
	rows, cols := 1, 1
	if len(w.shape) == 2 {
		rows, cols = w.shape[0], w.shape[1]
	} else if len(w.shape) == 1 {
		cols = w.shape[0]
	}
	switch d := dst.(type) {
	case *gorgonia.F64:
		*d = gorgonia.F64(w.spoil([]float64{float64(*src.(*gorgonia.F64))}, 1, 1)[0])
	case *gorgonia.F32:
		*d = gorgonia.F32(w.spoil([]float64{float64(*src.(*gorgonia.F32))}, 1, 1)[0])
	case *tensor.Dense:
		switch s := src.Data().(type) {
		case []float64:
			copy(d.Float64s(), w.spoil(s, rows, cols))
		case []float32:
			x := make([]float64, len(s))
			for i := range s {
				x[i] = float64(s[i])
			}
			for i, v := range w.spoil(x, rows, cols) {
				d.Float32s()[i] = float32(v)
			}
		}
	default:
		return errors.New("not a value of the test")
	}
	return nil
}

// DoDiff spoils the gradient of input 0.
func (w wrong) DoDiff(ctx gorgonia.ExecutionContext, in gorgonia.Nodes, out *gorgonia.Node) error {
	if err := w.differentiable.DoDiff(ctx, in, out); err != nil {
		return err
	}
	g, err := in[0].Grad()
	if err != nil {
		return err
	}
	c, err := gorgonia.CloneValue(g)
	if err != nil {
		return err
	}
	return w.set(g, c)
}

// SymDiff spoils the gradient of input 0.
func (w wrong) SymDiff(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	gs, err := w.differentiable.SymDiff(in, out, grad)
	if err != nil {
		return nil, err
	}
	gs[0], err = gorgonia.ApplyOp(spoiled{w}, gs[0], gs[1])
	return gs, err
}

// spoiled maps a gradient to the spoilt one; like Add it takes two inputs of one
// shape.
type spoiled struct{ wrong }

func (s spoiled) WriteHash(h hash.Hash) { fmt.Fprintf(h, "spoiled %v %v", s.differentiable, s.shape) }

func (s spoiled) Hashcode() uint32 {
	h := fnv.New32a()
	s.WriteHash(h)
	return h.Sum32()
}

func (s spoiled) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	out, err := gorgonia.CloneValue(in[0])
	if err != nil {
		return nil, err
	}
	return out, s.set(out, in[0])
}

func (s spoiled) UsePreallocDo(_ gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	return s.Do(in...)
}

// An Add whose gradient w.r.t. input 0 is spoilt.
func spoiltAdd(spoil func(x []float64, rows, cols int) []float64) builder {
	return func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		right, err := ops.Add(in[0], in[1])
		if err != nil {
			return nil, err
		}
		return gorgonia.ApplyOp(wrong{right.Op().(differentiable), spoil, in[0].Shape()}, in...)
	}
}

func TestWrongGradients(t *testing.T) {
	scale := func(by float64) func(x []float64, _, _ int) []float64 {
		return func(x []float64, _, _ int) []float64 {
			y := make([]float64, len(x))
			for i := range x {
				y[i] = x[i] * by
			}
			return y
		}
	}
	one := func(to float64) func(x []float64, _, cols int) []float64 {
		return func(x []float64, _, cols int) []float64 {
			y := append([]float64(nil), x...)
			if len(y) == 1 {
				y[0] = to
			} else {
				y[1*cols+2] = to
			}
			return y
		}
	}
	transposed := func(x []float64, rows, cols int) []float64 {
		y := make([]float64, len(x))
		for i := range rows {
			for j := range cols {
				y[i*cols+j] = x[j*cols+i]
			}
		}
		return y
	}
	matrix, scalar := tensor.Shape{3, 3}, tensor.Shape{}
	for _, c := range []struct {
		name  string
		spoil func(x []float64, rows, cols int) []float64
		shape tensor.Shape
		bad   int
	}{
		{"factor of 1.01", scale(1.01), matrix, 9},
		{"wrong sign", scale(-1), matrix, 9},
		{"zero", scale(0), matrix, 9},
		{"transposed", transposed, matrix, 6},
		{"one element", one(5), matrix, 1},
		{"one NaN", one(math.NaN()), matrix, 1},
		{"one Inf", one(math.Inf(1)), matrix, 1},
		{"scalar, factor of 1.01", scale(1.01), scalar, 1},
		{"scalar, NaN", one(math.NaN()), scalar, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, dt tensor.Dtype) {
				for _, mode := range []gradcheck.Mode{gradcheck.SymDiff, gradcheck.DoDiff} {
					err := gradcheck.Check(spoiltAdd(c.spoil), random(t, dt, c.shape, c.shape), gradcheck.Modes(mode), gradcheck.Seed(3))
					var m *gradcheck.Mismatch
					if !errors.As(err, &m) {
						t.Errorf("%v: got %v, want a *Mismatch", mode, err)
						continue
					}
					if m.Mode != mode || m.Input != 0 || m.Bad != c.bad || m.Checked != 2*max(1, c.shape.TotalSize()) {
						t.Errorf("%v: got %v; want %d wrong elements, all of input 0", mode, m, c.bad)
					}
					if c.bad == 1 && len(c.shape) == 2 && (m.Index[0] != 1 || m.Index[1] != 2) {
						t.Errorf("%v: got element %v, want [1 2]", mode, m.Index)
					}
					if c.bad == 1 && len(c.shape) == 0 && len(m.Index) != 0 {
						t.Errorf("%v: got element %v of a scalar", mode, m.Index)
					}
					if !strings.Contains(m.Error(), mode.String()) || !strings.Contains(m.Error(), "of input 0") {
						t.Errorf("the message %q does not name mode and input", m)
					}
				}
			})
		})
	}
}

// Largest is the error as a share of the largest gradient, of gradients that are tolerated too.
func TestLargest(t *testing.T) {
	shape := tensor.Shape{3, 3}
	for _, c := range []struct {
		factor, want float64
	}{{1, 0}, {1.01, 0.01}, {-1, 2}, {math.NaN(), math.Inf(1)}} {
		both(t, func(t *testing.T, dt tensor.Dtype) {
			add := spoiltAdd(func(x []float64, _, _ int) []float64 {
				y := make([]float64, len(x))
				for i := range x {
					y[i] = x[i] * c.factor
				}
				return y
			})
			got := 5.0
			err := gradcheck.Check(add, random(t, dt, shape, shape), gradcheck.Largest(&got))
			if !(math.Abs(got-c.want) <= 1e-6) && got != c.want || (err == nil) != (c.factor == 1) {
				t.Errorf("times %v: got %v, %v, want %v", c.factor, got, err, c.want)
			}
		})
	}
}
