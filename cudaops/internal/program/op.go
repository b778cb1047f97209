package program

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/window"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Op is the operation of an instruction: one of [Input], [Constant], [State], [Iota], [Host], [Kernel],
// [Map], [Concat], [Alias], [ConcatInPlace], [Collective] and [Copy].
type Op interface{ String() string }

// Input is a value that the user sets before a run. With Split the user sets the values of all ranks, concatenated along the first axis,
// of which each rank receives its own.
type Input struct{ Split bool }

// Constant is a value that is part of the graph.
type Constant struct{ Value gorgonia.Value }

// State is a value that stays on the device between runs: 0 before the first run, then the value that [Program.Updates]
// names.
type State struct {
	Home   Memory // holds the value, which other programs may use too; nil selects the program's arena
	Offset int64  // in Home, bytes
	// Rounds, if not nil, is the state of which this one is a copy in BF16 or F16: to set that state is to set both. A copy of a state in a Home is in a Home, too.
	Rounds *Value
	// Sharded is set for a state of which each rank holds one part: the parts of all ranks, concatenated in their order, are one value.
	Sharded bool
	// Constant says that no instruction of the program changes the state, once the program is planned.
	Constant bool
}

// Iota is a scalar of Int64 without memory, an instruction of Setup. Views of it are operands of Maps: each of their elements
// is its own address, as in a [codegen.View].
type Iota struct{}

// Host calls the Do of an op on the host.
type Host struct {
	Op gorgonia.Op
	// Reason is why the op runs on the host. It is "" for an op without inputs, which costs no copy.
	Reason string
}

// WritesThrough reports whether the value of an op is memory that its consumer writes, as that of gorgonia.Iop, which
// holds a second output.
func WritesThrough(op Op) bool {
	h, _ := op.(Host)
	_, through := h.Op.(gorgonia.Iop)
	return through
}

// Kernel runs an op with a launch plan of its own. With InPlace the output has the memory of the first input, and the launches
// write only the elements that differ.
type Kernel struct {
	Planner kernels.Planner
	InPlace bool
}

// Storer is a planner of float32 that can have operands and outputs in a type of 16 bits, such as that of attention. Stored returns the planner
// that does, and which of its inputs and outputs have that type: all of them, then.
type Storer interface {
	Stored(d kernels.Dtype, dev kernels.Device) (p kernels.Planner, inputs, outputs []bool, ok bool)
}

// InPlace returns an op in place, and false for an op that has no such plan.
func InPlace(op Op) (in Kernel, ok bool) {
	k, _ := op.(Kernel)
	known, has := k.Planner.(interface {
		InPlace() (kernels.Planner, bool)
	})
	if !has {
		return in, false
	}
	in.InPlace = true
	in.Planner, ok = known.InPlace()
	return in, ok
}

// plan returns the launches of an op, which may come from another module.
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

// ProductOf returns the matmul that an op computes, and false for other ops.
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

// ConvOf returns the convolution that an op computes, or the gradient of one, and false for other ops.
func ConvOf(op Op) (v gemm.Conv, is bool) {
	k, _ := op.(Kernel)
	if v, is = k.Planner.(gemm.Conv); is {
		return v, true
	}
	if known, has := k.Planner.(interface{ Conv() (gemm.Conv, bool) }); has {
		err := guard.Recover("Conv", func() error { v, is = known.Conv(); return nil })
		is = is && err == nil
	}
	return v, is
}

// MaxPoolingOf returns the max-pooling that an op computes, or the gradient of one, and false for other ops.
func MaxPoolingOf(op Op) (p window.MaxPooling, is bool) {
	k, _ := op.(Kernel)
	p, is = k.Planner.(window.MaxPooling)
	return p, is
}

