// Package program is the one representation of a graph between Gorgonia and the
// backend that runs it.
//
//	graph --lower--> Program --passes--> Program, planned and placed --> backend
//
// A [Program] is a list of instructions over values, each value defined once. At first it describes the
// computation; passes add how and where it runs: launch plans, transfers between host and device, places in
// device memory. [Program.Print] shows it at any stage, [Program.Verify] checks it, and
// [Program.Eval] runs it by the plainest means, so that a pass can be tested without a device: Eval
// after it equals Eval before it.
package program

import (
	"fmt"
	"iter"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Program is a graph made ready to run, or on its way there. It is plain data:
// the backend holds the values that a run changes.
type Program struct {
	Stage   Stage
	Setup   []*Instr  // runs once, before the first run: constants and states
	Instrs  []*Instr  // runs in this order, every time
	Outputs []*Value  // the values wanted on the host after a run
	Updates []Update  // of every State
	Buffers []*Buffer // device memory, from Placed on
	Arena   int64     // bytes of device memory that the buffers take
	Peak    int64     // bytes of the buffers alive at once, at most: the least arena for this order

	values int // how many values were made
}

// Update is the value that a State has after a run: its own, if no run changes it. From Placed on,
// the two share a place.
type Update struct{ State, Next *Value }

// Stage records which passes have run.
type Stage uint8

// The stages, each with the properties that hold from there on.
const (
	Lowered     Stage = iota // instructions in an order in which they can run
	Planned                  // every Kernel and Map has its launch plan
	Transferred              // every value lives on the host or on the device, and copies are instructions
	Placed                   // every value on the device has its place in the arena
)

// String returns the stage's name.
func (s Stage) String() string {
	return [...]string{"lowered", "planned", "transferred", "placed"}[s]
}

// Space is the memory that a value lives in.
type Space uint8

// The spaces. Values live nowhere in particular before [Transferred].
const (
	Anywhere Space = iota
	OnHost
	OnDevice
)

// String returns the space's name.
func (s Space) String() string { return [...]string{"anywhere", "host", "device"}[s] }

// Type is the element type and the shape of a value. Values of other types than the
// kernels' and of unknown shape live on the host alone: Numeric is false.
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

// View describes where the elements of a value lie in the memory of its base: the element of index i at
// Offset + sum of i[k] Strides[k], all in elements. If there are Bounds, elements outside of them
// are zeros, and indices along that axis count from Bounds.From.
type View struct {
	Offset  int64
	Strides []int64
	Bounds  codegen.Bounds // To = 0 for none
	// Stream makes the elements random numbers of the value's element type: the base is the state
	// from which they follow, as in a [codegen.View].
	Stream codegen.Stream
}

// Contiguous returns the view of a whole base in row-major order.
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
	Name string // of the node that it is the value of
	Type
	Def   *Instr
	Space Space
	// Base is the value whose memory this one shares, as View describes; the value
	// itself if the memory is its own. A base is its own base.
	Base   *Value
	View   View
	Buffer *Buffer // of a base on the device, from Placed on
}

// IsBounded reports whether the view has zeros outside of its memory.
func (v *Value) IsBounded() bool { return v.View.Bounds.To != 0 }

// IsRandom reports whether the elements are random numbers, which lie in no memory.
func (v *Value) IsRandom() bool { return v.View.Stream.Number != 0 }

// IsContiguous reports whether the elements lie in row-major order, one after the
// other.
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

// Instr computes values from values.
type Instr struct {
	Op      Op
	In, Out []*Value
	Nodes   []*gorgonia.Node // the nodes that it computes or, for a Copy, whose value it copies
	Plan    *kernels.Plan    // the launches, if there are any, from Planned on
	Scratch *Buffer          // memory of its own while it runs, from Placed on; nil for none
}

// Domain returns the shape that a Map or Rows goes over.
func (in *Instr) Domain() tensor.Shape {
	if op, rows := in.Op.(Rows); rows {
		return op.Shape
	}
	return in.Op.(Map).Shape
}

