package gradcheck

import (
	"fmt"
	"math"

	internals "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// expression is the result of build for the inputs, in a new graph.
type expression struct {
	in       []*gorgonia.Node
	out      *gorgonia.Node
	mem      [][]byte                            // memory of the inputs' values
	order    gorgonia.Nodes                      // the output and the nodes that it depends on, children first
	children map[*gorgonia.Node][]*gorgonia.Node // by node in order
	below    map[*gorgonia.Node]bool             // the nodes in order
}

// newExpression calls build; with double all inputs are float64.
func newExpression(build func(...*gorgonia.Node) (*gorgonia.Node, error), in []input, double bool) (*expression, error) {
	g := gorgonia.NewGraph()
	e := &expression{children: make(map[*gorgonia.Node][]*gorgonia.Node), below: make(map[*gorgonia.Node]bool)}
	for i, x := range in {
		dt := x.dtype
		if double {
			dt = kernels.Float64
		}
		v := value(dt, x.shape, x.x)
		mem, err := values.Bytes(v)
		if err != nil {
			return nil, err
		}
		e.mem = append(e.mem, mem)
		e.in = append(e.in, gorgonia.NewTensor(g, values.Tensor(dt), len(x.shape),
			gorgonia.WithShape(x.shape...), gorgonia.WithName(fmt.Sprintf("input%d", i)), gorgonia.WithValue(v)))
	}
	var err error
	if e.out, err = call(build, e.in); err != nil {
		if double {
			return nil, fmt.Errorf("build, on float64 inputs: %w", err)
		}
		return nil, fmt.Errorf("build: %w", err)
	}
	if e.out == nil {
		return nil, fmt.Errorf("build returned no node")
	}
	if e.out.Graph() != g {
		return nil, fmt.Errorf("build returned a node of another graph, want one of its inputs' graph")
	}
	if dt, ok := values.Dtype(e.out.Dtype()); !ok || !dt.IsFloat() {
		return nil, fmt.Errorf("build returned a node of %v, want float32 or float64", e.out.Dtype())
	}
	return e, e.walk(e.out)
}

// call calls build and returns its panic as an error: build may call gorgonia.Must.
func call(build func(...*gorgonia.Node) (*gorgonia.Node, error), in gorgonia.Nodes) (out *gorgonia.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v", p)
		}
	}()
	return build(in...)
}

// walk appends n to order after the nodes that it depends on.
func (e *expression) walk(n *gorgonia.Node) error {
	if e.below[n] {
		return nil
	}
	e.below[n] = true
	children, err := internals.Children(n)
	if err != nil {
		return err
	}
	e.children[n] = children
	for _, child := range children {
		if err := e.walk(child); err != nil {
			return err
		}
	}
	if n.Op() == nil && n.Value() == nil { // a machine would fail
		return fmt.Errorf("node %v, which build made, has no value", n)
	}
	e.order = append(e.order, n)
	return nil
}

// function is an expression in float64 that is evaluated without a machine, by calling its ops' Do with separate memory for
// every value. It is the reference for the machines.
type function struct{ *expression }

func newFunction(build func(...*gorgonia.Node) (*gorgonia.Node, error), in []input) (function, error) {
	e, err := newExpression(build, in, true)
	return function{e}, err
}

func (f function) eval() (y []float64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("an op panicked: %v", p)
		}
	}()
	at := make(map[*gorgonia.Node]gorgonia.Value, len(f.order))
	for _, n := range f.order {
		if n.Op() == nil {
			at[n] = n.Value()
			continue
		}
		args := make([]gorgonia.Value, len(f.children[n]))
		for i, child := range f.children[n] {
			args[i] = at[child]
		}
		if at[n], err = n.Op().Do(args...); err != nil {
			return nil, fmt.Errorf("op %v: %w", n.Op(), err)
		}
	}
	out, err := read(at[f.out])
	if err != nil {
		return nil, fmt.Errorf("output is %w", err)
	}
	return append([]float64(nil), out.x...), nil
}

// difference returns the central difference of the loss w.r.t. element k of input i.
func (f function) difference(i, k int, step float64, weights []float64) (float64, error) {
	x := kernels.Elements[float64](f.mem[i])
	at := x[k]
	defer func() { x[k] = at }()
	h := step * math.Max(1, math.Abs(at))
	x[k] = at + h
	above := x[k]
	hi, err := f.eval()
	if err != nil {
		return 0, err
	}
	x[k] = at - h
	below := x[k]
	lo, err := f.eval()
	if err != nil {
		return 0, err
	}
	if len(hi) != len(weights) || len(lo) != len(weights) {
		return 0, fmt.Errorf("the output has %d and %d elements, then %d", len(weights), len(hi), len(lo))
	}
	sum := 0.0
	for j, w := range weights { // subtract first: unchanged elements cancel exactly
		sum += w * (hi[j] - lo[j])
	}
	return sum / (above - below), nil // the rounded step
}

// read returns a value as float64 numbers.
func read(v gorgonia.Value) (input, error) {
	if v == nil {
		return input{}, fmt.Errorf("no value")
	}
	mem, err := values.Bytes(v)
	if err != nil {
		return input{}, err
	}
	dt, ok := values.Dtype(v.Dtype())
	if !ok || !dt.IsFloat() {
		return input{}, fmt.Errorf("a value of %v: want float32 or float64", v.Dtype())
	}
	in := input{dtype: dt, shape: v.Shape().Clone()}
	if dt == kernels.Float64 {
		in.x = append(in.x, kernels.Elements[float64](mem)...)
		return in, nil
	}
	for _, x := range kernels.Elements[float32](mem) {
		in.x = append(in.x, float64(x))
	}
	return in, nil
}

// value returns a new value of the numbers x.
func value(dt kernels.Dtype, shape tensor.Shape, x []float64) gorgonia.Value {
	v, mem := values.New(dt, shape)
	if dt == kernels.Float64 {
		copy(kernels.Elements[float64](mem), x)
		return v
	}
	single := kernels.Elements[float32](mem)
	for k := range single {
		single[k] = float32(x[k])
	}
	return v
}
