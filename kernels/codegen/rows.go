package codegen

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// Rows plans a function with reductions, such as softmax, exp(x - rowmax(x)) /
// rowsum(exp(x - rowmax(x))), of operands that are views of one shape. A row is all
// elements that differ in the indices along axes alone; perRow reports for each output
// whether a row has one element of it. Outputs are in row-major order: those of an
// element for each index in the whole shape, those of one a row in the shape
// without the axes. Several outputs are consecutive, as [Plan.Parts] describes.
// A single output of an element for each index may overwrite an input that has
// elements of that size, if that input's view is dense and no other view is of the
// same memory.
//
// The order of a sum depends only on the shape, the axes and the device, not on the rest
// of the function. A function may be split at its reductions, with a separate plan for
// each. The split function computes the same bits if [RowsWhole] reports true, or if the
// function has one stage of reductions and outputs only their results.
//
// The kernel is generated when a device needs it, as that of [Map] is. An error names
// the argument that does not fit.
func Rows(dev kernels.Device, f expr.Func, shape, axes []int, perRow []bool, operands ...View) (*kernels.Plan, error) {
	return RowsSplits(dev, f, shape, axes, perRow, nil, operands...)
}

// RowsSplits is [Rows] with some float32 outputs of an element for each index stored as splits, as [MapSplit] stores them.
func RowsSplits(dev kernels.Device, f expr.Func, shape, axes []int, perRow []bool, split []Split, operands ...View) (*kernels.Plan, error) {
	p := &kernels.Plan{Op: fmt.Sprintf("rows(%v, %v over %v)", f, shape, axes)}
	return p.Or(appendRows(p, dev, call{f, shape, axes, perRow, split, operands}))
}

// RowsWhole reports whether rows of that shape are each computed by one block, so that
// operations after a reduction belong in the same plan. Few long rows are split
// among blocks instead.
func RowsWhole(dev kernels.Device, shape, axes []int) bool {
	return kernels.Count(shape) == 0 || newRowGrid(dev, shape, axes).splits == 1
}

// RowsSplit reports whether a function of rows that are split among blocks is one plan: it has one stage of reductions, on which no output with
// an element for each index depends.
func RowsSplit(f expr.Func, perRow []bool) bool {
	staged, err := f.Stages(perRow)
	return err == nil && (len(staged.Stages) == 1 && streams(staged, len(f.Operands())) || len(staged.Stages) == 0 && !slices.Contains(perRow, false))
}

// streams reports whether the outputs with an element for each index depend on the function's operands alone, so that they can be stored as reductions read these.
func streams(staged expr.Staged, operands int) bool {
	_, kept := staged.Elements.Trim()
	return !slices.ContainsFunc(kept, func(k int) bool { return k >= operands })
}

// elements adds the outputs with an element for each index, which depend on a function's operands alone.
func elements(b *expr.Builder, staged expr.Staged, operands int) []expr.Value {
	if len(staged.Elements.Outputs()) == 0 {
		return nil
	}
	values := b.Inputs()[:operands:operands]
	for _, d := range staged.Elements.Operands()[operands:] { // results of reductions, which they do not read
		if d.IsFloat() {
			values = append(values, b.Constant(d, 0))
		} else {
			values = append(values, b.Integer(d, 0))
		}
	}
	return b.Inline(staged.Elements, values...)
}

// call is the arguments of [Rows], or of [Map] without axes and perRow.
type call struct {
	f           expr.Func
	shape, axes []int
	perRow      []bool
	split       []Split // of the outputs, or nil
	operands    []View
}

// appendRows makes the plan of a call.
func appendRows(p *kernels.Plan, dev kernels.Device, c call) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := c.checkSplit(dev); err != nil {
		return err
	}
	if c.storesChannelsLast() {
		return errors.New("got an output of rows stored as splits with channels last, want one of a map")
	}
	staged, err := c.f.Stages(c.perRow)
	if err != nil {
		return err
	}
	from, to := c.buffers(p)
	switch g := newRowGrid(dev, c.shape, c.axes); {
	case c.rows() == 0:
		return nil
	case kernels.Count(c.shape) == 0:
		return appendEmptyRows(p, dev, c, staged, from, to)
	case g.splits > 1 && len(staged.Stages) == 1 && streams(staged, len(c.operands)):
		return splitRows(p, dev, c, staged, g, from, to)
	default:
		return launchRows(p, dev, c, g.whole(), from, to)
	}
}

// buffers sets the sizes of a plan's inputs and outputs, and returns them.
func (c call) buffers(p *kernels.Plan) (from, to []kernels.Ref) {
	for i, d := range c.f.Operands() {
		from = append(from, kernels.In(kernels.Operand(len(p.Inputs))))
		if !c.operands[i].Iota {
			p.Inputs = append(p.Inputs, c.operands[i].inputBytes(d))
		}
	}
	p.Parts, p.Out = arith.LayOut(c.sizes())
	for _, at := range p.Parts {
		to = append(to, kernels.At(kernels.Out, at))
	}
	p.Flops = kernels.Count(c.shape) * int64(c.f.Operations())
	return from, to
}

