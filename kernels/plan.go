package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Dtype is the element type of an operand.
type Dtype = expr.Dtype

// The element types. Every kernel exists for the floating-point ones; Histogram counts the others and counts in Int64, and Map converts from them.
// Int is Go's int.
const (
	Float32 = expr.Float32
	Float64 = expr.Float64
	Uint8   = expr.Uint8
	Int32   = expr.Int32
	Int64   = expr.Int64
	Int     = expr.Int
	Bool    = expr.Bool
)

// Operand names a buffer of a plan: inputs are 0, 1, ...; Out, Scratch and Arrivals are below zero.
type Operand int

// The buffers beside the inputs.
const (
	Out     Operand = -1
	Scratch Operand = -2
	// Arrivals is a word of 32 bits that is zero when a launch begins, and that no other launch changes meanwhile. The launch leaves zero there: kernels count
	// in it the blocks that have ended (grid_ticket.cuh).
	Arrivals Operand = -3
)

// String prints in0, in1, out, scratch or arrivals.
func (o Operand) String() string {
	switch o {
	case Out:
		return "out"
	case Scratch:
		return "scratch"
	case Arrivals:
		return "arrivals"
	}
	return fmt.Sprintf("in%d", int(o))
}

// Ref is an argument that points into an operand, Offset bytes from its start.
type Ref struct {
	Operand  Operand
	Offset   int64
	argument int64 // its position and 1, set by [Args]
}

// In returns the argument that points to input i.
func In(i Operand) Ref { return Ref{Operand: i} }

// At returns the argument that points into an operand, offset bytes from its start.
func At(o Operand, offset int64) Ref { return Ref{Operand: o, Offset: offset} }

// String prints operand+offset.
func (r Ref) String() string {
	if r.Offset == 0 {
		return r.Operand.String()
	}
	return fmt.Sprintf("%v+%d", r.Operand, r.Offset)
}

// Kernel is one function with two bodies: the entry point Entry of the CUDA code Image, and the Go function Body. Both take the arguments of a
// [Launch]. Those of a [Library] are made by [Library.Kernel].
type Kernel struct {
	Image Image
	Entry string
	Body  func(Call)
}

// Launch is one kernel on a grid. Args holds, in the order of the kernel's
// parameters, values of type Ref, TensorMap, int32, int64, float32 or float64.
type Launch struct {
	Kernel *Kernel
	Grid   [3]int
	Block  [3]int
	Shared int // dynamic shared memory, bytes
	// Cluster is the number of consecutive blocks along x in a cluster, if the kernel's code does not set it; 0: none.
	Cluster int
	Args    []any
	// CoResident is set if the grid's blocks wait for one another, so that all must
	// be on the device at once. A backend refuses a grid that does not fit.
	CoResident bool
	// Cooperative makes the device start all blocks together or none, also while other kernels run: two grids, each with a part of its blocks on the
	// device and waiting for the rest, would wait for ever.
	Cooperative bool
}

// String prints the launch as entry<<<grid, block, shared>>>(args).
func (l Launch) String() string {
	args := make([]string, len(l.Args))
	for i, a := range l.Args {
		args[i] = fmt.Sprint(a)
	}
	name := "<nil>"
	if l.Kernel != nil {
		name = l.Kernel.Entry
	}
	cluster := ""
	if l.Cluster > 0 {
		cluster = fmt.Sprintf(", cluster %d", l.Cluster)
	}
	return fmt.Sprintf("%s<<<%v, %v, %d%s>>>(%s)", name, l.Grid, l.Block, l.Shared, cluster, strings.Join(args, ", "))
}

// Blocks returns the number of blocks of the grid.
func (l Launch) Blocks() int { return l.Grid[0] * l.Grid[1] * l.Grid[2] }

