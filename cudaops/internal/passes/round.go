package passes

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// round takes the rounding of operands out of products in reduced precision: a value that several products read is
// rounded once. Products that the device computes in full precision stay as they are.
func round(p *program.Program, t Target) error {
	r := &rounder{p: p, values: map[roundedValue]*program.Value{}}
	instrs := p.Instrs
	p.Instrs = make([]*program.Instr, 0, len(instrs))
	for _, in := range instrs {
		if product, ok := program.ProductOf(in.Op); ok {
			if operands, ok := product.Rounds(t.Device); ok {
				in.Op = program.Kernel{Planner: kernels.RoundedProduct{Product: product}}
				for i, x := range operands {
					if x != nil {
						in.In[i] = r.rounded(in.In[i], *x)
					}
				}
			}
		}
		p.Instrs = append(p.Instrs, in)
	}
	return nil
}

type rounder struct {
	p      *program.Program
	values map[roundedValue]*program.Value
}

// roundedValue is matrices in a base, from an offset on, and how they are rounded.
type roundedValue struct {
	base   *program.Value
	offset int64
	as     kernels.Rounded
}

// rounded returns a rounded value.
func (r *rounder) rounded(v *program.Value, as kernels.Rounded) *program.Value {
	if as.Precision == kernels.BF16 { // matrices one behind the other are as one
		as.Rows, as.Batch = as.Rows*as.Batch, 1
	}
	key := roundedValue{v.Base, v.View.Offset, as}
	if r.values[key] == nil {
		dt, shape := as.Result()
		def := &program.Instr{Op: program.Kernel{Planner: as}, In: []*program.Value{v}, Nodes: v.Def.Nodes}
		r.p.Instrs = append(r.p.Instrs, def)
		r.values[key] = r.p.NewValue(def, v.Name, program.Type{Numeric: true, Dtype: dt, Shape: shape})
	}
	return r.values[key]
}
