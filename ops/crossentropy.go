package ops

import (
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// CrossEntropyOption is an option of [CrossEntropy].
type CrossEntropyOption func(*crossEntropy)

// IgnoreLabel sets the label of rows that do not count, -100 by default.
func IgnoreLabel(label int) CrossEntropyOption { return func(c *crossEntropy) { c.ignored = label } }

// LabelSmoothing moves a share of the target from the label to all classes equally, 0 by default.
func LabelSmoothing(share float64) CrossEntropyOption {
	return func(c *crossEntropy) { c.smoothing = share }
}

// ClassWeights weighs each class by an element of weights, a vector of the logits' element type that has no gradient.
func ClassWeights(weights *gorgonia.Node) CrossEntropyOption {
	return func(c *crossEntropy) { c.weights, c.weighted = weights, true }
}

// PerRow makes CrossEntropy return the rows' losses, in the shape of the labels, instead of their mean. Rows whose label is ignored have the loss 0.
func PerRow() CrossEntropyOption { return func(c *crossEntropy) { c.perRow = true } }

// CrossEntropy is the mean over rows of the negative logarithm of the probability that the softmax of logits gives the label, a scalar, or under [PerRow] each row.
// Classes are along axis 1 of logits, or axis 0 of a vector; labels are integers of any type, of the shape without that axis:
//
//	row[i] = (1 - s) (lse(logits[i]) - logits[i][labels[i]]) + s (lse(logits[i]) - mean of logits[i])
//	out    = mean of row[i] over the rows whose label is not ignored, NaN if there are none
//
// where lse is the logarithm of the sum of exponentials and s the share of [LabelSmoothing]. With [ClassWeights] w, as in PyTorch,
//
//	row[i] = (1 - s) w[labels[i]] (lse(logits[i]) - logits[i][labels[i]]) + s (mean over c of w[c] (lse(logits[i]) - logits[i][c]))
//	out    = sum of row[i] / sum of w[labels[i]], over the rows whose label is not ignored
//
// A label that is neither a class nor ignored is
// an error of the run.
func CrossEntropy(logits, labels *gorgonia.Node, opts ...CrossEntropyOption) (*gorgonia.Node, error) {
	c := crossEntropy{ignored: -100}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("ops: CrossEntropy: got a nil option")
		}
		o(&c)
	}
	n, err := c.loss(logits, labels)
	if err != nil {
		return nil, fmt.Errorf("ops: CrossEntropy: %w", err)
	}
	return n, nil
}

// crossEntropy computes the rows of CrossEntropy, of labels with an axis of one element in place of the classes.
type crossEntropy struct {
	axis      int // of the classes
	ignored   int
	smoothing float64
	gradient  bool // w.r.t. the logits; the last input is that w.r.t. the rows
	weighted  bool // input 2 are the weights of classes, with the rank of the logits
	perRow    bool // an option alone, as weights
	weights   *gorgonia.Node
}

