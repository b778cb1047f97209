package passes

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"gorgonia.org/tensor"
)

// chunks computes two products of one matrix X of more than limit bytes in chunks of its rows,
//
//	X B and X^T D
//
// such as the gradients w.r.t. the operands of a language model's last layer, where X is the gradient w.r.t. the logits, if both products read BF16 splits of X.
// castOperands then splits each chunk once for both products, and memory has the splits of one chunk at a time. X B is the chunks' products, one after the other.
// X^T D is their sum, in order. If a Map computes X, with rows of their own, and nothing else reads X, it is computed in chunks, too: see rowChunks.
func chunks(p *program.Program, dev kernels.Device, limit int64) error {
	for i := 0; i < len(p.Instrs); i++ {
		x, ok := ofLarge(p.Instrs[i], dev, limit)
		if !ok {
			continue
		}
		for j := i + 1; j < len(p.Instrs); j++ {
			first, second := p.Instrs[i], p.Instrs[j]
			if slices.ContainsFunc(second.In, func(v *program.Value) bool { return v.Base == first.Out[0] }) {
				break
			}
			if y, ok := ofLarge(second, dev, limit); !ok || second.In[0].Base != first.In[0].Base || y.A.Trans == x.A.Trans {
				continue
			}
			rows, columns := first, second
			if x.A.Trans {
				rows, columns = second, first
			}
			chunk := rowsOfChunk(dev, limit, rows)
			if chunk == 0 {
				continue
			}
			computed := newRowChunks(p, first.In[0].Base, first, second)
			list, err := inChunks(p, chunk, computed, rows, columns)
			if err != nil {
				return first.InNode(err)
			}
			before := slices.DeleteFunc(slices.Concat(p.Instrs[:i], p.Instrs[i+1:j]), computed.removed)
			p.Instrs = slices.Concat(before, list, slices.DeleteFunc(slices.Clone(p.Instrs[j+1:]), computed.removed))
			break
		}
	}
	return nil
}

// ofLarge returns the product of an instruction that reads BF16 splits and whose first operand, stored transposed or not, has more than limit bytes.
func ofLarge(in *program.Instr, dev kernels.Device, limit int64) (x gemm.Product, ok bool) {
	if x, ok = program.ProductOf(in.Op); !ok || x.Batch != 1 || x.HasEpilogue() || len(in.In) != 2 || len(in.Out) != 1 {
		return x, false
	}
	if v := in.In[0]; v.Bytes() <= limit || v.View.Offset != 0 || !v.IsContiguous() || !in.In[1].IsContiguous() {
		return x, false
	}
	f, _ := x.Wants(dev)
	return x, f == gemm.BF16Split
}

// rowsOfChunk returns the rows of a chunk of X, given the instruction of X B, or 0 if there are no chunks of at most limit bytes. The tiles of X B of a chunk are about a multiple of the SMs.
func rowsOfChunk(dev kernels.Device, limit int64, rows *program.Instr) int64 {
	const tile = 128 // rows and columns of a tile of products of splits
	x, _ := program.ProductOf(rows.Op)
	wave := tile * max(int64(dev.SMs)/kernels.CeilDiv(x.N, tile), 1)
	most := limit / (x.K * x.Dtype.Size()) / wave * wave
	if most == 0 {
		return 0
	}
	return kernels.CeilDiv(kernels.CeilDiv(x.M, kernels.CeilDiv(x.M, most)), tile) * tile // about the same number for each
}

// inChunks returns the instructions of X B, of instruction rows, and of X^T D, of instruction columns, and of X if it is computed in chunks.
func inChunks(p *program.Program, chunk int64, computed *rowChunks, rows, columns *program.Instr) (list []*program.Instr, err error) {
	x, _ := program.ProductOf(rows.Op)
	y, _ := program.ProductOf(columns.Op)
	sum, err := expr.Parse("c + x", x.Dtype, "c", "x")
	if err != nil {
		return nil, err
	}
	add := func(op program.Op, of *program.Instr, in ...*program.Value) *program.Instr {
		list = append(list, &program.Instr{Op: op, In: in, Nodes: of.Nodes})
		return list[len(list)-1]
	}
	matrix := func(rows, columns int64) program.Type {
		return program.Type{Numeric: true, Dtype: x.Dtype, Shape: tensor.Shape{int(rows), int(columns)}}
	}
	part := func(v *program.Value, from, n, width int64) *program.Value {
		view := program.Contiguous(tensor.Shape{int(n), int(width)})
		view.Offset = v.View.Offset + from*width
		return p.NewAlias(add(program.Alias{}, v.Def, v), v.Name, matrix(n, width), v.Base, view)
	}
	var parts []*program.Value // of X B
	var total *program.Value   // of X^T D so far
	for from, all := int64(0), x.M; from < all; from += chunk {
		n := min(chunk, all-from)
		var of *program.Value
		if computed != nil {
			of = computed.chunk(&list, from, n)
		} else {
			of = part(rows.In[0], from, n, x.K)
		}
		x.M, y.K = n, n
		parts = append(parts, p.NewValue(add(program.Kernel{Planner: x}, rows, of, rows.In[1]), rows.Out[0].Name, matrix(n, x.N)))
		in, added := []*program.Value{of, part(columns.In[1], from, n, y.N)}, y
		if total != nil {
			var ok bool
			if added, ok = y.With(sum, codegen.Dense([]int{1, int(y.M), int(y.N)})); !ok {
				return nil, fmt.Errorf("got a product that adds no matrix to its result: %v", y)
			}
			in = append(in, total)
		}
		total = p.NewValue(add(program.Kernel{Planner: added}, columns, in...), columns.Out[0].Name, columns.Out[0].Type)
	}
	if computed != nil {
		list = append(list, computed.joins()...)
	}
	for _, of := range []struct{ by, was *program.Instr }{{total.Def, columns}, {add(program.ConcatInPlace{}, rows, parts...), rows}} {
		of.by.Out, of.was.Out[0].Def = of.was.Out, of.by
	}
	return list, nil
}