// PlanFor returns the launches of an instruction on a device.
func (in *Instr) PlanFor(dev kernels.Device) (*kernels.Plan, error) {
	if op, kernel := in.Op.(Kernel); kernel {
		return op.plan(dev)
	}
	views := make([]codegen.View, len(in.In))
	for i, v := range in.In {
		views[i] = v.kernelView()
	}
	switch op := in.Op.(type) {
	case Map:
		return codegen.Map(dev, op.Func, op.Shape, views...)
	case Rows:
		return codegen.Rows(dev, op.Func, op.Shape, op.Axes, op.PerRow, views...)
	case Concat:
		out, extents := in.Out[0], make([]int, len(in.In))
		for i, v := range in.In {
			extents[i] = v.Shape[op.Axis]
		}
		return codegen.Concat(dev, out.Dtype, out.Shape, op.Axis, extents, views...)
	}
	return nil, fmt.Errorf("%v has no launches", in.Op)
}

// InNode returns err with the name of the graph's node that the instruction computes. It returns
// nil for nil, and an error that names a node already unchanged.
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

// kernelView returns the value as an operand of a Map or Rows: a view of the whole buffer of
// its base.
func (v *Value) kernelView() codegen.View {
	strides := make([]int, len(v.View.Strides))
	for i, s := range v.View.Strides {
		strides[i] = int(s)
	}
	return codegen.View{Elements: v.Base.Elements(), Offset: v.View.Offset, Strides: strides, Bounds: v.View.Bounds, Stream: v.View.Stream}
}

// Buffer is a piece of the arena that is alive from instruction Birth to
// instruction Death of [Program.Instrs], both included.
type Buffer struct {
	Offset, Size int64 // bytes
	Birth, Death int
	Within       *Buffer // that of a Join, in which this one has its place; nil for none
	// Twin is where the value lies in every other run, so that it can be copied there while the run before is
	// under way; nil for none. It is one of the program's buffers, too, and has none of its own.
	Twin *Buffer
}

// SwapTwins exchanges the places of buffers that have two.
func (p *Program) SwapTwins() {
	for _, b := range p.Buffers {
		if b.Twin != nil {
			b.Offset, b.Twin.Offset = b.Twin.Offset, b.Offset
		}
	}
}

// Alignment of every buffer in the arena, in bytes: the kernels' vector loads rely on it, and
// CUDA's own allocator keeps it.
const Alignment = 256

// Padded returns the bytes of the arena that the buffer takes.
func (b *Buffer) Padded() int64 { return (b.Size + Alignment - 1) &^ (Alignment - 1) }

// Overlaps reports whether a and b are alive at the same time.
func (b *Buffer) Overlaps(a *Buffer) bool { return b.Birth <= a.Death && a.Birth <= b.Death }

// Layout returns where values with those numbers of elements begin in a Join, in elements, each at
// a multiple of Alignment, and the number of elements of the Join.
func Layout(d kernels.Dtype, elements ...int64) (offsets []int64, total int64) {
	unit := Alignment / d.Size()
	for _, n := range elements {
		offsets = append(offsets, total)
		total += (n + unit - 1) / unit * unit
	}
	return offsets, total
}

// Offsets returns where the inputs of a Join begin, in elements.
func (in *Instr) Offsets() []int64 {
	elements := make([]int64, len(in.In))
	for i, v := range in.In {
		elements[i] = v.Elements()
	}
	offsets, _ := Layout(in.Out[0].Dtype, elements...)
	return offsets
}

// NodesOf returns the nodes that instructions compute, each once.
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

// NewValue returns a value that instruction def is to have as an output; its
// memory is its own.
func (p *Program) NewValue(def *Instr, name string, t Type) *Value {
	v := &Value{ID: p.values, Name: name, Type: t, Def: def, View: Contiguous(t.Shape)}
	v.Base = v
	p.values++
	def.Out = append(def.Out, v)
	return v
}

// NewAlias returns a value that instruction def is to have as an output; it
// shares the memory of base.
func (p *Program) NewAlias(def *Instr, name string, t Type, base *Value, view View) *Value {
	v := p.NewValue(def, name, t)
	v.Base, v.View, v.Space = base.Base, view, base.Space
	return v
}

// All iterates over the instructions of Setup and those of Instrs.
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

// Plans returns the plans of a run, in order.
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
		if _, ok := in.Op.(Input); ok {
			inputs = append(inputs, in.Out[0])
		}
	}
	return inputs
}
