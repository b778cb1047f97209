package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"gorgonia.org/tensor"
)

// storeSplits makes Maps store the BF16 splits that products and convolutions read: of a float32 value that they compute, in place of its elements if nothing else reads
// these, or of a value that they read. No launch then reads the value to split it. Splits encode every number, so a product that has to scale them first finds the elements.
func storeSplits(p *program.Program, dev kernels.Device) error {
	s := &splitStorer{p: p, device: dev, readers: map[*program.Value][]operandUse{}, fixed: map[*program.Value]bool{}, at: map[*program.Instr]int{}, images: map[*program.Instr][2]gemm.ConvSplit{}, gone: map[*program.Value]bool{}}
	for i, in := range p.Instrs {
		if s.at[in] = i; program.Is[program.Alias](in.Op) {
			continue
		}
		for i, v := range in.In {
			s.readers[v.Base] = append(s.readers[v.Base], operandUse{in, i})
		}
	}
	if !slices.ContainsFunc(p.Instrs, s.readsSplits) {
		return nil
	}
	for _, v := range p.Outputs {
		s.fixed[v.Base] = true
	}
	for _, u := range p.Updates {
		s.fixed[u.Next.Base] = true
	}
	for _, in := range p.Instrs {
		for _, v := range slices.Clone(in.Out) {
			if v.Base == v && v.Numeric && v.Dtype == kernels.Float32 && v.Bytes() <= shareSplitMax {
				if err := s.store(v); err != nil {
					return in.InNode(err)
				}
			}
		}
	}
	p.Instrs = slices.DeleteFunc(p.Instrs, func(in *program.Instr) bool { return program.Is[program.Alias](in.Op) && s.gone[in.In[0].Base] })
	return nil
}

type splitStorer struct {
	p       *program.Program
	device  kernels.Device
	readers map[*program.Value][]operandUse // of a base
	fixed   map[*program.Value]bool         // bases that the user or the next run reads
	at      map[*program.Instr]int          // its place in the program
	images  map[*program.Instr][2]gemm.ConvSplit
	gone    map[*program.Value]bool // values that are stored as splits alone
}

// operandUse is operand i of an instruction.
type operandUse struct {
	in *program.Instr
	i  int
}

// readsSplits reports whether an instruction is a product or a convolution whose kernel reads splits.
func (s *splitStorer) readsSplits(in *program.Instr) bool {
	if s.imagesOf(in) != [2]gemm.ConvSplit{} {
		return true
	}
	product, ok := program.ProductOf(in.Op)
	if !ok || product.Round != kernels.FullPrecision {
		return false
	}
	f, _ := product.Wants(s.device)
	return f == gemm.BF16Split
}

// products returns the operands of products that read a whole base as one matrix of the same extents, and whether they are all that reads it.
func (s *splitStorer) products(v *program.Value) (list []operandUse, all bool) {
	var rows, cols int64
	all = !s.fixed[v]
	for _, u := range s.readers[v] {
		if product, is := program.ProductOf(u.in.Op); is && u.i < 2 && s.readsSplits(u.in) {
			x, read := product.Prepares(gemm.BF16Split)[u.i], u.in.In[u.i]
			if len(list) == 0 {
				rows, cols = x.Rows, x.Cols
			}
			if x.Batch == 1 && x.Cols%8 == 0 && x.Rows*x.Cols == v.Elements() && x.Rows == rows && x.Cols == cols && read.View.Offset == 0 && read.IsContiguous() {
				list = append(list, u)
				continue
			}
		}
		all = false
	}
	return list, all
}

// imagesOf returns the splits that the launches of a convolution make of its operands.
func (s *splitStorer) imagesOf(in *program.Instr) [2]gemm.ConvSplit {
	list, known := s.images[in]
	if c, is := program.ConvOf(in.Op); is && !known {
		list = c.Splits(s.device)
		s.images[in] = list
	}
	return list
}

