package passes

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// castOperands makes the conversion of matmul operands explicit, so that it happens once per value. An operand of
// reduced-precision matmuls is rounded once, in the epilogue of the matmul that computes it where possible. A float32
// operand that several matmuls read as BF16 splits is split once.
func castOperands(p *program.Program, t Target) error {
	r := &caster{p: p, device: t.Device, cast: map[prepared]*program.Value{}, readers: map[prepared]int{}}
	for _, in := range p.Instrs {
		r.read(in)
	}
	instrs := p.Instrs
	p.Instrs = make([]*program.Instr, 0, len(instrs))
	for _, in := range instrs {
		if product, ok := program.ProductOf(in.Op); ok {
			if operands, ok := product.Rounds(t.Device, r.precast(in, product)); ok {
				in.Op = program.Kernel{Planner: gemm.RoundedProduct{Product: product}}
				for i, x := range operands {
					if x != nil {
						in.In[i] = r.rounded(in.In[i], *x)
					}
				}
			} else if operands, ok := product.Planes(t.Device); ok {
				r.shareSplits(in, product, operands)
			}
		}
		p.Instrs = append(p.Instrs, in)
	}
	return nil
}

type caster struct {
	p       *program.Program
	device  kernels.Device
	cast    map[prepared]*program.Value
	readers map[prepared]int // number of matmuls that split the operand
}

// preparer plans the conversion of an operand: [gemm.Rounded] or [gemm.Planes].
type preparer interface {
	kernels.Planner
	Result() (kernels.Dtype, []int)
}

// prepared identifies a converted operand: matrices stored in a base from an offset on, and their conversion.
type prepared struct {
	base   *program.Value
	offset int64
	as     preparer
}

func preparedAs(v *program.Value, as preparer) prepared { return prepared{v.Base, v.View.Offset, as} }

// prepare returns the converted value, which it adds to the program if it is new.
func (r *caster) prepare(v *program.Value, as preparer) *program.Value {
	key := preparedAs(v, as)
	if r.cast[key] == nil {
		dt, shape := as.Result()
		t := program.Type{Numeric: true, Dtype: dt, Shape: shape}
		if r.cast[key] = r.byProduct(v, t, as); r.cast[key] == nil {
			def := &program.Instr{Op: program.Kernel{Planner: as}, In: []*program.Value{v}, Nodes: v.Def.Nodes}
			r.p.Instrs = append(r.p.Instrs, def)
			r.cast[key] = r.p.NewValue(def, v.Name, t)
		}
	}
	return r.cast[key]
}

// read counts how many matmuls split each operand.
func (r *caster) read(in *program.Instr) {
	product, ok := program.ProductOf(in.Op)
	if !ok {
		return
	}
	if operands, ok := product.Planes(r.device); ok {
		for i, x := range operands {
			r.readers[preparedAs(in.In[i], x)]++
		}
	}
}

// shareSplits makes a matmul read the shared splits of those operands that several matmuls split.
func (r *caster) shareSplits(in *program.Instr, product gemm.Product, operands [2]gemm.Planes) {
	var presplit [2]bool
	for i, x := range operands {
		if v := in.In[i]; r.readers[preparedAs(v, x)] > 1 {
			presplit[i] = true
			in.In = append(in.In, r.prepare(v, x))
		}
	}
	if presplit != [2]bool{} {
		in.Op = program.Kernel{Planner: gemm.PlanesProduct{Product: product, Given: presplit}}
	}
}

// precast reports whether the matmul that computes the larger operand also stores it in BF16.
func (r *caster) precast(in *program.Instr, product gemm.Product) bool {
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

// rounded returns a value rounded to the precision of as.
func (r *caster) rounded(v *program.Value, as gemm.Rounded) *program.Value {
	if as.Precision == kernels.BF16 { // contiguous matrices are rounded as one
		as.Rows, as.Batch = as.Rows*as.Batch, 1
	}
	return r.prepare(v, as)
}

// byProduct returns the second, BF16 output of the matmul that computes v, if that output has v's elements in the same
// order. Otherwise it returns nil.
func (r *caster) byProduct(v *program.Value, t program.Type, as preparer) *program.Value {
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