// launchRows appends the launch of a call that was checked, whose operands and outputs are there.
func launchRows(p *kernels.Plan, dev kernels.Device, c call, g rowGrid, from, to []kernels.Ref) error {
	staged, err := c.f.Stages(c.perRow)
	if err != nil {
		return err
	}
	pol := rowsPolicies.On(dev)
	streamed := g.cluster > 0 && len(staged.Stages) == 1 && slices.Contains(c.perRow, false) && streams(staged, len(c.operands))
	if slices.Contains(c.perRow, true) && (streamed || elementSteps(staged) == 1 && !slices.Contains(c.perRow, false)) {
		g = g.withShares(int64(dev.SMs), c.rows(), pol.minThreadsPerSM)
	}
	if c.splits() {
		g = g.withRows(pol.blockThreads)
		dev.SharedOptin -= sizesBytes
	}
	n := newNest(c, g, c.outputs(int(g.splits)))
	n.staged = staged
	for _, s := range staged.Stages {
		if k := len(s.Reductions); k > maxReductions {
			return fmt.Errorf("got %d reductions side by side, want at most %d", k, maxReductions)
		}
		n.scalars = append(n.scalars, s.Func.Outputs()...)
	}
	_, n.used = c.f.Trim()
	_, ofRow := staged.Row.Trim()
	for _, i := range ofRow {
		if i < len(n.types) && slices.Max(append(n.colStrides[i], 0)) > 0 {
			return fmt.Errorf("got an output with one element a row that depends on operand %d, of strides %v, want it the same along axes %v", i, c.operands[i].Strides, c.axes)
		}
	}
	if err := n.makeSteps(c.f); err != nil {
		return err
	}
	n.address(true)
	l := &n.layout
	l.entry, l.stridedAxis, l.threadsPerRow, l.rowsPerBlock, l.split, l.cluster, l.sharesPerBlock = rowsEntry, g.stridedAxis, int(g.threadsPerRow), int(g.rowsPerBlock), g.splits > 1, int(g.cluster), int(g.sharesPerBlock)
	l.streams = streamed
	for _, one := range c.perRow {
		l.perRow += map[bool]string{true: "r", false: "e"}[one]
	}
	l.wide = n.isWide(1 << 18)
	n.chooseResident(dev, pol)
	if l.prefetch = n.prefetchesRows(dev); l.prefetch {
		n.chooseRowsPerThread(dev, pol)
		n.chooseEarly()
	}
	n.chooseMatmul()
	return n.launch(p, c.f, from, to)
}

// outputs returns how outputs are stored: in row-major order, with an element for each index, or one for each split of each row.
func (c call) outputs(splits int) (views []View) {
	for _, perRow := range c.perRow {
		v := Dense(c.shape)
		if perRow {
			v.Strides = make([]int, len(c.shape))
			at := splits
			for _, a := range slices.Backward(c.kept()) {
				v.Strides[a] = at
				at *= c.shape[a]
			}
		}
		views = append(views, v)
	}
	return views
}

// check returns an error if the arguments do not fit.
func (c call) check() error {
	if err := checkMap(c.f, c.shape, c.operands); err != nil {
		return err
	}
	for i, v := range c.operands {
		if v.bounded(c.shape) {
			return fmt.Errorf("operand %d: got bounds %+v, want none", i, v.Bounds)
		}
	}
	if len(c.perRow) != len(c.f.Outputs()) {
		return fmt.Errorf("got %d flags for %d outputs", len(c.perRow), len(c.f.Outputs()))
	}
	for i, a := range c.axes {
		if a < 0 || a >= len(c.shape) || i > 0 && a <= c.axes[i-1] {
			return fmt.Errorf("got axes %v of shape %v, want rising axes of it", c.axes, c.shape)
		}
	}
	return nil
}

// stored returns the types of the operands that are in memory.
func (c call) stored() (types []expr.Dtype) {
	for i, d := range c.f.Operands() {
		if !c.operands[i].Iota {
			types = append(types, d)
		}
	}
	return types
}

// kept returns the axes that are not reduced.
func (c call) kept() (axes []int) {
	for a := range c.shape {
		if !slices.Contains(c.axes, a) {
			axes = append(axes, a)
		}
	}
	return axes
}

// rows returns the number of rows.
func (c call) rows() int64 { return kernels.Count(pick(c.shape, c.kept())) }

// pick returns the elements of a list at some places.
func pick[T any](list []T, at []int) []T {
	picked := make([]T, len(at))
	for i, a := range at {
		picked[i] = list[a]
	}
	return picked
}

