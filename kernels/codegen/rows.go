package codegen

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Rows plans a function with reductions, such as softmax, exp(x - rowmax(x)) /
// rowsum(exp(x - rowmax(x))), of operands that are views of one shape. A row is all
// elements that differ in the indices along axes alone; perRow reports for each output
// whether a row has one element of it. Outputs are in row-major order: those of an
// element for each index in the whole shape, those of one a row in the shape
// without the axes. Several outputs lie one after the other as [Plan.Parts] describes.
// A single output of an element for each index may lie where an input does that has
// elements of that size, if that input's view is dense and no other view is of the
// same memory.
//
// How a sum is ordered follows from the shape, the axes and the device alone, not from
// the rest of the function: a function that is split at its reductions, so that each
// has a plan of its own, computes the same bits if [RowsWhole] reports true or
// the function has one stage of reductions and no output but theirs.
//
// The kernel is generated when a device needs it, as that of [Map] is. An error names
// the argument that does not fit.
func Rows(dev kernels.Device, f expr.Func, shape, axes []int, perRow []bool, operands ...View) (*kernels.Plan, error) {
	p := &kernels.Plan{Op: fmt.Sprintf("rows(%v, %v over %v)", f, shape, axes)}
	if err := appendRows(p, dev, rowCall{f, shape, axes, perRow, operands}); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	return p, nil
}

// RowsWhole reports whether rows of that shape are each computed by one block, so that
// operations after a reduction belong in the same plan. Few long rows are split
// among blocks instead.
func RowsWhole(dev kernels.Device, shape, axes []int) bool {
	return kernels.Count(shape) == 0 || newRowGrid(dev, shape, axes).splits == 1
}

// rowCall is the arguments of [Rows].
type rowCall struct {
	f           expr.Func
	shape, axes []int
	perRow      []bool
	operands    []View
}

// appendRows makes the plan of a call.
func appendRows(p *kernels.Plan, dev kernels.Device, c rowCall) error {
	if err := c.check(); err != nil {
		return err
	}
	staged, err := c.f.Stages(c.perRow)
	if err != nil {
		return err
	}
	var from, to []kernels.Ref
	for i, d := range c.f.Operands() {
		p.Inputs = append(p.Inputs, c.operands[i].inputBytes(d))
		from = append(from, kernels.At(kernels.Operand(i), 0))
	}
	p.Parts, p.Out = kernels.LayOut(c.sizes())
	for _, at := range p.Parts {
		to = append(to, kernels.At(kernels.Out, at))
	}
	p.Flops = kernels.Count(c.shape) * int64(c.f.Operations())
	switch g := newRowGrid(dev, c.shape, c.axes); {
	case c.rows() == 0:
		return nil
	case kernels.Count(c.shape) == 0:
		return appendEmptyRows(p, dev, c, staged, to)
	case g.splits > 1 && len(staged.Stages) == 1 && !slices.Contains(c.perRow, false):
		return splitRows(p, dev, c, staged, g, from, to)
	default:
		return launchRows(p, dev, c, g.whole(), from, to)
	}
}

// launchRows appends the launch of a call whose operands and outputs are there.
func launchRows(p *kernels.Plan, dev kernels.Device, c rowCall, g rowGrid, from, to []kernels.Ref) error {
	m, err := newRowMapping(dev, c, g)
	if err != nil {
		return err
	}
	g = m.grid
	blocks := kernels.CeilDiv(m.rows, g.rowsOfBlock()) * max(g.cluster, 1)
	if err := kernels.CheckGrid(blocks); err != nil {
		return err
	}
	f, _ := c.f.Numbers()
	kernel := &kernels.Kernel{Image: rowsImage{f, m.flags(), m.layout}, Entry: rowsEntry, Body: m.body}
	l := p.Launch(kernel, int(blocks), int(g.threads*g.beside), m.arguments(from, to)...)
	l.Grid[1], l.Shared = int(g.splits), m.layout.sharedBytes(m.types)
	return nil
}

// check returns an error if the arguments do not fit.
func (c rowCall) check() error {
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
	for _, d := range slices.Concat(c.f.Operands(), c.f.Outputs()) {
		if !d.IsFloat() && d != expr.Bool {
			return errors.New("got integers, want float32, float64 or bool")
		}
	}
	return nil
}

// kept returns the axes that are not reduced.
func (c rowCall) kept() (axes []int) {
	for a := range c.shape {
		if !slices.Contains(c.axes, a) {
			axes = append(axes, a)
		}
	}
	return axes
}

