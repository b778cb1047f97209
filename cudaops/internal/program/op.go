package program

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Op is the operation of an instruction: one of [Input], [Constant], [State], [Host], [Kernel],
// [Map], [Rows], [Concat], [Alias], [Join] and [Copy].
type Op interface{ String() string }

// Input is a value that the user sets before a run.
type Input struct{}

// Constant is a value that is part of the graph.
type Constant struct{ Value gorgonia.Value }

// State is a value that stays on the device from run to run: 0 at first, and after each run the
// value that [Program.Updates] names.
type State struct{}

// Host calls the Do of an op on the host.
type Host struct {
	Op gorgonia.Op
	// Reason is why the op runs there, "" for one that has no inputs to copy, such as a random
	// tensor.
	Reason string
}

// WritesThrough reports whether the value of an op is memory to be written by an op that takes it:
// that of gorgonia.Iop, which holds a second output.
func WritesThrough(op Op) bool {
	h, host := op.(Host)
	if !host {
		return false
	}
	_, through := h.Op.(gorgonia.Iop)
	return through
}

// Kernel runs an op that has kernels of its own.
type Kernel struct{ Planner kernels.Planner }

// plan returns the launches of an op, which may be of another module.
func (k Kernel) plan(dev kernels.Device) (p *kernels.Plan, err error) {
	err = guard.Recover("its Plan", func() (err error) { p, err = k.Planner.Plan(dev); return err })
	if err == nil && p == nil {
		err = errors.New("its Plan returned nil and no error")
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// ProductOf returns the product that an op is.
func ProductOf(op Op) (p gemm.Product, is bool) {
	k, _ := op.(Kernel)
	if p, is = k.Planner.(gemm.Product); is {
		return p, true
	}
	if known, has := k.Planner.(interface{ Product() (gemm.Product, bool) }); has {
		err := guard.Recover("Product", func() error { p, is = known.Product(); return nil })
		is = is && err == nil
	}
	return p, is
}

// Map computes each element of its outputs by a function of the elements of its inputs at the same
// index of Shape. The inputs are views of that shape, of any strides; a function of constants alone has
// none. Each output has as many elements. Late is set if it should be fused with the users of its output
// rather than with the producers of its inputs.
type Map struct {
	Func  expr.Func
	Shape tensor.Shape
	Late  bool
}

// Rows computes a function with reductions along axes of Shape. The inputs are views of that shape, of any
// strides, as those of a Map. An output has that shape or, if PerRow is set for it, one element for each
// index along the other axes.
type Rows struct {
	Func   expr.Func
	Shape  tensor.Shape
	Axes   []int // rising
	PerRow []bool
}

// Concat joins its inputs, views of any strides, along an axis.
type Concat struct{ Axis int }

// Alias is a value in another shape or order, or a part of it, as the View of its output describes,
// without moving elements. An alias of the state of random numbers is these numbers.
type Alias struct{}

// Join is one buffer with the elements of all inputs, one after the other as [Layout] describes. Its
// inputs are computed in their places: no element moves. The bytes between them are arbitrary.
type Join struct{}

// Copy moves a value between host and device, from the space of its input to the
// space of its output.
type Copy struct{}

func (Input) String() string    { return "input" }
func (Constant) String() string { return "constant" }
func (State) String() string    { return "state" }
func (h Host) String() string   { return fmt.Sprintf("host %v", h.Op) }
func (k Kernel) String() string { return fmt.Sprintf("kernel %v", k.Planner) }
func (m Map) String() string    { return fmt.Sprintf("map %v", m.Func) }
func (r Rows) String() string   { return fmt.Sprintf("rows %v over %v", r.Func, r.Axes) }
func (c Concat) String() string { return fmt.Sprintf("concat along %d", c.Axis) }
func (Alias) String() string    { return "alias" }
func (Join) String() string     { return "join" }
func (Copy) String() string     { return "copy" }

// Launches reports whether an op runs as launches on the device: whether it is a
// Kernel, a Map, Rows or a Concat.
func Launches(op Op) bool {
	_, kernel := op.(Kernel)
	return kernel || ReadsViews(op)
}

// ReadsViews reports whether the launches of an op read its inputs as they lie in their bases,
// whatever the strides.
func ReadsViews(op Op) bool {
	_, concat := op.(Concat)
	return concat || Pointwise(op)
}

// Pointwise reports whether an op is a function of elements: whether it is a Map or Rows.
func Pointwise(op Op) bool {
	switch op.(type) {
	case Map, Rows:
		return true
	}
	return false
}
