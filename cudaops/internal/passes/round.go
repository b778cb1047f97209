package passes

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// round takes the rounding of operands out of products in reduced precision: a value that several products read is
// rounded once, by the product that computes it if there is one that can. Likewise it takes operands of products of planes
// apart once, if several read them.
func round(p *program.Program, t Target) error {
	r := &rounder{p: p, device: t.Device, made: map[prepared]*program.Value{}, readers: map[prepared]int{}}
	for _, in := range p.Instrs {
		r.read(in)
	}
	instrs := p.Instrs
	p.Instrs = make([]*program.Instr, 0, len(instrs))
	for _, in := range instrs {
		if product, ok := program.ProductOf(in.Op); ok {
			if operands, ok := product.Rounds(t.Device, r.given(in, product)); ok {
				in.Op = program.Kernel{Planner: gemm.RoundedProduct{Product: product}}
				for i, x := range operands {
					if x != nil {
						in.In[i] = r.rounded(in.In[i], *x)
					}
				}
			} else if operands, ok := product.Planes(t.Device); ok {
				r.apart(in, product, operands)
			}
		}
		p.Instrs = append(p.Instrs, in)
	}
	return nil
}

type rounder struct {
	p       *program.Program
	device  kernels.Device
	made    map[prepared]*program.Value
	readers map[prepared]int // products of planes
}

// preparer plans what a product reads in place of an operand: [gemm.Rounded] or [gemm.Planes].
type preparer interface {
	kernels.Planner
	Result() (kernels.Dtype, []int)
}

// prepared is matrices in a base, from an offset on, and how a product reads them.
type prepared struct {
	base   *program.Value
	offset int64
	as     preparer
}

func of(v *program.Value, as preparer) prepared { return prepared{v.Base, v.View.Offset, as} }

// prepare returns a value as a product reads it.
func (r *rounder) prepare(v *program.Value, as preparer) *program.Value {
	key := of(v, as)
	if r.made[key] == nil {
		dt, shape := as.Result()
		t := program.Type{Numeric: true, Dtype: dt, Shape: shape}
		if r.made[key] = r.byProduct(v, t, as); r.made[key] == nil {
			def := &program.Instr{Op: program.Kernel{Planner: as}, In: []*program.Value{v}, Nodes: v.Def.Nodes}
			r.p.Instrs = append(r.p.Instrs, def)
			r.made[key] = r.p.NewValue(def, v.Name, t)
		}
	}
	return r.made[key]
}

// read counts the products of planes that read an operand.
func (r *rounder) read(in *program.Instr) {
	product, ok := program.ProductOf(in.Op)
	if !ok {
		return
	}
	if operands, ok := product.Planes(r.device); ok {
		for i, x := range operands {
			r.readers[of(in.In[i], x)]++
		}
	}
}

// apart makes a product read the planes of the operands that other products read, too.
func (r *rounder) apart(in *program.Instr, product gemm.Product, operands [2]gemm.Planes) {
	var given [2]bool
	for i, x := range operands {
		if v := in.In[i]; r.readers[of(v, x)] > 1 {
			given[i] = true
			in.In = append(in.In, r.prepare(v, x))
		}
	}
	if given != [2]bool{} {
		in.Op = program.Kernel{Planner: gemm.PlanesProduct{Product: product, Given: given}}
	}
}

// given reports whether a product of few rows or columns reads its large operand from a product that writes it in BF16, too.
func (r *rounder) given(in *program.Instr, product gemm.Product) bool {
	large := 0
	if product.M < product.N {
		large = 1
	}
	k, _ := in.In[large].Base.Def.Op.(program.Kernel)
	from, ok := k.Planner.(gemm.RoundedProduct)
	if ok && !from.Halves {
		_, ok = from.Rounding(r.device)
	}
	return ok
}

// rounded returns a rounded value.
func (r *rounder) rounded(v *program.Value, as gemm.Rounded) *program.Value {
	if as.Precision == kernels.BF16 { // matrices one after the other are as one
		as.Rows, as.Batch = as.Rows*as.Batch, 1
	}
	return r.prepare(v, as)
}

// byProduct returns a value in BF16, with all of its elements in the same order, if the product that computes the value writes
// that as its second output; else nil.
func (r *rounder) byProduct(v *program.Value, t program.Type, as preparer) *program.Value {
	if rounded, ok := as.(gemm.Rounded); !ok || rounded.Precision != kernels.BF16 || t.Bytes() != v.Base.Bytes()/2 {
		return nil
	}
	def := v.Base.Def
	k, _ := def.Op.(program.Kernel)
	product, ok := k.Planner.(gemm.RoundedProduct)
	if !ok {
		return nil
	}
	if product, ok = product.Rounding(r.device); !ok {
		return nil
	}
	def.Op = program.Kernel{Planner: product}
	return r.p.NewValue(def, v.Name, t)
}