// Plan is how one op runs: launches in order, plain data made from shapes, a dtype and a device's properties. The same plan runs on a GPU (through
// the driver) and on the host (through [Plan.Run]).
type Plan struct {
	Op       string  // the op's name with its shapes, for reports
	Inputs   []int64 // bytes of each input
	Out      int64   // bytes of the output
	Accessed []int64 // bytes read of each input, then bytes written of the output, at most; nil for all
	Parts    []int64 // where in Out each of several outputs begins; nil for one
	Scratch  int64   // bytes of scratch memory alive while the plan runs
	Launches []Launch
	Flops    int64 // floating-point operations of the op (not of the plan)
	// Precision is that to which the launches round operands of products.
	Precision Precision
	Graph     bool // a CUDA backend makes one graph of the launches, which costs less for many short ones
}

// Bytes returns the bytes of all inputs and of the output, which is the least traffic of the op unless [Plan.Accessed] is less.
func (p *Plan) Bytes() int64 {
	n := p.Out
	for _, b := range p.Inputs {
		n += b
	}
	return n
}

// Multiplies reports whether the plan has products of matrices, or of a matrix and a vector, which a [BLAS] makes on the host.
func (p *Plan) Multiplies() bool {
	return slices.ContainsFunc(p.Launches, func(l Launch) bool {
		if l.Kernel == nil {
			return false
		}
		c, is := l.Kernel.Image.(compiled)
		return is && c.library == own && strings.HasPrefix(c.stem, "matmul")
	})
}

// String prints the plan, one launch a line.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: in %v bytes, out %d, scratch %d\n", p.Op, p.Inputs, p.Out, p.Scratch)
	for i, l := range p.Launches {
		fmt.Fprintf(&b, "  %d. %v\n", i+1, l)
	}
	return b.String()
}

// Part returns the output that offset of Out lies in, and where in that output.
func (p *Plan) Part(offset int64) (output int, rest int64) {
	for output+1 < len(p.Parts) && p.Parts[output+1] <= offset {
		output++
	}
	if len(p.Parts) > 0 {
		offset -= p.Parts[output]
	}
	return output, offset
}

// OutputBytes returns the bytes that output k takes in Out: its own, and those that bring the next one to a multiple of 256.
func (p *Plan) OutputBytes(k int) int64 {
	switch {
	case len(p.Parts) == 0:
		return p.Out
	case k+1 < len(p.Parts):
		return p.Parts[k+1] - p.Parts[k]
	}
	return p.Out - p.Parts[k]
}

// Workspace reserves that many bytes of scratch memory, 256-byte aligned, and returns where they start.
func (p *Plan) Workspace(bytes int64) Ref {
	r := Ref{Operand: Scratch, Offset: p.Scratch}
	p.Scratch += (bytes + 255) &^ 255
	return r
}

// Or returns the plan, or err with the plan's op before it.
func (p *Plan) Or(err error) (*Plan, error) {
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	return p, nil
}

// Launch appends a launch of a kernel on a grid of blocks of threads, in one dimension; args are as in [Launch], or structs of such, as [Args] has
// them. Shared memory and further dimensions can be set in the result, which is valid until the next launch is appended. [CheckGrid] reports whether
// a grid is too large.
func (p *Plan) Launch(k *Kernel, blocks, threads int, args ...any) *Launch {
	p.Launches = append(p.Launches, Launch{Kernel: k, Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}, Args: flatten(args)})
	return &p.Launches[len(p.Launches)-1]
}

// Planner is implemented by ops that run on a device.
type Planner interface {
	// Plan returns how the op runs on dev.
	Plan(dev Device) (*Plan, error)
}

// CheckGrid returns an error if a launch cannot have that many blocks in one dimension, 2^31 - 1 at most.
func CheckGrid(blocks int64) error {
	const most = 1<<31 - 1
	if blocks > most {
		return fmt.Errorf("it takes %d blocks, a launch has at most %d", blocks, most)
	}
	return nil
}

// CeilDiv returns a / b rounded up, for a >= 0 and b > 0: the blocks of b that cover a elements.
//
//go:noinline
func CeilDiv(a, b int64) int64 { return (a + b - 1) / b }

// Count returns the number of elements of a shape, 1 for a scalar.
//
//go:noinline
func Count(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	return n
}
