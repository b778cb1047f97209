package codegen

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/policy"
)

// View is an operand of [Map]: a buffer, and where it stores the elements of the output's shape.
type View struct {
	Elements int64 // of the buffer
	Offset   int64 // of the first element that is used
	Strides  []int // elements from an index to the next by axis; 0 repeats elements
	// Bounds leave out elements beyond From <= i < To along Axis: they are not in the buffer
	// and read as 0. Offset is that of index From. To = 0 is for no bounds.
	Bounds Bounds
	// Stream makes the elements random numbers, a function of the stream, of the element's offset, and of the state in the buffer: see [RandomState].
	Stream Stream
	// Iota makes each element, an Int64, the number Offset + sum of index[k] Strides[k] itself. There is no buffer: Elements is 0, and
	// a plan has no input for the operand. Stride 1 along an axis and 0 elsewhere gives the index along the axis.
	Iota bool
	// Constant says that no launch of the run stores to the buffer: a kernel may load it before the kernels that it depends on have completed.
	Constant bool
	// Matmul says that Rows multiplies the rows of this operand, a matrix, by a vector: it sums them in float32, as products are, if threads keep all elements in registers.
	Matmul bool
}

// Stream is one of random numbers: uniform in [0, 1), or normal ones, of float32 alone, with mean 0 and deviation 1. Number 0 is for none.
type Stream = struct {
	Number int
	Normal bool
}

// Bounds are part of an axis.
type Bounds = struct{ Axis, From, To int }

// bounded reports whether the view leaves out a part of the shape.
func (v View) bounded(shape []int) bool {
	b := v.Bounds
	return b.To != 0 && (b.From != 0 || b.To != shape[b.Axis])
}

// Dense returns the view of a buffer of a shape in row-major order.
func Dense(shape []int) View {
	return View{Elements: kernels.Count(shape), Strides: rowMajor(shape)}
}

// rowMajor returns the strides of a dense shape.
func rowMajor(shape []int) []int {
	strides := make([]int, len(shape))
	n := 1
	for a := len(shape) - 1; a >= 0; a-- {
		strides[a] = n
		n *= shape[a]
	}
	return strides
}

// Map plans out = f(operands), element by element, for an output of the shape, in row-major order, and operands that are views of the plan's inputs.
// Several outputs are consecutive, as [Plan.Parts] describes. An output may overwrite an input that has elements of that size, if that input's view
// is dense and no other view is of the same memory.
//
// The kernel is generated when a device needs it. Kernels are equal, and are loaded once, if functions and layouts are: extents and strides are
// arguments. An error names the operand that does not fit.
func Map(dev kernels.Device, f expr.Func, shape []int, operands ...View) (*kernels.Plan, error) {
	return MapSplit(dev, f, shape, nil, operands...)
}

// MapSplit is [Map] with some float32 outputs stored as splits: see [SplitBytes]. An empty list is for none. It returns an error where kernels do
// not store splits: on devices before compute capability 8.0, and of outputs that are not stored in vectors or by too many blocks. One output may be stored with channels last, of
// multiples of 8 channels and of 4 pixels, if operands are vectors along pixels or have an element for each channel or image.
func MapSplit(dev kernels.Device, f expr.Func, shape []int, split []Split, operands ...View) (*kernels.Plan, error) {
	p, c := &kernels.Plan{Op: fmt.Sprintf("map(%v, %v)", f, shape)}, call{f: f, shape: shape, split: split, operands: operands}
	err := checkMap(f, shape, operands)
	if n := f.Reductions(); n > 0 && err == nil {
		err = fmt.Errorf("got a function with %d reductions, want a function of elements", n)
	}
	if err == nil {
		err = c.checkSplit(dev)
	}
	if err != nil {
		return p.Or(err)
	}
	if from, to := c.buffers(p); kernels.Count(shape) > 0 {
		n := newMap(dev, c, nil)
		if c.storesChannelsLast() {
			err = n.layOutSquares(shape)
		}
		if err == nil {
			err = n.launch(p, f, from, to)
		}
	}
	return p.Or(err)
}

