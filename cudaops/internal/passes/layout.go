package passes

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// layout copies values that launches cannot read in place: operands of kernels that are not in row-major order or not
// aligned for vector loads, operands of collectives that are not in row-major order, and operands with bounds of Maps with reductions. Other Maps read every view, and matmuls read matrices whose rows have strides where
// their kernel does, as attention does of q, k and v. layout also copies inputs of a
// ConcatInPlace that cannot be computed at their offset in it.
func layout(p *program.Program, t Target) error {
	packGradients(p, t.Device)
	l := &layouter{p: p, copies: map[*program.Value]*program.Value{}, placed: map[*program.Value]bool{}}
	for _, u := range p.Updates {
		l.placed[u.Next.Base] = true
	}
	return each(p, func(in *program.Instr) (keep bool, err error) {
		for i, v := range in.In {
			if v.Numeric && !readable(in.Op, v) && !readsStrides(in, i, t.Device) && !readsHeads(in, i) {
				if in.In[i], err = l.dense(v); err != nil {
					return false, err
				}
			}
		}
		if isConcatInPlace(in) {
			err = l.join(in)
		}
		return true, err
	})
}

// readable reports whether the launches of an op can read a value in place.
func readable(op program.Op, v *program.Value) bool {
	switch op := op.(type) {
	case program.Kernel:
		alignment := int64(program.Alignment)
		if _, product := program.ProductOf(op); product && v.Dtype.Size() == 2 {
			alignment = 16 // TMA's, and that of vector loads: parts of a copy of parameters
		}
		return v.IsContiguous() && v.View.Offset*v.Dtype.Size()%alignment == 0
	case program.Map:
		return !v.IsBounded() || len(op.Axes) == 0
	case program.Collective:
		return v.IsContiguous()
	}
	return true
}

// readsStrides makes a matmul read an operand with the strides of its view, and reports whether its kernel on a device reads strides.
func readsStrides(in *program.Instr, i int, dev kernels.Device) bool {
	product, ok := program.ProductOf(in.Op)
	v := in.In[i]
	if !ok || i > 1 || v.View.Offset*v.Dtype.Size()%program.Alignment != 0 || !product.ReadsStrides(dev) {
		return false
	}
	x := product.Prepares(gemm.Plain)[i]
	o, ok := v.Matrices(x.Batch, x.Rows, x.Cols)
	if ok {
		own := [2]*gemm.Operand{&product.A, &product.B}[i]
		own.Row, own.Matrix = o.Row, o.Matrix
		in.Op = program.Kernel{Planner: product}
	}
	return ok
}

type layouter struct {
	p      *program.Program
	copies map[*program.Value]*program.Value
	placed map[*program.Value]bool // computed within a ConcatInPlace, or over a state
}

// join copies those inputs of a ConcatInPlace that cannot be computed at their offset in it.
func (l *layouter) join(in *program.Instr) error {
	for i, v := range in.In {
		base := v.Base
		if v.IsContiguous() && v.Elements() == base.Elements() && l.computed(base) {
			in.In[i] = base // the shape may differ
		} else {
			var err error
			if in.In[i], err = l.copy(v); err != nil {
				return err
			}
		}
		l.placed[in.In[i]] = true
	}
	return nil
}

// computed reports whether a run computes a value into a buffer that no other value determines.
func (l *layouter) computed(v *program.Value) bool {
	switch v.Def.Op.(type) {
	case program.Constant, program.State, program.ConcatInPlace:
		return false
	}
	return !l.placed[v]
}

// dense returns a copy of v in row-major order.
func (l *layouter) dense(v *program.Value) (*program.Value, error) {
	if c := l.copies[v]; c != nil {
		return c, nil
	}
	c, err := l.copy(v)
	l.copies[v] = c
	return c, err
}

// copy returns a new copy of v in row-major order.
func (l *layouter) copy(v *program.Value) (*program.Value, error) {
	def, err := l.p.Copied(v)
	if err != nil {
		return nil, err
	}
	l.p.Instrs = append(l.p.Instrs, def)
	return def.Out[0], nil
}
