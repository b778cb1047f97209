package expr_test

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Fusing is inlining: the outputs of one function become operands of another.
func ExampleBuilder_Inline() {
	product, err := expr.Parse("tanh(x * y)", expr.Float32, "x", "y")
	if err != nil {
		fmt.Println(err)
		return
	}
	b := expr.NewBuilder(expr.Float32, expr.Float32, expr.Float64)
	p := b.Inline(product, b.Operand(0), b.Operand(1))[0]
	sum := b.Apply(expr.Add, b.Convert(p, expr.Float64), b.Operand(2))
	fmt.Println(b.Func(sum, b.Apply(expr.Gt, p, b.Constant(expr.Float32, 0.5))))
	// Output: f32, f32, f64: t0 = tanh(x0 * x1); f64(t0) + x2, f32(0.5) < t0 <nil>
}

func ExampleFunc_Gradient() {
	f, err := expr.Parse("a * exp(b)", expr.Float32, "a", "b")
	if err != nil {
		fmt.Println(err)
		return
	}
	g, err := f.Gradient(0, 1) // x2 is the derivative of the loss by f
	fmt.Println(g, err)
	// Output: f32, f32, f32: t0 = exp(x1); x2 * t0, x2 * x0 * t0 <nil>
}
