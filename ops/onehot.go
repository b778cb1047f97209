package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// OneHot returns rows of classes elements of a type that are 0 but for a 1 at the index that ids, of any shape and any integer type, have
// for the row.
//
//	out[i..., c] = 1 if c == ids[i...], else 0
//
// An id below 0 or not below classes is an error of the run. There is no gradient.
func OneHot(ids *gorgonia.Node, classes int, dtype tensor.Dtype) (*gorgonia.Node, error) {
	name := fmt.Sprintf("OneHot[%d, %v]", classes, dtype.Type)
	to, ok := values.Dtype(dtype)
	if !ok || classes < 1 {
		return nil, fmt.Errorf("ops: %s: got %d classes of %v, want one or more and an element type that kernels have", name, classes, dtype.Type)
	}
	t, err := typeOf(ids)
	if err == nil && !t.Dtype.IsInteger() {
		err = fmt.Errorf("got %v, want integers", values.Tensor(t.Dtype))
	}
	if err == nil {
		ids, err = reshaped(ids, append(slices.Clone(t.Shape), 1))
	}
	if err != nil {
		return nil, fmt.Errorf("ops: %s: input 0: %w", name, err)
	}
	return Apply(oneHot{classes, to}, ids)
}

// oneHot is OneHot of ids with a last axis of one element.
type oneHot struct {
	classes int
	to      kernels.Dtype
}

func (p oneHot) String() string { return fmt.Sprintf("OneHot[%d, %v]", p.classes, values.Tensor(p.to)) }

func (p oneHot) Infer(in ...Type) (Type, error) {
	if len(in) != 1 {
		return Type{}, fmt.Errorf("got %d inputs, want 1", len(in))
	}
	last := len(in[0].Shape) - 1
	if !in[0].Dtype.IsInteger() || last < 0 || in[0].Shape[last] != 1 {
		return Type{}, fmt.Errorf("input 0: got %v, want integers with a last axis of one element", in[0])
	}
	return Type{p.to, append(slices.Clone(in[0].Shape[:last]), p.classes)}, nil
}

func (p oneHot) Rows(in ...Type) (Rows, error) {
	out, err := p.Infer(in...)
	if err != nil {
		return Rows{}, err
	}
	b := expr.NewBuilder(in[0].Dtype, kernels.Int64)
	f, err := b.Func(b.Convert(b.Apply(expr.Eq, b.Convert(b.Operand(0), kernels.Int64), b.Operand(1)), p.to))
	return Rows{Func: f, Shape: out.Shape, Iotas: [][]int{indexAlong(len(out.Shape)-1, out.Shape)}}, err
}

func (p oneHot) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return planRows(p, dev, in)
}

// Limit makes ids beyond the classes an error.
func (p oneHot) Limit(int, ...Type) (count, also int, limited bool) { return p.classes, 0, true }

func (oneHot) Adjoints(*Backward) []Term { return []Term{{}} }