func (c crossEntropy) loss(logits, labels *gorgonia.Node) (*gorgonia.Node, error) {
	inputs := []*gorgonia.Node{logits, labels}
	if c.weighted {
		inputs = append(inputs, c.weights)
	}
	inputs, types, err := inputsOf(inputs...)
	if err != nil {
		return nil, err
	}
	labels = inputs[1]
	if !(c.smoothing >= 0 && c.smoothing <= 1) {
		return nil, fmt.Errorf("got label smoothing %v, want 0 to 1", c.smoothing)
	}
	shape := types[0].Shape
	if len(shape) == 0 {
		return nil, fmt.Errorf("got a scalar of logits, want classes along axis 1, or a vector")
	}
	c.axis = min(len(shape)-1, 1)
	if want := without(shape, []int{c.axis}); !types[1].Dtype.IsInteger() || !sameShape(types[1].Shape, want) {
		return nil, fmt.Errorf("got labels %v for logits %v, want integers of shape %v", types[1], types[0], want)
	}
	classes := shape[c.axis]
	if want := (Type{types[0].Dtype, tensor.Shape{classes}}); c.weighted && (types[2].Dtype != want.Dtype || !sameShape(types[2].Shape, want.Shape)) {
		return nil, fmt.Errorf("got weights %v, want %v", types[2], want)
	}
	if inputs[1], err = reshaped(labels, kept(shape, []int{c.axis})); err != nil {
		return nil, err
	}
	if c.weighted {
		if c.weights, err = StopGradient(inputs[2]); err != nil {
			return nil, err
		}
		along := slices.Repeat([]int{1}, len(shape))
		along[c.axis] = classes
		if inputs[2], err = reshaped(c.weights, along); err != nil {
			return nil, err
		}
	}
	weights, perRow := c.weights, c.perRow
	c.weights, c.perRow = nil, false
	rows, err := Apply(c, inputs...)
	if err != nil || perRow {
		return rows, err
	}
	b := expr.NewBuilder(types[1].Dtype)
	label := b.Operand(0)
	counts, err := applyFunc("IsCounted", b, b.Convert(c.counts(b, label), types[0].Dtype), labels)
	if err != nil {
		return nil, err
	}
	if c.weighted { // an ignored label reads the weight of class 0
		b := expr.NewBuilder(types[1].Dtype)
		label = b.Operand(0)
		class, err := applyFunc("Class", b, b.Apply(expr.Select, c.counts(b, label), label, b.Integer(types[1].Dtype, 0)), labels)
		if err != nil {
			return nil, err
		}
		of, err := Embedding(weights, class)
		if err != nil {
			return nil, err
		}
		if counts, err = Map("select(a > 0, b, 0)", counts, of); err != nil {
			return nil, err
		}
	}
	sum, err := Sum(rows)
	if err != nil {
		return nil, err
	}
	n, err := Sum(counts) // as functions of rows, the sums would join and keep the rows' gradient out of the rows' kernel
	if err != nil {
		return nil, err
	}
	return Map("a/b", sum, n)
}

// counts returns whether a label is not ignored.
func (c crossEntropy) counts(b *expr.Builder, label expr.Value) expr.Value {
	return b.Apply(expr.Ne, b.Convert(label, kernels.Int64), b.Integer(kernels.Int64, int64(c.ignored)))
}

func (c crossEntropy) String() string {
	if c.gradient {
		return "CrossEntropyGradient"
	}
	return "CrossEntropy"
}

func (c crossEntropy) Infer(in ...Type) (Type, error) {
	want := 2
	for _, more := range []bool{c.weighted, c.gradient} {
		if more {
			want++
		}
	}
	if len(in) != want {
		return Type{}, fmt.Errorf("got %d inputs, want %d", len(in), want)
	}
	if !in[0].Dtype.IsFloat() {
		return Type{}, fmt.Errorf("input 0: got %v, want float32 or float64", values.Tensor(in[0].Dtype))
	}
	if c.gradient {
		return in[0], nil
	}
	return Type{in[0].Dtype, without(in[0].Shape, []int{c.axis})}, nil
}

