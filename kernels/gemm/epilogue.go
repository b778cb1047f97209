package gemm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// epilogue is a function of the elements of a product and of further operands, which product
// kernels apply to each sum before they write it. Kernels are compiled, so it is a chain of at most
// four of the [steps], with at most two operands. The zero epilogue changes nothing.
type epilogue struct {
	chain    int32           // numbers of steps, four bits each, the first step lowest
	f        expr.Func       // of the element, then the operands
	operands []codegen.View  // strided by matrix, row and column: inputs 2 and 3 of the plan
	types    []kernels.Dtype // in which the operands are stored; nil: all in the product's
	slots    []int           // the operands that the steps take, in order
}

const (
	mostSteps        = 4
	mostSlots        = 2
	mostInAnEpilogue = 16 // operations
)

// steps are the operations of product kernels on a number v, with up to two further operands, by
// their number less 1. The texts are in the language of [expr.Parse], with its arithmetic: every
// operation rounds, none is contracted.
//
// A rectifier is -0 where v is below zero, and +0 for v = -0. So its result x shows whether v was
// below zero, and 0 <= 1 / x is its derivative.
var steps = []struct{ text, shown string }{
	{"v + x", ""},
	{"v - x", ""},
	{"x - v", ""},
	{"v * x", ""},
	{"v * (0 <= 1 / x)", "v * step(x)"},
	{"select(v < 0, -0, v + 0)", "relu(v)"},
	{"tanh(v)", ""},
	{"sigmoid(v)", ""},
	{"v * (1 - x * x)", ""},
	{"v * (x * sigmoid(-y))", ""},
	{"v / x", ""},
}

// stepFuncs are the steps by element type.
var stepFuncs = sync.OnceValue(func() [2][]expr.Func {
	var list [2][]expr.Func
	for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
		for _, s := range steps {
			f, err := expr.Parse(s.text, dt, "v", "x", "y")
			if err != nil {
				panic("kernels: " + s.text + ": " + err.Error()) // TestEpilogueSteps reads them all
			}
			list[dt] = append(list[dt], f)
		}
	}
	return list
})

// newEpilogue returns the epilogue that computes f, whose first operand is the product's element,
// or false if no chain of steps does.
func newEpilogue(dt kernels.Dtype, f expr.Func, operands []codegen.View) (epilogue, bool) {
	types, outputs := f.Operands(), f.Outputs()
	if len(types) != len(operands)+1 || len(outputs) != 1 || f.Operations() > mostInAnEpilogue {
		return epilogue{}, false
	}
	if slices.ContainsFunc(append(types, outputs...), func(d kernels.Dtype) bool { return d != dt }) {
		return epilogue{}, false
	}
	e := epilogue{f: f, operands: operands}
	return e, e.find(f, dt, mostSteps) && len(e.slots) <= mostSlots
}

// find appends the steps that compute f, up to a number, and reports whether there are any.
func (e *epilogue) find(f expr.Func, dt kernels.Dtype, most int) bool {
	if k, ok := f.IsOperand(); ok || most == 0 {
		return ok && k == 0
	}
	for i, step := range stepFuncs()[dt] {
		for _, parts := range f.Matches(step) {
			var slots []int
			operands := !slices.ContainsFunc(parts[1:], func(part expr.Func) bool {
				k, operand := part.IsOperand()
				if operand && k > 0 {
					slots = append(slots, k-1)
				}
				return part != (expr.Func{}) && !(operand && k > 0)
			})
			if before := *e; operands && e.find(parts[0], dt, most-1) {
				at := 0
				for e.chain>>at != 0 {
					at += 4
				}
				e.chain |= int32(i+1) << at
				e.slots = append(slices.Clip(e.slots), slots...)
				return true
			} else {
				*e = before
			}
		}
	}
	return false
}

// transposed returns the epilogue for C written transposed.
func (e epilogue) transposed() epilogue {
	operands := make([]codegen.View, len(e.operands))
	for i, v := range e.operands {
		operands[i] = v
		operands[i].Strides = []int{v.Strides[0], v.Strides[2], v.Strides[1]}
	}
	e.operands = operands
	return e
}