// sizes returns the bytes of each output.
func (c call) sizes() (sizes []int64) {
	for k, d := range c.f.Outputs() {
		elements := kernels.Count(c.shape)
		if c.perRow != nil && c.perRow[k] {
			elements = c.rows()
		}
		if c.isSplit(k) {
			sizes = append(sizes, SplitBytes(elements))
		} else {
			sizes = append(sizes, elements*d.Size())
		}
	}
	return sizes
}

// rowwise returns f as a function of a shape without the axes, for operands that don't
// differ along a row, with only the operands that f depends on. shape
// and strides get axes at their ends.
func (c call) rowwise(f expr.Func, shape ...int) (rest call, kept []int) {
	rest.f, kept = f.Trim()
	axes := c.kept()
	rest.shape = append(pick(c.shape, axes), shape...)
	for _, i := range kept {
		if i < len(c.operands) {
			v := c.operands[i]
			v.Strides = append(pick(v.Strides, axes), make([]int, len(shape))...)
			rest.operands = append(rest.operands, v)
		}
	}
	return rest, kept
}

// appendEmptyRows appends the launch for rows without elements: the reductions are their
// identities.
func appendEmptyRows(p *kernels.Plan, dev kernels.Device, c call, staged expr.Staged, from, to []kernels.Ref) error {
	if !slices.Contains(c.perRow, true) {
		return nil
	}
	b := expr.NewBuilder(c.f.Operands()...)
	values := b.Inputs()
	for _, s := range staged.Stages {
		for k, op := range s.Reductions {
			values = append(values, identity(b, op, s.Func.Outputs()[k]))
		}
	}
	f, err := b.Func(b.Inline(staged.Row, values...)...)
	if err != nil {
		return err
	}
	rest, kept := c.rowwise(f)
	if err := checkMap(rest.f, rest.shape, rest.operands); err != nil {
		return err
	}
	var ofRow []kernels.Ref
	for k, at := range to {
		if c.perRow[k] {
			ofRow = append(ofRow, at)
		}
	}
	return newMap(dev, rest, nil).launch(p, rest.f, pick(from, kept), ofRow)
}

// identity adds the reduction of no elements of a type.
func identity(b *expr.Builder, op expr.Op, d expr.Dtype) expr.Value {
	if d.IsInteger() {
		return b.Integer(d, integerIdentity(op, d))
	}
	return b.Constant(d, reductionOf[op].Identity())
}

// splitRows appends the launches of a call with one stage of reductions, on which no output with an element for each index depends. The first launch reduces each split of
// a row in double precision, or integers in their type, and stores these outputs; the second combines the splits of a row.
func splitRows(p *kernels.Plan, dev kernels.Device, c call, staged expr.Staged, g rowGrid, from, to []kernels.Ref) error {
	stage, n := staged.Stages[0], len(staged.Stages[0].Reductions)
	types := c.f.Operands()
	b := expr.NewBuilder(types...)
	parts := b.Inline(stage.Func, b.Inputs()...)
	partial := slices.Repeat([]kernels.Dtype{kernels.Float64}, n)
	for k, op := range stage.Reductions {
		if d := stage.Func.Outputs()[k]; !d.IsFloat() {
			partial[k] = d
		}
		parts[k] = b.Apply(op, b.Convert(parts[k], partial[k]))
	}
	part, err := b.Func(append(parts, elements(b, staged, len(types))...)...)
	if err != nil {
		return err
	}
	b = expr.NewBuilder(append(slices.Clone(types), partial...)...)
	values := b.Inputs()[:len(types):len(types)]
	for k, op := range stage.Reductions {
		values = append(values, b.Convert(b.Apply(op, b.Operand(len(types)+k)), stage.Func.Outputs()[k]))
	}
	join, err := b.Func(b.Inline(staged.Row, values...)...)
	if err != nil {
		return err
	}
	partials := make([]kernels.Ref, n)
	for k, d := range partial {
		partials[k] = p.Workspace(c.rows() * g.splits * d.Size())
	}
	first := call{part, c.shape, c.axes, slices.Repeat([]bool{true}, n), make([]Split, n), c.operands}
	firstTo, ofRow := slices.Clone(partials), []kernels.Ref(nil)
	for k, at := range to {
		if c.perRow[k] {
			ofRow = append(ofRow, at)
		} else {
			first.perRow, first.split, firstTo = append(first.perRow, false), append(first.split, c.splitOf(k)), append(firstTo, at)
		}
	}
	if err := launchRows(p, dev, first, g, from, firstTo); err != nil {
		return err
	}
	second, kept := c.rowwise(join, int(g.splits))
	second.axes, second.perRow = []int{len(second.shape) - 1}, slices.Repeat([]bool{true}, len(ofRow))
	var refs []kernels.Ref
	for _, i := range kept {
		if i < len(from) {
			refs = append(refs, from[i])
		} else {
			refs = append(refs, partials[i-len(from)])
			second.operands = append(second.operands, Dense(second.shape))
		}
	}
	return launchRows(p, dev, second, newRowGrid(dev, second.shape, second.axes).whole(), refs, ofRow)
}
