// Package program is the one representation of a graph between Gorgonia and the
// backend that runs it.
//
//	graph --lower--> Program --passes--> Program, planned and placed --> backend
//
// A [Program] is a list of instructions in single-assignment form. Lowering makes it describe the computation; passes add
// launch plans, transfers between host and device, and addresses in device memory. [Program.Print] shows it at any
// stage and [Verify] checks it. [Program.Eval] interprets it, so that a pass can be tested without a device: Eval
// must compute the same bits before and after the pass.
package program

import (
	"fmt"
	"iter"
	"slices"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Program is a graph lowered to instructions, at some stage of compilation. It is plain data:
// the backend holds the values that a run changes.
type Program struct {
	Stage   Stage
	Setup   []*Instr  // executed once, before the first run: constants, states and the iota
	Instrs  []*Instr  // executed in this order in every run
	Outputs []*Value  // the values copied to the host in a run
	Updates []Update  // one for each State
	Buffers []*Buffer // device memory; set by the pass that reaches stage Placed
	Arena   int64     // bytes of device memory that contain all buffers without a Home
	// Workspace is the bytes of the Home of the other Buffers, memory that other programs use between runs.
	Workspace int64
	Peak      int64 // maximum bytes of buffers alive at once: a lower bound of Arena for this order

	values int // number of values made so far
}

// Update gives the value of a State after a run; Next is State itself if no run changes it. In a placed program both
// share one buffer.
type Update struct{ State, Next *Value }

// Stage records which passes have run.
type Stage uint8

// The stages in order; each keeps the properties of the earlier ones.
const (
	Lowered     Stage = iota // every instruction follows those that compute its inputs
	Planned                  // every Kernel and Map has its launch plan
	Transferred              // every value is on the host or on the device, and copies are instructions
	Placed                   // every value on the device has a buffer in the arena
)

// String returns the stage's name.
func (s Stage) String() string {
	return [...]string{"lowered", "planned", "transferred", "placed"}[s]
}

// Space is the memory that holds a value.
type Space uint8

// The spaces. Before stage [Transferred] every value is Anywhere.
const (
	Anywhere Space = iota
	OnHost
	OnDevice
)

// String returns the space's name.
func (s Space) String() string { return [...]string{"anywhere", "host", "device"}[s] }

// Type is the element type and the shape of a value. Numeric is false for values of unknown shape or of a type
// without kernels; these stay on the host.
type Type struct {
	Numeric bool
	Dtype   kernels.Dtype
	Shape   tensor.Shape // no axes for a scalar
}

// Elements returns the number of elements, 1 for a scalar.
func (t Type) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// Bytes returns the size of the elements in bytes.
func (t Type) Bytes() int64 { return t.Elements() * t.Dtype.Size() }

// View maps the indices of a value to elements of its base: index i is stored at Offset + sum of i[k] Strides[k], in
// elements. With Bounds, elements outside of them are zeros, and indices along that axis count from Bounds.From.
type View struct {
	Offset  int64
	Strides []int64
	Bounds  codegen.Bounds // a zero To means unbounded
	// Stream, if its Number is not 0, makes the elements random numbers generated from the base, the generator's state, as
	// in a [codegen.View].
	Stream codegen.Stream
	Matmul bool // the rows of a matrix that a Map multiplies by a vector, as in a [codegen.View]
}

// Contiguous returns the view of a whole base in row-major order.
//
//go:noinline
func Contiguous(shape tensor.Shape) View {
	strides := make([]int64, len(shape))
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = n
		n *= int64(shape[i])
	}
	return View{Strides: strides}
}

// Value is one result of an instruction.
type Value struct {
	ID   int    // its number in the program, for prints
	Name string // of the graph's node with this value
	Type
	Def   *Instr
	Space Space
	// Base is the value whose memory this one shares, as View describes. It is the value itself if it owns its memory.
	Base   *Value
	View   View
	Buffer *Buffer // set in a placed program for bases on the device
}

// IsBounded reports whether the view has elements outside of its memory, which are zeros.
func (v *Value) IsBounded() bool { return v.View.Bounds.To != 0 }

// IsRandom reports whether the elements are random numbers, which are generated instead of stored.
func (v *Value) IsRandom() bool { return v.View.Stream.Number != 0 }

// IsIota reports whether the elements are addresses, which no memory holds.
func (v *Value) IsIota() bool { return Is[Iota](v.Base.Def.Op) }

// IsContiguous reports whether the elements are stored contiguously in row-major order.
func (v *Value) IsContiguous() bool {
	if v.IsBounded() {
		return false
	}
	whole := Contiguous(v.Shape)
	for i, d := range v.Shape {
		if d > 1 && v.View.Strides[i] != whole.Strides[i] {
			return false
		}
	}
	return true
}