// epilogueArgs are the last arguments of a product kernel: the steps, with the number of their operands in the bits above, and the
// operands with their strides in elements. A missing operand points to memory that is not read.
type epilogueArgs struct {
	Steps    int32
	Operands [mostSlots]struct {
		X                   kernels.Ref
		Matrix, Row, Column int64
	}
}

// dtype returns the type in which an operand of a product of type dt is stored.
func (e epilogue) dtype(operand int, dt kernels.Dtype) kernels.Dtype {
	if e.types == nil {
		return dt
	}
	return e.types[operand]
}

func (e epilogue) arguments(dt kernels.Dtype) epilogueArgs {
	args := epilogueArgs{Steps: e.chain | int32(len(e.slots))<<16}
	for i := range args.Operands {
		x := &args.Operands[i]
		if x.X = out; i < len(e.slots) {
			v := e.operands[e.slots[i]]
			x.X = kernels.At(kernels.Operand(2+e.slots[i]), v.Offset*e.dtype(e.slots[i], dt).Size())
			x.Matrix, x.Row, x.Column = int64(v.Strides[0]), int64(v.Strides[1]), int64(v.Strides[2])
		}
	}
	return args
}

// String returns the steps in terms of the element c and of the operands x0 and x1, as in
// relu(c + x0).
func (e epilogue) String() string {
	const sum, product, call = 0, 1, 2 // how tightly text binds
	text, slots, binds := "c", e.slots, call
	for chain := e.chain; chain != 0; chain >>= 4 {
		shown := cmp.Or(steps[chain&15-1].shown, steps[chain&15-1].text)
		names, least, own := []string{"v", text}, product, sum
		switch {
		case strings.HasSuffix(shown, "(v)"):
			least, own = sum, call
		case strings.HasPrefix(shown, "v * "), strings.HasPrefix(shown, "v / "):
			own = product
		case strings.HasPrefix(shown, "v "):
			least = sum
		}
		if binds < least {
			names[1] = "(" + text + ")"
		}
		for _, name := range []string{"x", "y"} {
			if strings.Contains(shown, name) {
				names, slots = append(names, name, fmt.Sprint("x", slots[0])), slots[1:]
			}
		}
		text, binds = strings.NewReplacer(names...).Replace(shown), own
	}
	return text
}

// epilogueBody is the Go body of a product with an epilogue: that of the product, then that of a Map, which
// writes over what it reads.
func (p Product) epilogueBody(product func(kernels.Call)) func(kernels.Call) {
	launch := sync.OnceValue(p.epilogueLaunch) // a GPU does not run it
	return func(c kernels.Call) {
		product(c)
		c.Launch = launch()
		c.Launch.Kernel.Body(c)
	}
}

// epilogueLaunch returns the launch of a Map of C to itself.
func (p Product) epilogueLaunch() *kernels.Launch {
	shape := []int{int(p.Batch), int(p.M), int(p.N)}
	f, stored := p.epilogue.f, []kernels.Dtype{p.Dtype}
	for i := range p.epilogue.operands {
		stored = append(stored, p.epilogue.dtype(i, p.Dtype))
	}
	f, err := f.Stored(stored, stored[:1])
	if err != nil {
		panic("kernels: " + err.Error()) // Product.Stored has checked the types
	}
	mapped, err := codegen.Map(kernels.HostDevice(), f, shape, append([]codegen.View{codegen.Dense(shape)}, p.epilogue.operands...)...)
	if err != nil {
		panic("kernels: " + err.Error()) // Product.With has checked the views
	}
	launch := &mapped.Launches[0]
	for i, a := range launch.Args { // of the Map, whose input 0 is C, the others the operands
		if r, ref := a.(kernels.Ref); ref && r.Operand == 0 {
			launch.Args[i] = kernels.At(kernels.Out, r.Offset)
		} else if ref && r.Operand > 0 {
			launch.Args[i] = kernels.At(r.Operand+1, r.Offset)
		}
	}
	return launch
}
