package passes

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"gorgonia.org/tensor"
)

// round is chunks, storeSplits, then castOperands.
func round(p *program.Program, t Target) error {
	if err := chunks(p, t.Device, shareSplitMax); err != nil {
		return err
	}
	if err := storeSplits(p, t.Device); err != nil {
		return err
	}
	return castOperands(p, t)
}

// castOperands makes the conversion of product operands explicit, so that it happens once per value. An operand of reduced-precision products is
// rounded once, in the epilogue of the product that computes it where possible. A float32 operand that several products read as BF16 splits
// and whose splits no Map stores is split once, unless it has more than shareSplitMax bytes; and so is one of convolutions. Two products may read a larger one in chunks: see chunks.
func castOperands(p *program.Program, t Target) error {
	r := &caster{p: p, device: t.Device, cast: map[prepared]*program.Value{}, readers: map[prepared]int{}, splits: map[*program.Instr][2]gemm.ConvSplit{}}
	for _, in := range p.Instrs {
		if v, ok := program.ConvOf(in.Op); ok {
			r.splits[in] = v.Splits(t.Device)
			for i, x := range r.splits[in] {
				r.readers[of(in.In[i], x)]++
			}
		}
		if product, ok := program.ProductOf(in.Op); ok {
			if f, _ := product.Wants(t.Device); f == gemm.BF16Split {
				for i, x := range product.Prepares(f) {
					r.readers[of(in.In[i], x)]++
				}
			}
		}
	}
	if err := each(p, func(in *program.Instr) (keep bool, err error) {
		if product, ok := program.ProductOf(in.Op); ok {
			r.convert(in, product)
		} else if v, ok := program.ConvOf(in.Op); ok {
			r.filters(in, v)
			r.share(in, v)
		}
		return true, nil
	}); err != nil {
		return err
	}
	if len(r.early) > 0 {
		p.Instrs = early(p.Instrs, r.early)
	}
	return nil
}

// early returns instructions with others, each right after the one that computes its input, or at first.
func early(instrs, others []*program.Instr) []*program.Instr {
	after := map[*program.Instr][]*program.Instr{}
	for _, in := range instrs {
		after[in] = nil
	}
	for _, in := range others {
		def := in.In[0].Base.Def
		if _, computed := after[def]; !computed {
			def = nil
		}
		after[def] = append(after[def], in)
	}
	list := after[nil]
	for _, in := range instrs {
		list = append(append(list, in), after[in]...)
	}
	return list
}

// shareSplitMax is in bytes of float32. A product of splits that it shares has scratch memory of their size, too, for splits again with scaling: beyond
// this size memory counts more than the time to split twice.
const shareSplitMax = 1 << 30

type caster struct {
	p       *program.Program
	device  kernels.Device
	cast    map[prepared]*program.Value
	readers map[prepared]int                     // products and convolutions that read splits
	splits  map[*program.Instr][2]gemm.ConvSplit // of convolutions
	early   []*program.Instr                     // that prepare filters
}

// prepared is matrices or images in a base, from an offset on, and how a product or a convolution reads them.
type prepared struct {
	base   *program.Value
	offset int64
	as     kernels.Planner
}

func of(v *program.Value, as kernels.Planner) prepared { return prepared{v.Base, v.View.Offset, as} }

// filters makes a convolution read filters that another instruction prepares. That instruction depends on the filters alone, so that the filters of a parameter are prepared beside the launches
// before the convolution.
func (r *caster) filters(in *program.Instr, v gemm.Conv) {
	as, ok := v.Prepares(r.device)
	if !ok {
		return
	}
	prepared, fresh := r.bytes(in.In[1], as)
	if fresh {
		r.early = append(r.early, prepared.Def)
	}
	in.In[1], v.Prepared = prepared, true
	in.Op = program.Kernel{Planner: v}
}

// bytes returns a value as the instruction prepares it that convolutions share; fresh tells that the instruction is new and in no list yet.
func (r *caster) bytes(v *program.Value, as interface {
	kernels.Planner
	Bytes() int64
}) (to *program.Value, fresh bool) {
	key := of(v, as)
	if fresh = r.cast[key] == nil; fresh {
		r.cast[key] = r.value(v, program.Type{Numeric: true, Dtype: kernels.Uint8, Shape: tensor.Shape{int(as.Bytes())}}, as)
	}
	return r.cast[key], fresh
}