// Reach returns the number of elements of the base from the first to the last element of a view without bounds.
func (v *Value) Reach() int64 {
	n := int64(1)
	for a, d := range v.Shape {
		n += int64(d-1) * v.View.Strides[a]
	}
	return n
}

// Instr computes values from values.
type Instr struct {
	Op      Op
	In, Out []*Value
	Nodes   []*gorgonia.Node // the nodes that it computes or, for a Copy, whose value it copies
	Plan    *kernels.Plan    // the launches, set at stage Planned; nil for instructions without launches
	Scratch *Buffer          // scratch memory of the launches, set at stage Placed; may be nil
}

// Operands returns the inputs of the instruction's plan: those that are in memory.
func (in *Instr) Operands() []*Value {
	return slices.DeleteFunc(slices.Clone(in.In), (*Value).IsIota)
}

// PlanFor returns the launches of an instruction on a device.
func (in *Instr) PlanFor(dev kernels.Device) (p *kernels.Plan, err error) {
	if op, kernel := in.Op.(Kernel); kernel {
		return op.plan(dev)
	}
	err = guard.Own("its plan", func() (err error) { p, err = in.generated(dev); return err })
	return p, err
}

// generated returns the launch of a generated kernel.
func (in *Instr) generated(dev kernels.Device) (*kernels.Plan, error) {
	views := Collect(in.In, (*Value).kernelView)
	switch op := in.Op.(type) {
	case Map:
		if len(op.Axes) == 0 {
			return codegen.MapSplit(dev, op.Func, op.Shape, op.Split, views...)
		}
		return codegen.RowsSplits(dev, op.Func, op.Shape, op.Axes, op.PerRow, op.Split, views...)
	case Concat:
		out, extents := in.Out[0], Collect(in.In, func(v *Value) int { return v.Shape[op.Axis] })
		return codegen.Concat(dev, out.Dtype, out.Shape, op.Axis, extents, views...)
	}
	return nil, fmt.Errorf("%v has no launches", in.Op)
}

// Traffic returns the least traffic of the launches of a plan, in bytes: every element of an operand read once, every result written once. An operand that is a view, such as
// a parameter among all of a Store, counts with the elements that the view has, and an operand of which a plan reads a part, such as the table of a gather, with that part.
func (in *Instr) Traffic(plan *kernels.Plan) int64 {
	accessed := plan.Accessed
	if accessed == nil {
		accessed = append(slices.Clone(plan.Inputs), plan.Out)
	}
	n := accessed[len(plan.Inputs)]
	for i, v := range in.Operands() {
		n += min(accessed[i], v.Bytes())
	}
	return n
}

// Kernels returns the entry points of the launches, in order.
func (in *Instr) Kernels() []string {
	if in.Plan == nil {
		return nil
	}
	return Collect(in.Plan.Launches, func(l kernels.Launch) string { return l.Kernel.Entry })
}

// InNode returns err with the name of the graph's node that the instruction computes. It returns a nil error, or one that
// already names a node, unchanged.
func (in *Instr) InNode(err error) error {
	if _, named := err.(*nodeError); named || err == nil || len(in.Nodes) == 0 {
		return err
	}
	return &nodeError{internal.Name(in.Nodes[0]), err}
}

// nodeError is an error in a node of the graph.
type nodeError struct {
	node string
	err  error
}

func (e *nodeError) Error() string { return fmt.Sprintf("node %s: %v", e.node, e.err) }

func (e *nodeError) Unwrap() error { return e.err }

// kernelView returns the value as an operand of a Map: a view of its base's buffer.
func (v *Value) kernelView() codegen.View {
	strides := Collect(v.View.Strides, func(s int64) int { return int(s) })
	if v.IsIota() {
		return codegen.View{Offset: v.View.Offset, Strides: strides, Iota: true}
	}
	return codegen.View{Elements: v.Base.Elements(), Offset: v.View.Offset, Strides: strides, Bounds: v.View.Bounds, Stream: v.View.Stream, Constant: v.IsConstant(), Matmul: v.View.Matmul}
}

// IsConstant reports whether the value is in a state that no instruction changes.
func (v *Value) IsConstant() bool {
	state, is := v.Base.Def.Op.(State)
	return is && state.Constant
}

// Memory is device memory outside of any program's arena, which several programs may use: for example a cudaops.Store.
type Memory interface {
	// Read and Write copy bytes at an offset and wait. Work that uses the memory must have completed.
	Read(dst []byte, offset int64) error
	Write(offset int64, src []byte) error
	Free() error
}

// Buffer is a range of the arena or of its Home, alive from instruction Birth through instruction Death of [Program.Instrs].
type Buffer struct {
	Offset, Size int64 // bytes
	Birth, Death int
	Home         Memory  // nil: the arena. Program.Buffers has no buffers of parameters in a Home, and Peak does not count them
	Parent       *Buffer // the ConcatInPlace's buffer that contains this one, or nil
	// Alternate is the second half of a double buffer, or nil. Runs alternate between the two, so that the next input can
	// be copied while a run computes. It is listed in Program.Buffers; its own Alternate is nil.
	Alternate *Buffer
}