// newMap lays out a map whose one output is stored as a view describes, or whose outputs are in row-major order if there is none. A
// thread has vectors of elements.
func newMap(dev kernels.Device, c call, into *View) *nest {
	outputs := slices.Repeat([]View{Dense(c.shape)}, len(c.f.Outputs()))
	if into != nil {
		outputs = []View{*into}
	}
	for k, s := range c.split {
		if s == SplitChannelsLast {
			outputs[k] = channelsLast(c.shape)
		}
	}
	types := slices.Concat(c.stored(), c.f.Outputs())
	n := newNest(c, rowGrid{stridedAxis: true, width: vectorWidth(types), threadsPerRow: 1}.whole(), outputs)
	small := dev.Kind == kernels.GPU && into == nil && !c.splits() && n.rows <= int64(dev.SMs)*policy.Streaming.On(dev).Few
	if small {
		n.grid.width = 1 // less code to compile, and threads that are done sooner
	}
	n.address(!small)
	if into != nil && (n.layout.place(len(n.types)).lanes != aligned || n.rows == 1) { // no vectors to store
		n.grid.width = 1
		n.address(true)
	}
	l, pol := &n.layout, policy.Streaming.On(dev)
	if l.rowAxes > 0 {
		pol = policy.Scaling.On(dev)
	}
	l.entry, l.threadsPerRow, l.rowsPerBlock, l.vectors = mapEntry, 1, pol.Block, int(pol.Vectors)
	if small {
		l.vectors = 1
	} else if l.width == 1 {
		l.vectors *= 4
	} else if !slices.ContainsFunc(types, func(d expr.Dtype) bool { return d.Size() != 2 }) {
		l.vectors *= 4 // of 8 bytes: H100, BF16, 2^28 elements of GELU by tanh: 389.9 us with one, 367.7 with 2, 356.6 with 4
	}
	if c.splits() && !c.storesChannelsLast() {
		if l.vectors = splitVectors; n.blocks() > MaxRanges {
			l.vectors *= 2
		}
	}
	l.wide = n.isWide(int64(l.width * l.vectors * l.rowsPerBlock))
	if dev.Kind == kernels.GPU && !c.splits() && !slices.ContainsFunc(n.views, func(v View) bool { return v.Stream.Number != 0 }) {
		n.chooseTiles()
	}
	step := rowStep{eval: expr.NewInterpreter(c.f), outputs: c.f.Outputs()}
	for i := range n.types {
		step.needs = append(step.needs, i)
	}
	for k := range n.outputs {
		step.to = append(step.to, k)
	}
	n.steps = []rowStep{step}
	return n
}

// vectorWidth returns the elements of a vector: those that have 16 bytes in the
// narrowest type that counts. A Bool is computed of or selects among wider ones.
func vectorWidth(types []expr.Dtype) int64 {
	narrow, wide := false, false
	for _, d := range types {
		narrow, wide = narrow || d.Size() == 4, wide || d.Size() == 8
	}
	if wide && !narrow {
		return 2
	}
	return 4
}

// checkMap returns an error if arguments of Map do not fit.
func checkMap(f expr.Func, shape []int, operands []View) error {
	if len(f.Outputs()) == 0 {
		return errors.New("got a function without outputs, want at least one")
	}
	if n := len(f.Operands()); len(operands) != n {
		return fmt.Errorf("got %d operands, want %d", len(operands), n)
	}
	for _, d := range shape {
		if d < 0 {
			return fmt.Errorf("got shape %v, want no extent below 0", shape)
		}
	}
	for i, v := range operands {
		err, d := v.Check(shape), f.Operands()[i]
		switch {
		case err != nil:
		case v.Stream.Number != 0:
			err = v.checkRandom(d)
		case v.Iota && (d != expr.Int64 || v.Elements != 0 || v.Bounds.To != 0):
			err = fmt.Errorf("got %v, %d elements and bounds %+v of an iota, want i64 and neither", d, v.Elements, v.Bounds)
		}
		if err != nil {
			return fmt.Errorf("operand %d: %w", i, err)
		}
	}
	return nil
}

// Check returns an error if the view reaches beyond its buffer.
func (v View) Check(shape []int) error {
	if len(v.Strides) != len(shape) {
		return fmt.Errorf("got %d strides, want %d", len(v.Strides), len(shape))
	}
	if v.Elements < 0 || v.Elements > math.MaxInt64/16 {
		return fmt.Errorf("got %d elements", v.Elements)
	}
	if b := v.Bounds; b.To != 0 && (b.Axis < 0 || b.Axis >= len(shape) || b.From < 0 || b.From >= b.To || b.To > shape[b.Axis]) {
		return fmt.Errorf("got bounds %+v of shape %v", b, shape)
	}
	last := v.Offset
	for a, s := range v.Strides {
		if s < 0 {
			return fmt.Errorf("got strides %v, want none below 0", v.Strides)
		}
		extent := shape[a]
		if b := v.Bounds; b.To != 0 && b.Axis == a {
			extent = b.To - b.From
		}
		last += int64(s) * int64(max(extent-1, 0))
	}
	if kernels.Count(shape) > 0 && v.Stream.Number == 0 && !v.Iota && (v.Offset < 0 || last >= v.Elements) {
		return fmt.Errorf("got a view of elements %d to %d, want it within %d", v.Offset, last, v.Elements)
	}
	return nil
}
