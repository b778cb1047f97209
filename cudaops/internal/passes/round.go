package passes

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// round takes the rounding of operands out of products in reduced precision: a value that several products read is
// rounded once, by the product that computes it if there is one that can. So are the planes of what products of planes read, if there are several.
func round(p *program.Program, t Target) error {
	r := &rounder{p: p, device: t.Device, values: map[roundedValue]*program.Value{}, planes: map[planesValue]*program.Value{}, readers: map[planesValue]int{}}
	for _, in := range p.Instrs {
		r.read(in, t)
	}
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
			} else if operands, ok := product.Planes(t.Device); ok {
				r.given(in, product, operands)
			}
		}
		p.Instrs = append(p.Instrs, in)
	}
	return nil
}

type rounder struct {
	p       *program.Program
	device  kernels.Device
	values  map[roundedValue]*program.Value
	planes  map[planesValue]*program.Value
	readers map[planesValue]int // products
}

// planesValue is matrices in a base, from an offset on, that are taken apart.
type planesValue struct {
	base   *program.Value
	offset int64
	as     kernels.Planes
}

// read counts what a product reads.
func (r *rounder) read(in *program.Instr, t Target) {
	product, ok := program.ProductOf(in.Op)
	if !ok {
		return
	}
	if operands, ok := product.Planes(t.Device); ok {
		for i, x := range operands {
			r.readers[planesValue{in.In[i].Base, in.In[i].View.Offset, x}]++
		}
	}
}

// given gives a product the planes of operands that others read too.
func (r *rounder) given(in *program.Instr, product kernels.Product, operands [2]kernels.Planes) {
	var given [2]bool
	for i, x := range operands {
		v := in.In[i]
		key := planesValue{v.Base, v.View.Offset, x}
		if r.readers[key] < 2 {
			continue
		}
		given[i] = true
		if r.planes[key] == nil {
			dt, shape := x.Result()
			def := &program.Instr{Op: program.Kernel{Planner: x}, In: []*program.Value{v}, Nodes: v.Def.Nodes}
			r.p.Instrs = append(r.p.Instrs, def)
			r.planes[key] = r.p.NewValue(def, v.Name, program.Type{Numeric: true, Dtype: dt, Shape: shape})
		}
		in.In = append(in.In, r.planes[key])
	}
	if given != [2]bool{} {
		in.Op = program.Kernel{Planner: kernels.PlanesProduct{Product: product, Given: given}}
	}
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
		t := program.Type{Numeric: true, Dtype: dt, Shape: shape}
		if r.values[key] = r.byProduct(v, t); r.values[key] == nil {
			def := &program.Instr{Op: program.Kernel{Planner: as}, In: []*program.Value{v}, Nodes: v.Def.Nodes}
			r.p.Instrs = append(r.p.Instrs, def)
			r.values[key] = r.p.NewValue(def, v.Name, t)
		}
	}
	return r.values[key]
}

// byProduct returns the second output of the product that computes a value, of all of its elements in the same order, or nil if it has
// none.
func (r *rounder) byProduct(v *program.Value, t program.Type) *program.Value {
	def := v.Base.Def
	k, _ := def.Op.(program.Kernel)
	product, ok := k.Planner.(kernels.RoundedProduct)
	if !ok || t.Dtype != kernels.Uint8 || t.Bytes() != v.Base.Bytes()/2 {
		return nil
	}
	if product, ok = product.Rounding(r.device); !ok {
		return nil
	}
	def.Op = program.Kernel{Planner: product}
	return r.p.NewValue(def, v.Name, t)
}