// SwapAlternates exchanges the offsets of the two halves of every double buffer.
func (p *Program) SwapAlternates() {
	for _, b := range p.Buffers {
		if b.Alternate != nil {
			b.Offset, b.Alternate.Offset = b.Alternate.Offset, b.Offset
		}
	}
}

// Alignment is the alignment of every buffer in the arena, in bytes. Vector loads of the kernels need it; CUDA's allocator
// guarantees it.
const Alignment = 256

// Padded returns the buffer's size rounded up to Alignment.
func (b *Buffer) Padded() int64 { return (b.Size + Alignment - 1) &^ (Alignment - 1) }

// Overlaps reports whether a and b are alive at the same time.
func (b *Buffer) Overlaps(a *Buffer) bool { return b.Birth <= a.Death && a.Birth <= b.Death }

// Layout returns the offset of each part of a ConcatInPlace, given the parts' numbers of elements, and the number of
// elements of the whole. Offsets are in elements and aligned to Alignment, of 16-bit elements to half of it: they have the offsets of the
// float32 elements that they are made of.
func Layout(d kernels.Dtype, elements ...int64) (offsets []int64, total int64) {
	unit := Alignment / max(d.Size(), kernels.Float32.Size())
	for _, n := range elements {
		offsets = append(offsets, total)
		total += (n + unit - 1) / unit * unit
	}
	return offsets, total
}

// Offsets returns the offsets of the inputs of a ConcatInPlace, in elements.
func (in *Instr) Offsets() []int64 {
	offsets, _ := Layout(in.Out[0].Dtype, Collect(in.In, func(v *Value) int64 { return v.Elements() })...)
	return offsets
}

// NodesOf returns the nodes that instructions compute, without repetition.
func NodesOf(instrs ...*Instr) (list []*gorgonia.Node) {
	known := map[*gorgonia.Node]bool{}
	for _, in := range instrs {
		for _, n := range in.Nodes {
			if !known[n] {
				known[n] = true
				list = append(list, n)
			}
		}
	}
	return list
}

// NewValue adds an output to instruction def and returns it; it owns its memory.
//
//go:noinline
func (p *Program) NewValue(def *Instr, name string, t Type) *Value {
	v := &Value{ID: p.values, Name: name, Type: t, Def: def, View: Contiguous(t.Shape)}
	v.Base = v
	p.values++
	def.Out = append(def.Out, v)
	return v
}

// NewAlias adds an output to instruction def and returns it; it shares the memory of base.
func (p *Program) NewAlias(def *Instr, name string, t Type, base *Value, view View) *Value {
	v := p.NewValue(def, name, t)
	v.Base, v.View, v.Space = base.Base, view, base.Space
	return v
}

// EmitAlias adds a view of a value's base to the end of Instrs and returns it.
func (p *Program) EmitAlias(nodes []*gorgonia.Node, name string, t Type, of *Value, view View) *Value {
	def := &Instr{Op: Alias{}, In: []*Value{of}, Nodes: nodes}
	p.Instrs = append(p.Instrs, def)
	return p.NewAlias(def, name, t, of, view)
}

// Copied returns an instruction, not in Instrs yet, that copies a value to a new one in row-major order.
func (p *Program) Copied(v *Value) (*Instr, error) {
	f, err := expr.Identity(v.Dtype)
	if err != nil {
		return nil, err
	}
	return p.Mapped(f, v), nil
}

// Mapped returns an instruction, not in Instrs yet, that computes a function of a value's elements.
func (p *Program) Mapped(f expr.Func, v *Value) *Instr {
	def := &Instr{Op: Map{Func: f, Shape: v.Shape}, In: []*Value{v}, Nodes: v.Def.Nodes}
	p.NewValue(def, v.Name, v.Type)
	return def
}

// All iterates over the instructions of Setup, then of Instrs.
func (p *Program) All() iter.Seq[*Instr] {
	return func(yield func(*Instr) bool) {
		for _, list := range [][]*Instr{p.Setup, p.Instrs} {
			for _, in := range list {
				if !yield(in) {
					return
				}
			}
		}
	}
}

// Plans returns the launch plans of a run, in order.
func (p *Program) Plans() (list []*kernels.Plan) {
	for _, in := range p.Instrs {
		if in.Plan != nil {
			list = append(list, in.Plan)
		}
	}
	return list
}

// Inputs returns the values that the user sets before a run, in order.
func (p *Program) Inputs() []*Value {
	var inputs []*Value
	for _, in := range p.Instrs {
		if Is[Input](in.Op) {
			inputs = append(inputs, in.Out[0])
		}
	}
	return inputs
}
