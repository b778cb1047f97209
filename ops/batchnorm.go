package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// BatchNorm normalizes each channel of x, axis 1, over all other axes. scale, bias, mean and variance have shape (C), for C channels:
//
//	out = (x - m) / sqrt(v + epsilon) * scale + bias
//
// In runs that train, m and v are the mean and the variance of x, divided by the number n of its elements in a channel; in runs that evaluate
// they are the inputs mean and variance: see [WhenTraining]. The other results are the running values after the run,
//
//	nextMean     = (1 - momentum) mean + momentum m
//	nextVariance = (1 - momentum) variance + momentum v n / (n - 1)
//
// or mean and variance in runs that evaluate. cudaops.State(mean, nextMean) keeps them on the device. They begin with 0 and 1. They have no
// gradient, and none passes through mean and variance. It is an error if x has fewer than two axes or, for a run that trains, two elements in a channel.
//
// On several ranks x is that of a rank, unless the option [OverRanks] is given.
func BatchNorm(x, scale, bias, mean, variance *gorgonia.Node, momentum, epsilon float64, opts ...BatchNormOption) (out, nextMean, nextVariance *gorgonia.Node, err error) {
	b := &batchNorm{momentum: momentum, epsilon: epsilon}
	for i, o := range opts {
		if o == nil {
			return nil, nil, nil, fmt.Errorf("ops: BatchNorm: got a nil option %d, want OverRanks", i)
		}
		o(b)
	}
	inputs, err := b.check(x, scale, bias, mean, variance)
	if err == nil {
		out = b.normalize(inputs[0], inputs[1], inputs[2], inputs[3], inputs[4])
		err = b.err
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("ops: BatchNorm: %w", err)
	}
	return out, b.next[0], b.next[1], nil
}

// BatchNormOption is an option of [BatchNorm].
type BatchNormOption func(*batchNorm)

// OverRanks makes m and v the mean and the variance of x of all ranks together, by [AllReduce], and n their number of elements: the results
// and gradients are those of one rank with all rows. Each rank has the same number of rows.
func OverRanks() BatchNormOption { return func(b *batchNorm) { b.overRanks = true } }

// batchNorm builds a BatchNorm of other ops. It keeps the first error.
type batchNorm struct {
	momentum, epsilon float64
	overRanks         bool
	shape             tensor.Shape
	next              [2]*gorgonia.Node
	err               error
}

// check returns the inputs in one graph.
func (b *batchNorm) check(inputs ...*gorgonia.Node) ([]*gorgonia.Node, error) {
	inputs, types, err := floatsOf(inputs...)
	if err != nil {
		return nil, err
	}
	if b.shape = types[0].Shape; len(b.shape) < 2 {
		return nil, fmt.Errorf("got x of shape %v, want at least two axes", b.shape)
	}
	if b.shape.TotalSize()/b.shape[1] < 2 {
		return nil, fmt.Errorf("got x of shape %v, want at least two elements in each channel of axis 1", b.shape)
	}
	for i, what := range []string{"scale", "bias", "mean", "variance"} {
		if t := types[i+1]; !sameShape(t.Shape, tensor.Shape{b.shape[1]}) {
			return nil, fmt.Errorf("got %s of shape %v for x of shape %v, want (%d)", what, t.Shape, b.shape, b.shape[1])
		}
	}
	if !(b.momentum >= 0 && b.momentum <= 1) {
		return nil, fmt.Errorf("got momentum %v, want 0 to 1", b.momentum)
	}
	return inputs, checkEpsilon(b.epsilon)
}

// keep keeps the first error.
func (b *batchNorm) keep(n *gorgonia.Node, err error) *gorgonia.Node {
	if b.err == nil {
		b.err = err
	}
	return n
}

// apply applies an expression of inputs a, b, c, ...
func (b *batchNorm) apply(expression string, inputs ...*gorgonia.Node) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	return b.keep(Map(expression, inputs...))
}

// ofRanks returns the mean and the variance of x of all ranks, given the mean of this one, and n of all ranks.
func (b *batchNorm) ofRanks(x, mean *gorgonia.Node, axes []int, channels tensor.Shape, n float64) (allMean, variance, all *gorgonia.Node) {
	reduced := func(x *gorgonia.Node, of Reduction) *gorgonia.Node {
		if b.err != nil {
			return nil
		}
		return b.keep(AllReduce(x, of))
	}
	if allMean = reduced(mean, MeanOfRanks); b.err != nil {
		return nil, nil, nil
	}
	square := b.apply("(a - b) * (a - b)", x, b.keep(reshaped(allMean, channels)))
	if b.err == nil {
		square = b.keep(Mean(square, axes...))
	}
	variance = reduced(square, MeanOfRanks)
	dt, _ := values.Dtype(x.Dtype())
	if count := b.keep(Constant(x.Graph(), values.Number(dt, n))); b.err == nil {
		all = reduced(b.keep(reshaped(count, tensor.Shape{1})), SumOfRanks)
	}
	return allMean, variance, all
}