// value returns a value as a new instruction prepares it.
func (r *caster) value(v *program.Value, t program.Type, as kernels.Planner) *program.Value {
	return r.p.NewValue(&program.Instr{Op: program.Kernel{Planner: as}, In: []*program.Value{v}, Nodes: v.Def.Nodes}, v.Name, t)
}

// convert makes a product read its operands in the form that its kernel wants: rounded ones, and the splits that other products read, too.
func (r *caster) convert(in *program.Instr, product gemm.Product) {
	if product.A.Form != gemm.Plain && product.B.Form != gemm.Plain { // see mixed
		return
	}
	operands, large := [2]*gemm.Operand{&product.A, &product.B}, 0
	if product.M < product.N {
		large = 1
	}
	given := product
	if f := gemm.Form(product.Round); r.writes(in.In[large], f) {
		[2]*gemm.Operand{&given.A, &given.B}[large].Form = f
	}
	f, _ := given.Wants(r.device)
	if f == gemm.Plain {
		return
	}
	changed := false
	for i, x := range product.Prepares(f) {
		v := in.In[i]
		switch {
		case operands[i].Ranges > 0: // see storeSplits
			continue
		case f != gemm.BF16Split:
			if !x.IsNoOp(r.device) {
				in.In[i] = r.prepare(v, x)
			}
		case r.readers[of(v, x)] > 1 && v.Bytes() <= shareSplitMax:
			in.In = append(in.In, r.prepare(v, x))
		default:
			continue
		}
		operands[i].Form, changed = f, true
	}
	if changed {
		in.Op = program.Kernel{Planner: product}
	}
}

// share makes a convolution read the splits that other convolutions read, too.
func (r *caster) share(in *program.Instr, v gemm.Conv) {
	for i, x := range r.splits[in] {
		from := in.In[i]
		if x == (gemm.ConvSplit{}) || v.Ranges[i] > 0 || r.readers[of(from, x)] < 2 || from.Bytes() > shareSplitMax {
			continue
		}
		split, fresh := r.bytes(from, x)
		if fresh {
			r.p.Instrs = append(r.p.Instrs, split.Def)
		}
		in.In, v.Split[i] = append(in.In, split), true
	}
	if v.Split != [2]bool{} {
		in.Op = program.Kernel{Planner: v}
	}
}

// prepare returns a value as a product reads it.
func (r *caster) prepare(v *program.Value, as gemm.Prepare) *program.Value {
	if as.Form == gemm.BF16 || as.Form == gemm.F16 { // contiguous matrices are one
		as.Rows, as.Batch = as.Rows*as.Batch, 1
	}
	key := of(v, as)
	if r.cast[key] == nil {
		dt, shape := as.Result()
		t := program.Type{Numeric: true, Dtype: dt, Shape: shape}
		if r.cast[key] = r.byProduct(v, t, as); r.cast[key] == nil {
			r.cast[key] = r.value(v, t, as)
			r.p.Instrs = append(r.p.Instrs, r.cast[key].Def)
		}
	}
	return r.cast[key]
}

// writes reports whether the product that computes a value writes it in a form of 16 bits, too, or can.
func (r *caster) writes(v *program.Value, f gemm.Form) bool {
	from, ok := program.ProductOf(v.Base.Def.Op)
	if ok && from.Also != f {
		_, ok = from.AlsoIn(f, r.device)
	}
	return ok
}

// byProduct returns the copy in 16 bits of a value that the matmul computing the value can write as its second output. The copy has all
// elements of the value in the same order. byProduct returns nil if the matmul cannot write the copy.
func (r *caster) byProduct(v *program.Value, t program.Type, as gemm.Prepare) *program.Value {
	def := v.Base.Def
	product, ok := program.ProductOf(def.Op)
	if t.Bytes() != v.Base.Bytes()/2 || !ok {
		return nil
	}
	if product.Also == as.Form { // for a reader of another shape
		return def.Out[1]
	}
	if product, ok = product.AlsoIn(as.Form, r.device); !ok {
		return nil
	}
	def.Op = program.Kernel{Planner: product}
	return r.p.NewValue(def, v.Name, t)
}
