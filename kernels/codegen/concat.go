package codegen

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// Concat plans out = operands, one after the other along an axis. Operand i is a view of a part of the shape, of extents[i] elements along the axis;
// together they have the shape's. A [Map] copies each to its part of out; neighbours of one layout share a launch. Short parts, and those that are
// not whole vectors, share one that finds the part of each element. Each element is read once and written once.
func Concat(dev kernels.Device, dt kernels.Dtype, shape []int, axis int, extents []int, operands ...View) (*kernels.Plan, error) {
	p := &kernels.Plan{Op: fmt.Sprintf("concat_%v(%v along %d)", dt, shape, axis), Out: kernels.Count(shape) * dt.Size()}
	return p.Or(appendConcat(p, dev, dt, shape, axis, extents, operands))
}

// A part is the map that writes an operand of a concatenation.
type part struct {
	*nest
	operand kernels.Operand
	view    View // within the whole shape, by bounds
}

// elements returns how many elements along the axis the part has.
func (a part) elements() int { return a.view.Bounds.To - a.view.Bounds.From }

func appendConcat(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, shape []int, axis int, extents []int, operands []View) error {
	if axis < 0 || axis >= len(shape) || len(extents) != len(operands) {
		return fmt.Errorf("got axis %d of shape %v and %d extents for %d operands", axis, shape, len(extents), len(operands))
	}
	f, err := expr.Identity(dt)
	if err != nil {
		return err
	}
	whole, from := Dense(shape), 0
	inner := whole.Strides[axis]
	var parts []part
	for i, v := range operands {
		c := call{f: f, shape: slices.Clone(shape), operands: []View{v}}
		c.shape[axis] = extents[i]
		if err := checkMap(f, c.shape, c.operands); err != nil {
			return fmt.Errorf("operand %d: %w", i, err)
		}
		if v.Iota {
			return fmt.Errorf("operand %d: got an iota, want one in memory", i)
		}
		p.Inputs = append(p.Inputs, v.Elements*dt.Size())
		if kernels.Count(c.shape) > 0 {
			whole.Offset = int64(from * inner)
			n := newMap(dev, c, &whole)
			v.Bounds = Bounds{Axis: axis, From: from, To: from + extents[i]}
			parts = append(parts, part{n, kernels.Operand(i), v})
		}
		from += extents[i]
	}
	if from != shape[axis] {
		return fmt.Errorf("got extents %v, want %d together", extents, shape[axis])
	}
	for len(parts) > 0 {
		n := merged(parts, inner)
		if n > 1 {
			err = launchMerged(p, dev, shape, parts[:n])
		} else {
			n, err = launchLike(p, f, parts[:min(len(parts), maxParts)])
		}
		if err != nil {
			return err
		}
		parts = parts[n:]
	}
	return nil
}

const (
	maxParts  = 16 // parts of a launch of like parts
	maxMerged = 8  // parts of a launch that selects the part of each element
	shortPart = 96 // elements in a row up to which a launch for each part is slower, also by vectors
)

// merged returns the number of leading parts to write in one launch that selects the part of each element, or 1 to write them
// separately. A merged launch is faster if some part is short or cannot be written in vectors, and no part is transposed and written in tiles.
func merged(parts []part, inner int) int {
	few := min(len(parts), maxMerged)
	short := func(a part) bool { return a.layout.width == 1 || a.elements()*inner <= shortPart }
	tiles := func(a part) bool { return a.layout.tile > 0 }
	if !slices.ContainsFunc(parts[:few], short) || slices.ContainsFunc(parts[:few], tiles) {
		return 1
	}
	return few
}

// launchMerged appends the launch that writes some parts.
func launchMerged(p *kernels.Plan, dev kernels.Device, shape []int, parts []part) error {
	b := expr.NewBuilder(slices.Repeat(parts[0].types, len(parts))...)
	f, err := b.Func(b.Operand(0))
	if err != nil {
		return err
	}
	axis, from := parts[0].view.Bounds.Axis, parts[0].view.Bounds.From
	c, whole := call{f: f, shape: slices.Clone(shape)}, Dense(shape)
	var refs []kernels.Ref
	for _, a := range parts {
		a.view.Bounds.From -= from
		a.view.Bounds.To -= from
		c.operands, refs = append(c.operands, a.view), append(refs, kernels.In(a.operand))
		c.shape[axis] = a.view.Bounds.To
	}
	into := &whole
	if whole.Offset = int64(from * whole.Strides[axis]); c.shape[axis] == shape[axis] {
		into = nil
	}
	n := newMap(dev, c, into)
	n.layout.merged = true
	return n.launch(p, f, refs, []kernels.Ref{kernels.At(kernels.Out, 0)})
}

// launchLike appends the launch that writes the first of some parts, each by blocks of its own: those that differ from the first only in
// their operand and in where their output begins. It returns their number.
func launchLike(p *kernels.Plan, f expr.Func, parts []part) (count int, err error) {
	arguments := func(a part) []any {
		return a.arguments([]kernels.Ref{kernels.In(a.operand)}, []kernels.Ref{kernels.At(kernels.Out, 0)})
	}
	n, args := parts[0].nest, arguments(parts[0])
	from := slices.Clone(args[:1])
	for _, a := range parts[1:] {
		other := arguments(a)
		if a.layout != n.layout || !slices.Equal(other[2:], args[2:]) {
			break
		}
		from = append(from, other[0])
	}
	if count = len(from); count > 1 {
		n.grid.splits, n.part = int64(count), parts[1].views[1].Offset-n.views[1].Offset
		n.layout.joined = int(arith.Pow2(n.grid.splits))
		from = append(from, slices.Repeat(from[:1], n.layout.joined-count)...) // no block has these
		args = slices.Concat(from, args[1:3], []any{n.part * n.outputs[0].Size()}, args[3:])
	}
	return count, n.launchWith(p, f, args)
}