// convolutions returns the operands of convolutions whose launches read the splits of a whole base of images that a Map computes, and whether they are all that reads it.
func (s *splitStorer) convolutions(v *program.Value) (list []operandUse, all bool) {
	op, mapped := v.Def.Op.(program.Map)
	if !mapped || len(op.Axes) > 0 || len(op.Shape) < 3 {
		return nil, false
	}
	images := gemm.ConvSplit{Count: int64(op.Shape[0]), Rows: int64(op.Shape[1]), Cols: kernels.Count(op.Shape[2:])}
	for _, u := range s.readers[v] {
		if u.i < 2 && s.imagesOf(u.in)[u.i] == images && u.in.In[u.i].View.Offset == 0 && u.in.In[u.i].IsContiguous() {
			list = append(list, u)
		}
	}
	return list, !s.fixed[v] && len(list) == len(s.readers[v])
}

// store makes a Map store the splits of a value for the products or the convolutions that read them, if there are any and there is such a Map.
func (s *splitStorer) store(v *program.Value) error {
	def, as := v.Def, codegen.SplitChannelsLast
	uses, all := s.convolutions(v)
	if len(uses) == 0 {
		as = codegen.SplitInOrder
		uses, all = s.products(v)
	}
	if len(uses) == 0 {
		return nil
	}
	if program.Is[program.Map](def.Op) {
		k := slices.Index(def.Out, v)
		return s.by(def, uses, as, func(b *expr.Builder, results []expr.Value) expr.Value { return results[k] }, v, k, all)
	}
	for _, u := range s.readers[v] {
		op, mapped := u.in.Op.(program.Map)
		x := u.in.In[u.i]
		if !mapped || !slices.Equal(x.Shape, op.Shape) || x.View.Offset != 0 || !x.IsContiguous() || x.Elements() != v.Elements() || slices.ContainsFunc(uses, func(p operandUse) bool { return s.at[p.in] < s.at[u.in] }) {
			continue
		}
		return s.by(u.in, uses, as, func(b *expr.Builder, _ []expr.Value) expr.Value { return b.Operand(u.i) }, v, -1, false)
	}
	return nil
}

// by makes an instruction store the splits of one of its values, in place of output k with alone, or beside the outputs.
func (s *splitStorer) by(in *program.Instr, uses []operandUse, as codegen.Split, of func(b *expr.Builder, results []expr.Value) expr.Value, v *program.Value, k int, alone bool) error {
	op := in.Op.(program.Map)
	if k >= 0 && op.PerRow != nil && op.PerRow[k] || !alone && len(in.Out) == maxOutputs {
		return nil
	}
	op.Split = append(slices.Clone(op.Split), make([]codegen.Split, len(in.Out)-len(op.Split))...)
	if alone {
		op.Split[k] = as
	} else {
		b := expr.NewBuilder(op.Func.Operands()...)
		results := b.Inline(op.Func, b.Inputs()...)
		f, err := b.Func(append(results, of(b, results))...)
		if err != nil {
			return err
		}
		op.Func, op.Split = f, append(op.Split, as)
		if op.PerRow != nil {
			op.PerRow = append(slices.Clone(op.PerRow), false)
		}
	}
	plan, err := (&program.Instr{Op: op, In: in.In}).PlanFor(s.device)
	if err != nil { // its kernel does not store splits
		return nil
	}
	in.Op = op
	split := s.p.NewValue(in, v.Name, program.Type{Numeric: true, Dtype: kernels.Uint8, Shape: tensor.Shape{int(codegen.SplitBytes(v.Elements()))}})
	if alone {
		in.Out = in.Out[:len(in.Out)-1]
		in.Out[k] = split
		s.gone[v] = true
	}
	for _, u := range uses {
		if c, is := program.ConvOf(u.in.Op); is {
			c.Split[u.i], c.Ranges[u.i] = true, codegen.Ranges(plan)
			u.in.In[u.i], u.in.Op = split, program.Kernel{Planner: c}
			continue
		}
		product, _ := program.ProductOf(u.in.Op)
		o := [2]*gemm.Operand{&product.A, &product.B}[u.i]
		o.Form, o.Ranges = gemm.BF16Split, codegen.Ranges(plan)
		u.in.In[u.i], u.in.Op = split, program.Kernel{Planner: product}
	}
	return nil
}
