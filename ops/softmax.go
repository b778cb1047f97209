package ops

import "gorgonia.org/gorgonia"

// SoftMax is the exponentials of x along an axis, divided by their sum. A negative axis counts from the end.
//
//	out = exp(x - max) / (sum of exp(x - max)), max and sum over the axis
//
// A row of -Inf alone, or with NaN or +Inf, is NaN, and its gradient too, as PyTorch's.
func SoftMax(x *gorgonia.Node, axis int) (*gorgonia.Node, error) {
	return softMaxOf("SoftMax", false, "exp(a - rowmax(a)) / rowsum(exp(a - rowmax(a)))", x, axis)
}

// LogSoftMax is the logarithm of [SoftMax], without overflow or underflow.
//
//	out = x - max - log(sum of exp(x - max)), max and sum over the axis
//
// A row of -Inf alone, or with NaN or +Inf, is NaN, and its gradient too, as PyTorch's.
func LogSoftMax(x *gorgonia.Node, axis int) (*gorgonia.Node, error) {
	return softMaxOf("LogSoftMax", true, "a - rowmax(a) - log(rowsum(exp(a - rowmax(a))))", x, axis)
}

func softMaxOf(name string, log bool, expression string, x *gorgonia.Node, axis int) (*gorgonia.Node, error) {
	r, err := rowsAlong(name, expression, x, []int{axis}, ofElements)
	if err != nil {
		return nil, err
	}
	return Apply(softMax{r, log}, x)
}

type softMax struct {
	rowFunc
	log bool
}

func (p softMax) Adjoints(b *Backward) []Term {
	expression := "a * (b - rowsum(a * b))"
	if p.log {
		expression = "b - exp(a) * rowsum(b)"
	}
	return []Term{b.rows(p.name+"Gradient", expression, p.shape, p.axes, ofElements, b.Out(), b.Grad())}
}

// SoftMax reports whether the op is [SoftMax].
func (o *Op) SoftMax() bool {
	s, ok := o.primitive.(softMax)
	return ok && !s.log
}

// LogSumExp is the logarithm of the sum of the exponentials of x along the given axes, or of all if none is given, without overflow. The axes
// are removed from the shape; negative ones count from the end.
//
//	out[kept] = max + log(sum over the axes' indexes of exp(x[...] - max))
//
// The gradient is that of out times exp(x - out). -Inf alone give -Inf, with a gradient of NaN, as PyTorch's; with +Inf, out is +Inf and the
// gradient NaN at +Inf.
func LogSumExp(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) {
	const most = "select(rowmax(a) - rowmax(a) == 0, rowmax(a), 0)" // 0 for a maximum that is not finite
	r, err := rowsAlong("LogSumExp", "log(rowsum(exp(a - "+most+"))) + "+most, x, along, ofRows)
	if err != nil {
		return nil, err
	}
	return Apply(logSumExp{r}, x)
}

type logSumExp struct{ rowFunc }

func (p logSumExp) Adjoints(b *Backward) []Term {
	ones := kept(p.shape, p.axes)
	d := b.elements("c * exp(a - b)", b.In(0), b.reshape(b.Out(), ones), b.reshape(b.Grad(), ones))
	return []Term{b.reshape(d, b.In(0).Type().Shape)}
}