func (b *batchNorm) normalize(x, scale, bias, mean, variance *gorgonia.Node) *gorgonia.Node {
	axes, channels := []int{0}, make(tensor.Shape, len(b.shape)-1) // axis 1 is the first of channels
	for a := range channels {
		if channels[a] = 1; a > 0 {
			axes = append(axes, a+1)
		}
	}
	channels[0] = b.shape[1]
	n := float64(b.shape.TotalSize() / b.shape[1])
	var batchMean, batchVariance, all *gorgonia.Node
	if b.overRanks {
		batchMean, batchVariance, all = b.ofRanks(x, b.keep(Mean(x, axes...)), axes, channels, n)
	} else {
		batchMean, batchVariance = b.moments(x, axes, n)
	}
	now, w := [2]*gorgonia.Node{}, whenTraining{new(trainingMode)}
	for i, of := range []struct {
		running, batch *gorgonia.Node
		factor         float64
	}{{mean, batchMean, b.momentum}, {variance, batchVariance, b.momentum * n / (n - 1)}} {
		if b.err != nil {
			return nil
		}
		running, batch := b.keep(StopGradient(of.running)), b.keep(StopGradient(of.batch))
		expression, inputs := fmt.Sprintf("a * %s + b * %s", number(1-b.momentum), number(of.factor)), []*gorgonia.Node{running, batch}
		if i == 1 && all != nil {
			expression, inputs = fmt.Sprintf("a * %s + b * %s * (c / (c - 1))", number(1-b.momentum), number(b.momentum)), append(inputs, all)
		}
		next := b.apply(expression, inputs...)
		if b.err != nil {
			return nil
		}
		if !b.overRanks {
			of.batch = batch
		}
		b.next[i] = b.keep(WhenTraining(next, running))
		now[i] = b.keep(reshaped(b.keep(Apply(w, of.batch, running)), channels))
	}
	if b.err != nil {
		return nil
	}
	s, t := b.keep(reshaped(scale, channels)), b.keep(reshaped(bias, channels))
	if b.overRanks {
		return b.apply(fmt.Sprintf("(a - b) * (1 / sqrt(c + %s)) * d + e", number(b.epsilon)), x, now[0], now[1], s, t)
	}
	inverse := b.apply(fmt.Sprintf("1 / sqrt(a + %s)", number(b.epsilon)), now[1])
	dt, _ := values.Dtype(x.Dtype())
	f, err := expr.Parse("(a - b) * c * d + e", dt, "a", "b", "c", "d", "e")
	if b.keep(nil, err); b.err != nil {
		return nil
	}
	return b.keep(Apply(channelNorm{mapping{f, b.shape, "ChannelNorm"}, axes, w}, x, now[0], inverse, s, t))
}

// moments returns the mean and the variance of each channel of x, of n elements along axes. In float32 both are of one pass: in double precision, the mean of the squares less the
// square of the mean is more precise than the elements are.
func (b *batchNorm) moments(x *gorgonia.Node, axes []int, n float64) (mean, variance *gorgonia.Node) {
	if dt, _ := values.Dtype(x.Dtype()); dt == kernels.Float64 {
		return b.keep(Mean(x, axes...)), b.keep(VarCorrection(x, 0, axes...))
	}
	of := func(name string, of func(f *expr.Builder, mean, square expr.Value) expr.Value) *gorgonia.Node {
		f := expr.NewBuilder(kernels.Float32)
		v, all := f.Convert(f.Operand(0), kernels.Float64), f.Constant(kernels.Float64, n)
		moment := func(v expr.Value) expr.Value { return f.Apply(expr.Div, f.Apply(expr.RowSum, v), all) }
		r, err := f.Func(f.Convert(of(f, moment(v), moment(f.Apply(expr.Mul, v, v))), kernels.Float32))
		if b.keep(nil, err); b.err != nil {
			return nil
		}
		return b.keep(Apply(rowFunc{name: name, f: r, shape: b.shape, axes: axes, out: ofRows}, x))
	}
	mean = of("ChannelMean", func(_ *expr.Builder, mean, _ expr.Value) expr.Value { return mean })
	variance = of("ChannelVariance", func(f *expr.Builder, mean, square expr.Value) expr.Value {
		return f.Apply(expr.Max, f.Apply(expr.Sub, square, f.Apply(expr.Mul, mean, mean)), f.Constant(kernels.Float64, 0))
	})
	return mean, variance
}

// channelNorm normalizes x, given the mean and the inverse deviation of each channel, in runs that train those of x. Then its gradient w.r.t. x passes through these two, and it has none w.r.t. them.
type channelNorm struct {
	mapping
	axes []int // of a channel
	when whenTraining
}

func (c channelNorm) Adjoints(b *Backward) []Term {
	x, mean, inverse, scale, g := b.In(0), b.In(1), b.In(2), b.In(3), b.Grad()
	level := b.rows("ChannelSum", "rowsum(a)", c.shape, c.axes, ofRowsKept, g)
	along := b.rows("ChannelSum", "rowsum(a * ((b - c) * d))", c.shape, c.axes, ofRowsKept, g, x, mean, inverse)
	share := func(sum Term) Term { // of an element, of the gradients through mean and deviation
		n := c.shape.TotalSize() / scale.Type().Shape.TotalSize()
		return b.Apply(c.when, b.elements(fmt.Sprintf("a / %d", n), sum), zeros(b, sum))
	}
	dx := b.elements("(a - b - (c - d) * e * f) * (e * g)", g, share(level), x, mean, inverse, share(along), scale)
	return []Term{dx, {}, {}, b.reshape(along, scale.Type().Shape), b.reshape(level, scale.Type().Shape)}
}
