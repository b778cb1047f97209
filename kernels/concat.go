package kernels

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Concat plans out = operands, one behind the other along an axis. Operand i is a view of a
// part of the shape, of extents[i] elements along the axis; together they have the
// shape's. There is a launch for each, a [Map] that writes its part of out: each
// element is read once and written once.
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
	for i, v := range operands {
		part := slices.Clone(shape)
		part[axis] = extents[i]
		if err := checkMap(f, part, []View{v}); err != nil {
			return fmt.Errorf("operand %d: %w", i, err)
		}
		p.Inputs = append(p.Inputs, v.Elements*dt.Size())
		into := View{Elements: Count(shape), Offset: int64(from * strides[axis]), Strides: strides}
		from += extents[i]
		if Count(part) == 0 {
			continue
		}
		m := newMapping(dev, f, part, []View{v}, &into)
		m.operand = Operand(i)
		if err := p.launchMap(m, f); err != nil {
			return err
		}
	}
	if from != shape[axis] {
		return fmt.Errorf("got extents %v, want %d together", extents, shape[axis])
	}
	return nil
}
