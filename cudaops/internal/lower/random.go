package lower

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// The rules of this file lower Gorgonia's Dropout and random tensors to functions of random numbers. Kernels generate the
// numbers where they use them, from a seed and the number of the run.

// drawer identifies a source of random numbers: a Dropout and its gradient, or one of the draws of a node.
type drawer struct {
	of    any
	times int
}

// uniform returns random numbers in [0, 1), the same for equal drawers and types. Every drawer has its own stream.
func (c *call) uniform(d drawer, t program.Type) *program.Value { return c.draw(d, t, false) }

// draw returns random numbers, normal ones or uniform ones.
func (c *call) draw(d drawer, t program.Type, normal bool) *program.Value {
	number, state := c.stream(d)
	view := program.Contiguous(t.Shape)
	view.Stream = codegen.Stream{Number: number, Normal: normal}
	return c.alias(state, t, view)
}

// stream returns the number of a drawer's stream, and the state of the generator.
func (c *call) stream(d drawer) (number int, state *program.Value) {
	if c.state == nil {
		c.graph.Random = make([]int64, c.local*codegen.RandomState)
		state := tensor.New(tensor.WithShape(len(c.graph.Random)), tensor.WithBacking(c.graph.Random))
		c.graph.Inputs = append(c.graph.Inputs, Input{Node: c.node, State: state})
		c.state = c.emit(program.Input{Split: c.local > 1}, program.Type{Numeric: true, Dtype: kernels.Int64, Shape: tensor.Shape{codegen.RandomState}})
	}
	if c.drawn[d] == 0 {
		c.drawn[d] = len(c.drawn) + 1
	}
	return c.drawn[d], c.state
}

// stateInput adds an input that is the state of an op.
func (c *call) stateInput(state *tensor.Dense, dt kernels.Dtype) *program.Value {
	c.graph.Inputs = append(c.graph.Inputs, Input{Node: c.node, State: state})
	return c.emit(program.Input{}, program.Type{Numeric: true, Dtype: dt, Shape: state.Shape().Clone()})
}

// dropout lowers Dropout, which divides kept elements by the probability to keep them, and its gradient, whose inputs are the Dropout's input,
// its output and the gradient w.r.t. the output.
//
// Gorgonia's gradient divides by the probability to drop elements, and takes an element as dropped if the output is 0.
func dropout(c *call) *program.Value {
	d, ok := internal.Dropout(c.node.Op())
	inputs := 1
	if d.Derivative {
		inputs = 3
	}
	if !ok || !c.floats(inputs) || !slices.Equal(c.in[inputs-1].Shape, c.Shape) {
		return nil
	}
	return c.dropout(d.Probability, d.Op, c.in[inputs-1])
}

// dropout emits a Dropout of a value.
func (c *call) dropout(probability float64, of any, x *program.Value) *program.Value {
	if training := c.trains(); probability == 0 || !training {
		return c.alias(x, c.Type, x.View)
	}
	return c.mapped(c.Type, func(b *expr.Builder) expr.Value { return ops.DropoutOf(b, c.Dtype, probability) }, x, c.uniform(drawer{of: of}, c.Type))
}

// drawing lowers an op of package ops that draws random numbers. Its kernel has the state of the generator as its last operand, except for
// Dropout, which is a map.
func drawing(c *call) *program.Value {
	op, ok := c.node.Op().(interface {
		Draws() (source any, planner func(stream int) kernels.Planner, ok bool)
		Dropout() (probability float64, ok bool)
	})
	if !ok {
		return nil
	}
	of, planner, ok := op.Draws()
	if !ok {
		return nil
	}
	if probability, ok := op.Dropout(); ok {
		return c.dropout(probability, of, c.in[0])
	}
	stream, state := c.stream(drawer{of: of})
	return c.emit(program.Kernel{Planner: planner(stream)}, c.Type, append(slices.Clone(c.in), state)...)
}

// random lowers random tensors. It leaves invalid parameters to the op's Do, which reports them.
func random(c *call) *program.Value {
	name, p, q, ok := internal.Random(c.node.Op())
	if !ok || !c.floats(0) {
		return nil
	}
	switch {
	case name == "uniform" && p < q:
		return c.between(p, q)
	case name == "gaussian":
		return c.gaussian(p, q)
	case name == "binomial" && p >= 1 && p < 1<<31 && 0 <= q && q <= 1:
		return c.binomial(int(p), q)
	}
	return nil
}

// between emits random numbers in [low, high).
func (c *call) between(low, high float64) *program.Value {
	lowest, range_, below := low, high-low, math.Nextafter(high, low)
	highest := low + float64((1-0x1p-53)*range_)
	if c.Dtype == kernels.Float32 {
		l, h := float32(low), float32(high)
		lowest, range_, below = float64(l), float64(h-l), float64(math.Nextafter32(h, l))
		highest = float64(l + float32((1-0x1p-24)*(h-l)))
	}
	return c.mapped(c.Type, func(b *expr.Builder) expr.Value {
		v := b.Apply(expr.Add, b.Constant(c.Dtype, lowest), b.Apply(expr.Mul, b.Operand(0), b.Constant(c.Dtype, range_)))
		if highest > below { // by rounding
			v = b.Apply(expr.Min, v, b.Constant(c.Dtype, below))
		}
		return v
	}, c.uniform(drawer{of: c.node}, c.Type))
}

// gaussian emits normal numbers. Kernels generate those of float32. For float64 it emits the method of Box and Muller (1958)
// with an angle and a radius from a uniform number in (0, 1] as small as 2⁻⁵⁴.
func (c *call) gaussian(mean, deviation float64) *program.Value {
	in := []*program.Value{c.draw(drawer{c.node, 0}, c.Type, c.Dtype == kernels.Float32)}
	if c.Dtype == kernels.Float64 {
		in = append(in, c.uniform(drawer{c.node, 1}, c.Type))
	}
	return c.mapped(c.Type, func(b *expr.Builder) expr.Value {
		number := func(v float64) expr.Value { return b.Constant(c.Dtype, v) }
		z := b.Operand(0)
		if c.Dtype == kernels.Float64 {
			u := b.Apply(expr.Add, b.Operand(1), number(0x1p-54))
			radius := b.Apply(expr.Sqrt, b.Apply(expr.Mul, number(-2), b.Apply(expr.Log, u)))
			z = b.Apply(expr.Mul, radius, b.Apply(expr.Cos, b.Apply(expr.Mul, number(2*math.Pi), z)))
		}
		return b.Apply(expr.Add, number(mean), b.Apply(expr.Mul, number(deviation), z))
	}, in...)
}

// binomial emits numbers of successes among trials, with a random number for each trial.
func (c *call) binomial(trials int, probability float64) *program.Value {
	t := c.Type
	t.Shape = append(slices.Clone(c.Shape), trials)
	return c.reduced(c.Type, []int{len(c.Shape)}, func(b *expr.Builder) expr.Value {
		success := b.Apply(expr.Lt, b.Operand(0), b.Constant(c.Dtype, probability))
		return b.Apply(expr.RowSum, b.Convert(success, c.Dtype))
	}, c.uniform(drawer{of: c.node}, t))
}