// AttentionOf returns the launches of an instruction of attention, and false for other ones.
func AttentionOf(op Op) (kernels.Planner, bool) {
	k, _ := op.(Kernel)
	switch p := k.Planner.(type) {
	case attention.Forward, attention.Backward:
		return p, true
	case interface {
		Attention() (kernels.Planner, bool)
	}:
		return p.Attention()
	}
	return nil, false
}

// Map computes each element of its outputs by a function of the elements of its inputs at the same
// index of Shape. The inputs are views of that shape, with any strides; a function of constants has no inputs.
// Each output has as many elements as Shape. FuseWithConsumers is set if the Map should be fused with the consumers
// of its output instead of the producers of its inputs.
//
// The function may have reductions along Axes of Shape. An output then has as many elements as Shape or, if its PerRow is set, one for
// each index along the other axes. Such a Map prints as "rows".
type Map struct {
	Func              expr.Func
	Shape             tensor.Shape
	Axes              []int  // rising; nil for a function without reductions
	PerRow            []bool // of each output; nil without Axes
	FuseWithConsumers bool
	Split             []codegen.Split // of each output: how it is stored as splits, bytes that a gemm.Product or a gemm.Conv reads; nil for none. See codegen.MapSplit
}

// Concat concatenates its inputs, views with any strides, along an axis.
type Concat struct{ Axis int }

// Alias reshapes, permutes or slices a value as the View of its output describes, without moving elements. An alias of
// the state of a random number generator is the numbers that it generates.
type Alias struct{}

// ConcatInPlace is one buffer with the elements of all inputs at the offsets of [Layout]. Each input is computed at its
// offset, so no element moves. The bytes between the inputs, and Tail elements after them, are arbitrary or, with Zeros, zeros: then no
// other value has its memory. It prints as "join".
type ConcatInPlace struct {
	Tail  int64
	Zeros bool
}

// Collective computes each output from the values that all ranks have of the input of the same index. Every rank runs the program, and
// its collectives in the same order.
type Collective struct{ kernels.Collective }

// Copy moves a value between host and device, from the space of its input to the
// space of its output.
type Copy struct{}

// String returns the name of the instruction.
func (i Input) String() string {
	if i.Split {
		return "input, split"
	}
	return "input"
}

func (Constant) String() string { return "constant" }
func (State) String() string    { return "state" }
func (Iota) String() string     { return "iota" }
func (h Host) String() string   { return fmt.Sprintf("host %v", h.Op) }
func (k Kernel) String() string { return fmt.Sprintf("kernel %v", k.Planner) }
func (c Concat) String() string { return fmt.Sprintf("concat along %d", c.Axis) }
func (Alias) String() string    { return "alias" }
func (Copy) String() string     { return "copy" }
func (j ConcatInPlace) String() string {
	if j.Zeros {
		return "join with zeros"
	}
	return "join"
}

func (m Map) String() string {
	name := fmt.Sprintf("rows %v over %v", m.Func, m.Axes)
	if len(m.Axes) == 0 {
		name = fmt.Sprintf("map %v", m.Func)
	}
	if slices.ContainsFunc(m.Split, func(s codegen.Split) bool { return s != codegen.Unsplit }) {
		name += " to planes"
	}
	return name
}

// Is reports whether an op is a T.
func Is[T Op](op Op) bool {
	_, is := op.(T)
	return is
}

// Elementwise reports whether an op is a Map without reductions.
func Elementwise(op Op) bool {
	m, mapped := op.(Map)
	return mapped && len(m.Axes) == 0
}

// Launches reports whether an op launches kernels: whether it is a Kernel, a Map or a Concat.
func Launches(op Op) bool { return Is[Kernel](op) || ReadsViews(op) }

// Computes reports whether an op computes values: by launches, on the host or with other ranks.
func Computes(op Op) bool { return Launches(op) || Is[Host](op) || Is[Collective](op) }

// ReadsViews reports whether the launches of an op can read views of any strides.
func ReadsViews(op Op) bool { return Is[Map](op) || Is[Concat](op) }
