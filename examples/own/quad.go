package own

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// Quad is out[i] = a x[i]^2 + b for a tensor of any shape, float32 or float64.
func Quad(x *gorgonia.Node, a, b float64) (*gorgonia.Node, error) {
	return ops.Apply(quad{a, b}, x)
}

// quad holds the parameters of Quad.
type quad struct{ a, b float64 }

func (q quad) String() string { return fmt.Sprintf("Quad[%v %v]", q.a, q.b) }

func (quad) Infer(in ...ops.Type) (ops.Type, error) { return swish{}.Infer(in...) }

// Func is the op as a function of elements, which makes it a part of its neighbours' kernel.
func (q quad) Func(in ...ops.Type) (expr.Func, error) {
	f := expr.NewBuilder(in[0].Dtype)
	a, b, x := f.Constant(in[0].Dtype, q.a), f.Constant(in[0].Dtype, q.b), f.Operand(0)
	return f.Func(f.Apply(expr.Add, f.Apply(expr.Mul, a, f.Apply(expr.Mul, x, x)), b))
}

func (q quad) Plan(dev kernels.Device, in ...ops.Type) (*kernels.Plan, error) {
	f, err := q.Func(in...)
	if err != nil {
		return nil, err
	}
	return codegen.Map(dev, f, in[0].Shape, codegen.Dense(in[0].Shape))
}

func (q quad) Adjoints(b *ops.Backward) []ops.Term {
	return []ops.Term{b.Apply(quadGrad{q.a}, b.In(0), b.Grad())}
}

// quadGrad takes x and the derivative by Quad(x) to the derivative by x, 2 a x g.
type quadGrad struct{ a float64 }

func (q quadGrad) String() string { return fmt.Sprintf("QuadGrad[%v]", q.a) }

func (quadGrad) Infer(in ...ops.Type) (ops.Type, error) { return swishGrad{}.Infer(in...) }

func (q quadGrad) Func(in ...ops.Type) (expr.Func, error) {
	f := expr.NewBuilder(in[0].Dtype, in[1].Dtype)
	slope := f.Apply(expr.Mul, f.Constant(in[0].Dtype, 2*q.a), f.Operand(0))
	return f.Func(f.Apply(expr.Mul, slope, f.Operand(1)))
}

func (q quadGrad) Plan(dev kernels.Device, in ...ops.Type) (*kernels.Plan, error) {
	f, err := q.Func(in...)
	if err != nil {
		return nil, err
	}
	x := codegen.Dense(in[0].Shape)
	return codegen.Map(dev, f, in[0].Shape, x, x)
}

func (quadGrad) Adjoints(b *ops.Backward) []ops.Term {
	return b.None("Quad has no second derivative")
}