func (c crossEntropy) Rows(in ...Type) (Rows, error) {
	dt, shape := in[0].Dtype, in[0].Shape
	r := Rows{Shape: shape, Axes: []int{c.axis}, PerRow: !c.gradient, Iotas: [][]int{indexAlong(c.axis, shape)}}
	operands := []kernels.Dtype{dt, in[1].Dtype}
	for range in[2:] {
		operands = append(operands, dt)
	}
	b := expr.NewBuilder(append(operands, kernels.Int64)...)
	number := func(x float64) expr.Value { return b.Constant(dt, x) }
	x, label, index := b.Operand(0), b.Operand(1), b.Operand(len(operands))
	most := b.Apply(expr.RowMax, x)
	below := func(v expr.Value) expr.Value { return b.Apply(expr.Sub, most, v) } // exact where x are large and close, unlike lse - v
	e := b.Apply(expr.Exp, b.Apply(expr.Sub, x, most))
	sum := b.Apply(expr.RowSum, e)
	as := kernels.Int64
	if d := in[1].Dtype; (d == kernels.Int32 || d == kernels.Uint8) && shape[c.axis] <= math.MaxInt32 {
		as = kernels.Int32 // half of the instructions of a comparison
	}
	is := b.Apply(expr.Eq, b.Convert(label, as), b.Convert(index, as))
	// ofLabel is the element of x at the label, and -Inf for an ignored label, whose row is 0. A maximum needs fewer instructions than a sum.
	ofLabel := func() expr.Value { return b.Apply(expr.RowMax, b.Apply(expr.Select, is, x, number(math.Inf(-1)))) }
	classes := float64(shape[c.axis])
	weight := func(v expr.Value) expr.Value { return v } // times the weight of the label
	if c.weighted {
		of := b.Apply(expr.RowSum, b.Apply(expr.Select, is, b.Operand(2), number(0)))
		weight = func(v expr.Value) expr.Value { return b.Apply(expr.Mul, of, v) }
	}
	smooth := c.smoothing / classes
	var v expr.Value
	switch {
	case c.gradient && c.weighted:
		all := b.Apply(expr.Add, weight(number(1-c.smoothing)), b.Apply(expr.Mul, number(smooth), b.Apply(expr.RowSum, b.Operand(2))))
		target := b.Apply(expr.Add, b.Apply(expr.Select, is, weight(number(1-c.smoothing)), number(0)), b.Apply(expr.Mul, number(smooth), b.Operand(2)))
		v = b.Apply(expr.Mul, b.Operand(3), b.Apply(expr.Sub, b.Apply(expr.Mul, all, b.Apply(expr.Div, e, sum)), target))
	case c.gradient:
		g := b.Operand(2)
		share := func(x float64) expr.Value { return b.Apply(expr.Mul, g, number(x)) }
		target := b.Apply(expr.Select, is, share(1-c.smoothing+smooth), share(smooth))
		v = b.Apply(expr.Sub, b.Apply(expr.Mul, e, b.Apply(expr.Div, g, sum)), target) // a division a row
	case c.weighted:
		v = b.Apply(expr.Mul, weight(number(1-c.smoothing)), b.Apply(expr.Add, b.Apply(expr.Log, sum), below(ofLabel())))
		if c.smoothing > 0 {
			others := b.Apply(expr.RowSum, b.Apply(expr.Mul, b.Operand(2), b.Apply(expr.Add, b.Apply(expr.Log, sum), below(x))))
			v = b.Apply(expr.Add, v, b.Apply(expr.Mul, number(smooth), others))
		}
	default:
		v = below(ofLabel())
		if s := c.smoothing; s > 0 {
			v = b.Apply(expr.Add, b.Apply(expr.Mul, number(1-s), v), b.Apply(expr.Mul, number(smooth), b.Apply(expr.RowSum, below(x))))
		}
		v = b.Apply(expr.Add, b.Apply(expr.Log, sum), v)
	}
	var err error
	r.Func, err = b.Func(b.Apply(expr.Select, c.counts(b, label), v, number(0)))
	return r, err
}

func (c crossEntropy) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return planRows(c, dev, in)
}

// Limit makes other labels than classes and the ignored one an error.
func (c crossEntropy) Limit(input int, in ...Type) (count, also int, limited bool) {
	return in[0].Shape[c.axis], c.ignored, input == 1 && !c.gradient
}

func (c crossEntropy) Adjoints(b *Backward) []Term {
	if c.gradient {
		return b.None("it is a gradient of CrossEntropy")
	}
	inputs, shape := []Term{b.In(0), b.In(1)}, b.In(0).Type().Shape
	if c.weighted {
		inputs = append(inputs, b.In(2))
	}
	c.gradient = true
	terms := make([]Term, len(inputs))
	terms[0] = b.Apply(c, append(inputs, b.reshape(b.Grad(), kept(shape, []int{c.axis})))...)
	return terms
}
