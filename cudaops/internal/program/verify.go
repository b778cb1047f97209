package program

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// Verify returns every fault of a program: each value must be defined once and before its use,
// types must agree with the instructions, and the promise of its stage must hold. If Verify finds a
// fault in a program that the compiler made, a pass is wrong.
func Verify(p *Program) error {
	c := checker{p: p, defined: map[*Value]bool{}}
	for in := range p.All() {
		c.instr(in)
	}
	for i, v := range p.Outputs {
		if !c.defined[v] {
			c.fault("output %d, %v, is defined nowhere", i, v)
		} else if p.Stage >= Transferred && v.Space != OnHost {
			c.fault("output %d, %v, is on the %v, want the host", i, v, v.Space)
		}
	}
	for i, u := range p.Updates {
		c.update(i, u)
	}
	if p.Stage >= Placed {
		c.memory()
	}
	return errors.Join(c.faults...)
}

// checker collects the faults of a program.
type checker struct {
	p       *Program
	defined map[*Value]bool
	faults  []error
}

func (c *checker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("program, %s: %s", c.p.Stage, fmt.Sprintf(format, args...)))
}

func (c *checker) instr(in *Instr) {
	for i, v := range in.In {
		if !c.defined[v] {
			c.fault("%v uses %v before it is defined", in.Op, v)
		}
		if v.IsIota() && !Is[Alias](in.Op) && !Is[Map](in.Op) {
			c.fault("input %d of %v, %v, is an iota, want one in memory", i, in.Op, v)
		}
		if want := wants(in.Op); c.p.Stage >= Transferred && want != Anywhere && v.Space != want {
			c.fault("input %d of %v, %v, is on the %v, want the %v", i, in.Op, v, v.Space, want)
		}
	}
	for _, v := range in.Out {
		switch {
		case c.defined[v]:
			c.fault("%v is defined twice", v)
		case v.Def != in:
			c.fault("%v names another instruction than the one that defines it", v)
		}
		c.defined[v] = true
		c.view(v)
		if c.p.Stage < Transferred {
			continue
		}
		if v.Space == Anywhere || v.Space == OnDevice && !v.Numeric {
			c.fault("%v lives %v", v, v.Space)
		}
		if !Is[Alias](in.Op) && wants(in.Op) != Anywhere && v.Space != wants(in.Op) {
			c.fault("%v gives %v on the %v, want the %v", in.Op, v, v.Space, wants(in.Op))
		}
	}
	c.shape(in)
}

// wants returns the space in which an op reads and writes its values, or [Anywhere] if every space is allowed.
func wants(op Op) Space {
	switch op.(type) {
	case Kernel, Map, Concat, State, ConcatInPlace, Iota, Collective:
		return OnDevice
	case Host, Input, Constant:
		return OnHost
	}
	return Anywhere
}

// view checks that the elements of a value are within its base.
func (c *checker) view(v *Value) {
	switch b := v.Base; {
	case b == nil || b.Base != b:
		c.fault("%v has no base", v)
	case !c.defined[b]:
		c.fault("%v shares the memory of %v, which is not defined yet", v, b)
	case b.Space != v.Space:
		c.fault("%v is on the %v, its base %v on the %v", v, v.Space, b, b.Space)
	case v.IsBounded() && (v.View.Bounds.Axis >= len(v.Shape) || v.View.Bounds.From >= v.View.Bounds.To || v.View.Bounds.To > v.Shape[v.View.Bounds.Axis]):
		c.fault("%v has shape %v and bounds %+v", v, v.Shape, v.View.Bounds)
	case len(v.View.Strides) != len(v.Shape):
		c.fault("%v has shape %v and strides %v", v, v.Shape, v.View.Strides)
	case v.IsIota():
		if v.Dtype != kernels.Int64 || v.IsBounded() || v.IsRandom() || b.Elements() != 1 || !slices.Contains(c.p.Setup, b.Def) {
			c.fault("%v, %v, is no view of an iota %v, %d of %v, of Setup", v, v.Dtype, b, b.Elements(), b.Dtype)
		}
	case v.IsRandom():
		if b.Dtype != kernels.Int64 || b.Elements() != codegen.RandomState || !v.Dtype.IsFloat() || v.View.Offset < 0 || v.View.Stream.Normal && v.Dtype != kernels.Float32 {
			c.fault("%v, random numbers of %v from %d on, has for its state %v, %d of %v", v, v.Dtype, v.View.Offset, b, b.Elements(), b.Dtype)
		}
	case v.Numeric:
		first, last := v.View.Offset, v.View.Offset
		for i, d := range v.Shape {
			if b := v.View.Bounds; v.IsBounded() && b.Axis == i {
				d = b.To - b.From
			}
			if reach := int64(d-1) * v.View.Strides[i]; reach < 0 {
				first += reach
			} else {
				last += reach
			}
		}
		if first < 0 || last >= b.Elements() || v.Dtype != b.Dtype {
			c.fault("%v, %v elements %d to %d, is not within its base %v, %d of %v", v, v.Dtype, first, last, b, b.Elements(), b.Dtype)
		}
	}
}

