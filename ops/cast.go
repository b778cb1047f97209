package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Cast converts the elements of x to another type: float32, float64, uint8, int32, int64, int or bool.
//
//	out[i] = dtype(x[i])
//
// A floating-point number becomes the integer nearest to it toward 0, the nearest of the type where it is beyond the type's range, and 0
// where it is NaN, on every device. Integers become the nearest floating-point number, and wrap in a smaller integer type. True is 1;
// all elements but 0 are true. The gradient between floating-point types is that of the output, converted back; integers and bool have
// none. A cast to the type of x is x itself.
func Cast(x *gorgonia.Node, dtype tensor.Dtype) (*gorgonia.Node, error) {
	to, ok := values.Dtype(dtype)
	if !ok {
		return nil, fmt.Errorf("ops: Cast: got %v, want an element type that kernels have", dtype.Type) // a Dtype without a type cannot print itself
	}
	t, err := typeOf(x)
	if err != nil {
		return nil, fmt.Errorf("ops: Cast[%v]: input 0: %w", dtype, err)
	}
	if t.Dtype == to {
		return x, nil
	}
	b := expr.NewBuilder(t.Dtype)
	return applyFunc(fmt.Sprintf("Cast[%v]", dtype), b, b.Convert(b.Operand(0), to), x)
}

// applyFunc applies the function that a builder of the inputs has of v, as an op of that name. The inputs broadcast to one shape.
func applyFunc(name string, b *expr.Builder, v expr.Value, inputs ...*gorgonia.Node) (*gorgonia.Node, error) {
	m := mapping{name: name}
	types, err := anyTypesOf(inputs)
	if err == nil {
		m.f, err = b.Func(v)
	}
	if err == nil {
		m.shape, err = broadcastShape(shapesOf(types)...)
	}
	if err != nil {
		return nil, fmt.Errorf("ops: %s: %w", name, err)
	}
	return Apply(m, inputs...)
}

// promoted returns a builder of operands of the inputs' types, and the operands, of which those from one on are converted to one type.
func promoted(name string, from int, inputs ...*gorgonia.Node) (*expr.Builder, []expr.Value, error) {
	types, err := anyTypesOf(inputs)
	if err != nil {
		return nil, nil, fmt.Errorf("ops: %s: %w", name, err)
	}
	b := expr.NewBuilder(dtypes(types)...)
	operands := b.Inputs()
	for i := from; i < len(operands); i++ {
		operands[i] = b.Convert(operands[i], expr.Promote(dtypes(types)[from:]...))
	}
	return b, operands, nil
}
