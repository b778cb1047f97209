package codegen

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// Concat plans out = operands, one after the other along an axis. Operand i is a view of a
// part of the shape, of extents[i] elements along the axis; together they have the
// shape's. A [Map] copies each to its part of out; neighbours of one layout
// share a launch. Short parts, and those that are not whole vectors, share one that finds
// the part of each element. Each element is read once and written once.
func Concat(dev kernels.Device, dt kernels.Dtype, shape []int, axis int, extents []int, operands ...View) (*kernels.Plan, error) {
	p := &kernels.Plan{Op: fmt.Sprintf("concat_%v(%v along %d)", dt, shape, axis), Out: kernels.Count(shape) * dt.Size()}
	if err := appendConcat(p, dev, dt, shape, axis, extents, operands); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	return p, nil
}

func appendConcat(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, shape []int, axis int, extents []int, operands []View) error {
	if axis < 0 || axis >= len(shape) || len(extents) != len(operands) {
		return fmt.Errorf("got axis %d of shape %v and %d extents for %d operands", axis, shape, len(extents), len(operands))
	}
	b := expr.NewBuilder(dt)
	f, err := b.Func(b.Operand(0))
	if err != nil {
		return err
	}
	strides, from := rowMajor(shape), 0
	var parts []*mapping
	var bounded []View
	for i, v := range operands {
		part := slices.Clone(shape)
		part[axis] = extents[i]
		if err := checkMap(f, part, []View{v}); err != nil {
			return fmt.Errorf("operand %d: %w", i, err)
		}
		p.Inputs = append(p.Inputs, v.Elements*dt.Size())
		if kernels.Count(part) > 0 {
			into := View{Elements: kernels.Count(shape), Offset: int64(from * strides[axis]), Strides: strides}
			m := newMapping(dev, f, part, []View{v}, &into)
			m.from, m.extent = []kernels.Ref{{Operand: kernels.Operand(i), Offset: m.offsets[0] * dt.Size()}}, int64(extents[i])
			parts = append(parts, m)
			v.Bounds = Bounds{Axis: axis, From: from, To: from + extents[i]}
			bounded = append(bounded, v)
		}
		from += extents[i]
	}
	if from != shape[axis] {
		return fmt.Errorf("got extents %v, want %d together", extents, shape[axis])
	}
	for len(parts) > 0 {
		n := merged(parts, strides[axis])
		if n > 1 {
			err = launchMerged(p, dev, dt, shape, axis, bounded[:n], parts[:n])
		} else {
			for n < min(len(parts), mostParts) && parts[n].like(parts[0]) {
				n++
			}
			err = launchMap(p, join(parts[:n]), f)
		}
		if err != nil {
			return err
		}
		parts, bounded = parts[n:], bounded[n:]
	}
	return nil
}

const (
	mostParts  = 16 // of a launch of like parts
	mostMerged = 8  // of one that looks for the part of each element
	shortPart  = 96 // elements in a row up to which a launch for each part is slower, also by vectors
)

// merged returns how many parts, from the first on, one launch is to write that finds the part of each element; 1 for none. That is better
// for parts that are short or cannot be written in vectors, unless one is transposed and written by tiles.
func merged(parts []*mapping, inner int) int {
	few := min(len(parts), mostMerged)
	short := func(m *mapping) bool { return m.layout.width == 1 || m.extent*int64(inner) <= shortPart }
	tiles := func(m *mapping) bool { return m.layout.tile > 0 }
	if !slices.ContainsFunc(parts[:few], short) || slices.ContainsFunc(parts[:few], tiles) {
		return 1
	}
	return few
}

// launchMerged appends the launch that writes some parts, given their views with bounds among all parts.
func launchMerged(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, shape []int, axis int, views []View, parts []*mapping) error {
	b := expr.NewBuilder(slices.Repeat([]kernels.Dtype{dt}, len(views))...)
	f, err := b.Func(b.Operand(0))
	if err != nil {
		return err
	}
	from, to := views[0].Bounds.From, views[len(views)-1].Bounds.To
	views = slices.Clone(views)
	for i := range views {
		views[i].Bounds.From -= from
		views[i].Bounds.To -= from
	}
	var into *View
	if to-from < shape[axis] {
		strides := rowMajor(shape)
		into = &View{Elements: kernels.Count(shape), Offset: int64(from * strides[axis]), Strides: strides}
		shape = slices.Clone(shape)
		shape[axis] = to - from
	}
	m := newMapping(dev, f, shape, views, into)
	m.layout.merged = true
	for _, o := range parts {
		m.from = append(m.from, o.from...)
	}
	return launchMap(p, m, f)
}

// like reports whether two parts differ in their operand and their place alone.
func (m *mapping) like(o *mapping) bool {
	return m.layout == o.layout && slices.Equal(m.shape, o.shape) && slices.Equal(m.strides[0], o.strides[0]) && slices.Equal(m.toStrides, o.toStrides)
}

// join returns like parts as one mapping.
func join(parts []*mapping) *mapping {
	m := parts[0]
	if len(parts) == 1 {
		return m
	}
	m.count, m.next = len(parts), parts[1].to-m.to
	for _, o := range parts[1:] {
		m.from = append(m.from, o.from...)
	}
	m.layout.joined = int(arith.Pow2(int64(m.count)))
	for range m.layout.joined - m.count { // which no block takes
		m.from = append(m.from, m.from[0])
	}
	return m
}