// rowChunks computes a Map with an output X in chunks of its first axis, where the products of the chunks are.
type rowChunks struct {
	p     *program.Program
	def   *program.Instr
	x     int                // the output X
	parts [][]*program.Value // of the other outputs, which have an element for each row
	later []*program.Instr   // between the Map and the products, that depend on other outputs
}

// newRowChunks returns nil if the Map does not compute rows of X one by one, or if others than the two products read X.
func newRowChunks(p *program.Program, x *program.Value, by ...*program.Instr) *rowChunks {
	def := x.Def
	op, mapped := def.Op.(program.Map)
	if !mapped || len(op.Axes) == 0 || op.Axes[0] == 0 || op.Shape[0]%(program.Alignment/int(kernels.Float32.Size())) != 0 || slices.ContainsFunc(def.In, func(v *program.Value) bool { return v.IsBounded() || v.IsRandom() }) {
		return nil
	}
	c := &rowChunks{p: p, def: def, x: slices.Index(def.Out, x), parts: make([][]*program.Value, len(def.Out))}
	for k, v := range def.Out {
		if v.Base != v || v.Dtype != kernels.Float32 || op.PerRow[k] == (k == c.x) || op.PerRow[k] && v.Elements() != int64(op.Shape[0]) {
			return nil
		}
	}
	if slices.Contains(p.Outputs, x) || slices.ContainsFunc(p.Updates, func(u program.Update) bool { return u.Next == x }) {
		return nil
	}
	moved, products := map[*program.Instr]bool{def: true}, 0
	for _, in := range p.Instrs[slices.Index(p.Instrs, def)+1:] {
		if slices.Contains(by, in) {
			products++
		}
		depends := false
		for _, v := range in.In {
			switch {
			case program.Is[program.Alias](in.Op) && v.Base == x:
			case v.Base == x && !slices.Contains(by, in):
				return nil
			case v.Base != x:
				depends = depends || moved[v.Def] || moved[v.Base.Def]
			}
		}
		if depends && slices.Contains(by, in) {
			return nil
		}
		if depends && products < len(by) {
			moved[in], c.later = true, append(c.later, in)
		}
	}
	return c
}

// chunk appends the instructions of some rows, and returns these of X.
func (c *rowChunks) chunk(list *[]*program.Instr, from, n int64) *program.Value {
	op, _ := c.def.Op.(program.Map)
	op.Shape = slices.Clone(op.Shape)
	op.Shape[0] = int(n)
	in := &program.Instr{Op: op, Nodes: c.def.Nodes}
	for _, v := range c.def.In {
		t, view := v.Type, v.View
		t.Shape = op.Shape
		view.Offset += from * view.Strides[0]
		alias := &program.Instr{Op: program.Alias{}, In: []*program.Value{v}, Nodes: v.Def.Nodes}
		*list, in.In = append(*list, alias), append(in.In, c.p.NewAlias(alias, v.Name, t, v.Base, view))
	}
	*list = append(*list, in)
	for k, v := range c.def.Out {
		t := program.Type{Numeric: true, Dtype: v.Dtype, Shape: op.Shape}
		if k != c.x {
			t.Shape = tensor.Shape{int(n)}
		}
		c.parts[k] = append(c.parts[k], c.p.NewValue(in, v.Name, t))
	}
	return in.Out[c.x]
}

// joins returns the instructions that join the other outputs, then those that depend on them.
func (c *rowChunks) joins() (list []*program.Instr) {
	for k, v := range c.def.Out {
		if k != c.x {
			v.Def = &program.Instr{Op: program.ConcatInPlace{}, In: c.parts[k], Out: []*program.Value{v}, Nodes: c.def.Nodes}
			list = append(list, v.Def)
		}
	}
	return append(list, c.later...)
}

// removed reports whether an instruction is elsewhere now, or reads what is no value any more.
func (c *rowChunks) removed(in *program.Instr) bool {
	return c != nil && (in == c.def || slices.Contains(c.later, in) || program.Is[program.Alias](in.Op) && in.In[0].Base == c.def.Out[c.x])
}