// shape checks an instruction's number of values and their sizes.
func (c *checker) shape(in *Instr) {
	inputs, outputs := -1, 1
	if product, ok := ProductOf(in.Op); Is[Map](in.Op) {
		outputs = max(len(in.Out), 1)
	} else if ok && product.Also != gemm.Plain {
		outputs = 2
	}
	if k, _ := in.Op.(Kernel); k.Planner != nil {
		if several, ok := k.Planner.(interface{ Outputs() int }); ok {
			outputs = several.Outputs()
		}
	}
	switch op := in.Op.(type) {
	case Collective:
		inputs, outputs = max(len(in.Out), 1), max(len(in.In), 1)
	case Input, Constant, State, Iota:
		inputs = 0
	case Alias, Copy:
		inputs = 1
	case Kernel, Map, Concat:
		if in.Plan != nil {
			c.plan(in, in.Plan)
		} else if c.p.Stage >= Planned {
			c.fault("%v has no plan", op)
		}
	case nil:
		c.fault("an instruction without op")
		return
	}
	if inputs >= 0 && len(in.In) != inputs || len(in.Out) != outputs {
		c.fault("%v has %d inputs and %d outputs", in.Op, len(in.In), len(in.Out))
		return
	}
	switch op := in.Op.(type) {
	case Concat:
		c.concat(op, in)
	case ConcatInPlace:
		c.join(in)
	case Collective:
		c.collective(op, in)
	case Alias:
		from, to := in.In[0], in.Out[0]
		if from.Base != to.Base {
			c.fault("%v is no alias of %v: it is in %v", to, from, to.Base)
		}
	case Copy:
		from, to := in.In[0], in.Out[0]
		if from.Space == to.Space || from.Base == to.Base || from.Dtype != to.Dtype || !slices.Equal(from.Shape, to.Shape) {
			c.fault("the copy from %s to %s moves nothing or changes the type", from.describe(), to.describe())
		}
	}
}

// concat checks the shapes of a Concat.
func (c *checker) concat(op Concat, in *Instr) {
	out, along := in.Out[0], 0
	for _, v := range in.In {
		same := v.Dtype == out.Dtype && len(v.Shape) == len(out.Shape) && op.Axis < len(v.Shape)
		for a := range v.Shape {
			same = same && (a == op.Axis || v.Shape[a] == out.Shape[a])
		}
		if !same || v.IsBounded() {
			c.fault("%v puts %s into %s", op, v.describe(), out.describe())
			return
		}
		along += v.Shape[op.Axis]
	}
	if len(in.In) == 0 || along != out.Shape[op.Axis] {
		c.fault("%v makes %d elements along the axis of %s", op, along, out.describe())
	}
}

// collective checks the values of a Collective.
func (c *checker) collective(op Collective, in *Instr) {
	for i, v := range in.In {
		out := in.Out[i]
		if err := op.Check(v.Dtype, v.Elements(), out.Elements()); err != nil || v.Dtype != out.Dtype || !v.Numeric || out.Base != out {
			c.fault("%v makes %s of %s: %v", op, out.describe(), v.describe(), err)
		} else if c.p.Stage >= Planned && !v.IsContiguous() {
			c.fault("input %d of %v is %s, want row-major order", i, op, v.describe())
		}
	}
}

// plan checks a launch plan against the values that it reads and writes.
func (c *checker) plan(in *Instr, plan *kernels.Plan) {
	operands := in.Operands()
	if len(plan.Inputs) != len(operands) {
		c.fault("the plan of %v takes %d inputs, the instruction has %d", in.Op, len(plan.Inputs), len(operands))
		return
	}
	op, mapped := in.Op.(Map)
	views := ReadsViews(in.Op)
	for i, v := range operands {
		switch {
		case views && (!v.Numeric || v.Base.Bytes() != plan.Inputs[i] || mapped && !slices.Equal(v.Shape, op.Shape)):
			c.fault("input %d of %v is %s, its plan wants a view of %d bytes, of shape %v", i, in.Op, v.describe(), plan.Inputs[i], op.Shape)
		case !views && (!v.Numeric || v.Reach()*v.Dtype.Size() != plan.Inputs[i] || !v.IsContiguous() && !stridedOperand(in.Op, i, v)):
			c.fault("input %d of %v is %s, its plan wants %d bytes in row-major order", i, in.Op, v.describe(), plan.Inputs[i])
		}
	}
	if want := max(len(plan.Parts), 1); len(in.Out) != want {
		c.fault("%v has %d outputs, its plan %d", in.Op, len(in.Out), want)
		return
	}
	for k, v := range in.Out {
		if want := plan.OutputBytes(k); !v.Numeric || v.Bytes() > want || want-v.Bytes() >= Alignment {
			c.fault("output %d of %v is %s, its plan writes %d bytes", k, in.Op, v.describe(), want)
		}
	}
}