// rows returns the number of rows.
func (c rowCall) rows() int64 { return kernels.Count(pick(c.shape, c.kept())) }

// pick returns the elements of a list at some places.
func pick(list, at []int) []int {
	picked := make([]int, len(at))
	for i, a := range at {
		picked[i] = list[a]
	}
	return picked
}

// sizes returns the bytes of each output.
func (c rowCall) sizes() []int64 {
	sizes := make([]int64, len(c.perRow))
	for k, d := range c.f.Outputs() {
		sizes[k] = c.rows() * d.Size()
		if !c.perRow[k] {
			sizes[k] = kernels.Count(c.shape) * d.Size()
		}
	}
	return sizes
}

// rowwise returns f as a function of a shape without the axes, for operands that don't
// differ along a row, with only the operands that f depends on. shape
// and strides get axes at their ends.
func (c rowCall) rowwise(f expr.Func, shape ...int) (rest rowCall, kept []int) {
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
func appendEmptyRows(p *kernels.Plan, dev kernels.Device, c rowCall, staged expr.Staged, to []kernels.Ref) error {
	if !slices.Contains(c.perRow, true) {
		return nil
	}
	b := expr.NewBuilder(c.f.Operands()...)
	values := make([]expr.Value, len(c.operands))
	for i := range values {
		values[i] = b.Operand(i)
	}
	for _, s := range staged.Stages {
		for k, op := range s.Reductions {
			values = append(values, b.Constant(s.Func.Outputs()[k], identityOf(op)))
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
	m := newMapping(dev, rest.f, rest.shape, rest.operands, nil)
	m.parts = m.parts[:0]
	for k, at := range to {
		if c.perRow[k] {
			m.parts = append(m.parts, at.Offset)
		}
	}
	args := m.arguments()
	for i, k := range kept {
		args[i] = kernels.At(kernels.Operand(k), args[i].(kernels.Ref).Offset)
	}
	blocks := m.gridBlocks()
	if err := kernels.CheckGrid(blocks); err != nil {
		return err
	}
	p.Launch(m.kernel(rest.f), int(blocks), m.layout.block, args...)
	return nil
}

// identityOf returns the identity of a reduction.
func identityOf(op expr.Op) float64 {
	switch op {
	case expr.RowMax:
		return math.Inf(-1)
	case expr.RowMin:
		return math.Inf(1)
	}
	return 0
}

// splitRows appends the launches of a call with one stage of reductions and no output
// but theirs: the first reduces each split of a row in double precision, the second
// joins the splits of a row.
func splitRows(p *kernels.Plan, dev kernels.Device, c rowCall, staged expr.Staged, g rowGrid, from, to []kernels.Ref) error {
	stage, n := staged.Stages[0], len(staged.Stages[0].Reductions)
	types := c.f.Operands()
	b := expr.NewBuilder(types...)
	values := make([]expr.Value, len(types))
	for i := range values {
		values[i] = b.Operand(i)
	}
	parts := b.Inline(stage.Func, values...)
	for k, op := range stage.Reductions {
		parts[k] = b.Apply(op, b.Convert(parts[k], kernels.Float64))
	}
	part, err := b.Func(parts...)
	if err != nil {
		return err
	}
	b = expr.NewBuilder(append(slices.Clone(types), slices.Repeat([]kernels.Dtype{kernels.Float64}, n)...)...)
	for k, op := range stage.Reductions {
		values = append(values, b.Convert(b.Apply(op, b.Operand(len(types)+k)), stage.Func.Outputs()[k]))
	}
	for i := range types {
		values[i] = b.Operand(i)
	}
	join, err := b.Func(b.Inline(staged.Row, values...)...)
	if err != nil {
		return err
	}
	partials := make([]kernels.Ref, n)
	for k := range partials {
		partials[k] = p.Workspace(c.rows() * g.splits * kernels.Float64.Size())
	}
	first := rowCall{part, c.shape, c.axes, slices.Repeat([]bool{true}, n), c.operands}
	if err := launchRows(p, dev, first, g, from, partials); err != nil {
		return err
	}
	second, kept := c.rowwise(join, int(g.splits))
	second.axes, second.perRow = []int{len(second.shape) - 1}, c.perRow
	var refs []kernels.Ref
	for _, i := range kept {
		if i < len(from) {
			refs = append(refs, from[i])
		} else {
			refs = append(refs, partials[i-len(from)])
			second.operands = append(second.operands, Dense(second.shape))
		}
	}
	return launchRows(p, dev, second, newRowGrid(dev, second.shape, second.axes).whole(), refs, to)
}
