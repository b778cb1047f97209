package kernels

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Concat plans out = operands, one after the other along an axis. Operand i is a view of a
// part of the shape, of extents[i] elements along the axis; together they have the
// shape's. A [Map] copies each to its part of out; neighbours of one layout
// share a launch. Each element is read once and written once.
func Concat(dev Device, dt Dtype, shape []int, axis int, extents []int, operands ...View) (*Plan, error) {
	p := &Plan{Op: fmt.Sprintf("concat_%v(%v along %d)", dt, shape, axis), Out: Count(shape) * dt.Size()}
	if err := p.concat(dev, dt, shape, axis, extents, operands); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	return p, nil
}

func (p *Plan) concat(dev Device, dt Dtype, shape []int, axis int, extents []int, operands []View) error {
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
	for i, v := range operands {
		part := slices.Clone(shape)
		part[axis] = extents[i]
		if err := checkMap(f, part, []View{v}); err != nil {
			return fmt.Errorf("operand %d: %w", i, err)
		}
		p.Inputs = append(p.Inputs, v.Elements*dt.Size())
		if Count(part) > 0 {
			into := View{Elements: Count(shape), Offset: int64(from * strides[axis]), Strides: strides}
			m := newMapping(dev, f, part, []View{v}, &into)
			m.from = []Ref{{Operand(i), m.offsets[0] * dt.Size()}}
			parts = append(parts, m)
		}
		from += extents[i]
	}
	if from != shape[axis] {
		return fmt.Errorf("got extents %v, want %d together", extents, shape[axis])
	}
	for len(parts) > 0 {
		n := 1
		for n < min(len(parts), mostParts) && parts[n].like(parts[0]) {
			n++
		}
		if err := p.launchMap(join(parts[:n]), f); err != nil {
			return err
		}
		parts = parts[n:]
	}
	return nil
}

// mostParts is the most parts of one launch.
const mostParts = 16

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
	m.layout.joined, m.next = len(parts), parts[1].to-m.to
	for _, o := range parts[1:] {
		m.from = append(m.from, o.from...)
	}
	return m
}