// stridedOperand reports whether a value is an operand of a matmul, or of attention, that reads it with the strides of its view.
func stridedOperand(op Op, i int, v *Value) bool {
	k, _ := op.(Kernel)
	if reader, ok := k.Planner.(interface {
		HasStrides(i int, axes []int64) bool
	}); ok {
		return reader.HasStrides(i, v.View.Strides)
	}
	product, ok := ProductOf(op)
	if !ok || i > 1 {
		return false
	}
	x := product.Prepares(gemm.Plain)[i]
	want, ok := v.Matrices(x.Batch, x.Rows, x.Cols)
	o := [2]gemm.Operand{product.A, product.B}[i]
	return ok && o.Row == want.Row && o.Matrix == want.Matrix
}

// memory checks the buffers: the buffer of each value on the device is alive from the value's definition through its last
// use, and no two buffers alive at the same time overlap.
func (c *checker) memory() {
	known := map[*Buffer]bool{}
	for _, b := range c.p.Buffers {
		known[b] = true
		size := c.p.Arena
		if b.Home != nil {
			size = c.p.Workspace
		}
		if b.Offset%Alignment != 0 || b.Offset < 0 || b.Offset+b.Size > size {
			c.fault("a buffer of %d bytes at %d, in memory of %d", b.Size, b.Offset, size)
		}
	}
	alive := func(b *Buffer, at int, what any) {
		if b == nil || b.Home == nil && !known[b] {
			c.fault("%v has no buffer", what)
		} else if at < b.Birth || at > b.Death {
			c.fault("instruction %d uses the buffer of %v, which is alive from %d to %d", at, what, b.Birth, b.Death)
		}
	}
	for _, in := range c.p.Setup {
		for _, v := range in.Out {
			if v.Space == OnDevice && !v.IsIota() { // written before the first run, read in every run
				alive(v.Base.Buffer, 0, v)
				alive(v.Base.Buffer, len(c.p.Instrs)-1, v)
			}
		}
	}
	for at, in := range c.p.Instrs {
		for _, v := range slices.Concat(in.In, in.Out) {
			if v.Space != OnDevice || v.IsIota() {
				continue
			}
			if alive(v.Base.Buffer, at, v); v.Base.Buffer != nil && v.Base.Buffer.Size < v.Base.Bytes() {
				c.fault("%v takes %d bytes, its buffer has %d", v.Base, v.Base.Bytes(), v.Base.Buffer.Size)
			}
		}
		if in.Plan != nil && in.Plan.Scratch > 0 {
			if alive(in.Scratch, at, in.Op); in.Scratch != nil && in.Scratch.Size < in.Plan.Scratch {
				c.fault("%v has %d bytes of scratch memory, want %d", in.Op, in.Scratch.Size, in.Plan.Scratch)
			}
		}
	}
	for _, in := range c.p.Instrs {
		if Launches(in.Op) || Is[Collective](in.Op) {
			c.overwrites(in)
		}
	}
	c.overlaps()
}

// overwrites checks that a launch or a collective overwrites an input only if it reads, for each element that it computes, only the input's
// element at the same index.
func (c *checker) overwrites(in *Instr) {
	for _, out := range in.Out {
		for _, v := range in.In {
			a, b := out.Buffer, v.Base.Buffer
			if a == nil || b == nil || a.Home != b.Home || a.Offset >= b.Offset+b.Size || b.Offset >= a.Offset+a.Size {
				continue
			}
			if !in.ReadsInOrder(v) || a.Offset != b.Offset || v.Base.Bytes() != out.Bytes() {
				c.fault("%v writes over %v, of which it reads other elements", in.Op, v.Base)
			}
		}
	}
}

// overlaps finds buffers that share memory while both are alive.
func (c *checker) overlaps() {
	sorted := slices.SortedFunc(slices.Values(c.p.Buffers), func(a, b *Buffer) int { return cmp.Compare(a.Offset, b.Offset) })
	for i, a := range sorted {
		for _, b := range sorted[i+1:] {
			if b.Offset >= a.Offset+a.Size {
				break
			}
			if b.Size > 0 && a.Home == b.Home && a.Overlaps(b) && a.Parent != b && b.Parent != a {
				c.fault("buffers share memory: %+v and %+v", *a, *b)
			}
		}
	}
}
