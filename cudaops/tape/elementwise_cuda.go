//go:build cuda

package tape

import (
	"fmt"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// elementWise is an element-wise op of Gorgonia's, run by the kernel that Gorgonia would launch for
// it. Gorgonia's own launches allocate memory every time and never free it.
type elementWise struct{ gorgonia.Op }

var _ gorgonia.CUDADoer = elementWise{}

// CUDADo leaves values that it cannot handle to Gorgonia, which returns its own errors.
func (o elementWise) CUDADo(extern gorgonia.External, dev gorgonia.Device, prealloc gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	if p, ok := o.inPlace(prealloc, in); ok {
		done, err := run(extern, dev, p, prealloc, in, p.start)
		if err != nil {
			return nil, fmt.Errorf("tape: %w", err)
		}
		if done {
			return prealloc, nil
		}
	}
	return o.Op.(gorgonia.CUDADoer).CUDADo(extern, dev, prealloc, in...)
}

// inPlace plans one launch of a kernel that works in the memory of one of its operands: the output,
// which starts as a copy of input start.
type inPlace struct {
	kernel   *kernels.Kernel
	start    int
	operands int
	n, bytes int64 // of the output
}

// inPlace finds the kernel for values; ok is false if it has none for them.
func (o elementWise) inPlace(out gorgonia.Value, in []gorgonia.Value) (p inPlace, ok bool) {
	if out == nil || len(in) == 0 {
		return p, false
	}
	dt, known := values.Dtype(out.Dtype())
	for _, v := range in {
		known = known && v.Dtype() == out.Dtype()
	}
	if !known {
		return p, false
	}
	p = inPlace{operands: len(in), n: int64(out.Shape().TotalSize())}
	p.bytes = p.n * dt.Size()
	name := fmt.Sprintf("%v_%v", o.Op, dt) // of the unary ones
	if len(in) == 2 {
		symbol, _, _ := strings.Cut(o.String(), " ")
		form := [2]byte{'v', 'v'}
		for i, v := range in {
			if v.Shape().IsScalar() {
				form[i] = 's'
			}
		}
		if form == [2]byte{'s', 'v'} {
			p.start = 1
		}
		name = fmt.Sprintf("%s_%s_%v", binaryNames[symbol], form[:], dt)
		if form == [2]byte{'v', 'v'} && !in[1].Shape().Eq(in[0].Shape()) {
			return p, false
		}
	}
	p.kernel = standardKernels()[name]
	return p, p.kernel != nil && in[p.start].Shape().Eq(out.Shape())
}

// Plan implements kernels.Planner.
func (p inPlace) Plan(kernels.Device) (*kernels.Plan, error) {
	plan := &kernels.Plan{Op: p.kernel.Entry, Out: p.bytes, Flops: p.n}
	var args []any
	for i := range p.operands {
		if i == p.start {
			args = append(args, kernels.Ref{Operand: kernels.Out})
		} else {
			args = append(args, kernels.Ref{Operand: kernels.Operand(i)})
		}
	}
	const block = 256
	plan.Launches = []kernels.Launch{{
		Kernel: p.kernel,
		Grid:   [3]int{int((p.n + block - 1) / block), 1, 1},
		Block:  [3]int{block, 1, 1},
		Args:   append(args, p.n),
	}}
	return plan, nil
}

// binaryNames are the names in kernels of Gorgonia's symbols.
var binaryNames = map[string]string{
	"+": "add", "-": "sub", "⊙": "mul", "÷": "div", "^": "pow",
	"<": "lt", ">": "gt", "<=": "lte", ">=": "gte", "==": "eq", "!=": "ne",
}

// standardKernels are the kernels of the standard modules by name. They have no
// Go bodies.
var standardKernels = sync.OnceValue(func() map[string]*kernels.Kernel {
	all := map[string]*kernels.Kernel{}
	for _, module := range standard {
		entries, err := kernels.Builtin().Entries(module)
		if err != nil {
			return nil // a build without the modules, in which nothing is registered
		}
		for _, entry := range entries {
			all[entry] = &kernels.Kernel{Image: kernels.Builtin().Image(module), Entry: entry}
		}
	}
	return all
})
