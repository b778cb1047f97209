//go:build cuda

package tape

import (
	"errors"
	"fmt"
	"log"
	"sync"
	"time"
	"unsafe"
	"weak"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/loader"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/gorgonia/cuda"
	"gorgonia.org/tensor"
)

// A context is Stheno's state for one engine of a machine: the kernels loaded into its CUDA context
// and scratch memory. Both are freed when the machine destroys the context.
type context struct {
	ctx    *driver.Context
	loader *loader.Loader
	stream *driver.Stream

	mu      sync.Mutex
	scratch driver.Ptr
	size    int64 // of scratch
}

// contexts are those of the living engines. The keys are weak: the entry of a machine that is
// collected goes with it, and another machine at its address has another key.
var contexts struct {
	sync.Mutex
	of map[weak.Pointer[cuda.Engine]]*context
}

func contextOf(e *cuda.Engine, device int) (*context, error) {
	contexts.Lock()
	defer contexts.Unlock()
	key := weak.Make(e)
	if c := contexts.of[key]; c != nil {
		return c, nil
	}
	d, err := driver.Get(device)
	if err != nil {
		return nil, err
	}
	if e.Context() == nil || e.Context().Context == nil {
		return nil, errors.New("the machine's engine has no CUDA context")
	}
	handle := e.Context().CUDAContext() // a struct of nothing but the CUcontext
	ctx := d.Adopt(*(*uintptr)(unsafe.Pointer(&handle)))
	c := &context{ctx: ctx, loader: loader.New(ctx), stream: ctx.DefaultStream()}
	for k := range contexts.of {
		if k.Value() == nil {
			delete(contexts.of, k)
		}
	}
	if contexts.of == nil {
		contexts.of = map[weak.Pointer[cuda.Engine]]*context{}
	}
	contexts.of[key] = c
	return c, nil
}

// engine is that of a device of a machine.
func engine(extern gorgonia.External, dev gorgonia.Device) (*cuda.Engine, error) {
	m, ok := extern.(gorgonia.CUDAMachine)
	if !ok {
		return nil, fmt.Errorf("tape: got a %T, want a gorgonia.CUDAMachine", extern)
	}
	engines := m.Engines()
	if dev < 0 || int(dev) >= len(engines) {
		return nil, fmt.Errorf("tape: the machine has %d CUDA engines, none for device %v", len(engines), dev)
	}
	return &engines[dev], nil
}

// New is a value of undefined contents in the memory of a machine's engine,
// which both the device and the host can use. A scalar shape makes Gorgonia's
// scalar type.
func New(extern gorgonia.External, dev gorgonia.Device, dt kernels.Dtype, shape tensor.Shape) (gorgonia.Value, error) {
	e, err := engine(extern, dev)
	if err != nil {
		return nil, err
	}
	size := dt.Size()
	for _, d := range shape {
		size *= int64(d)
	}
	mem, err := e.Get(size)
	if err != nil {
		return nil, fmt.Errorf("tape: no %d bytes left in the machine's pool: %w", size, err)
	}
	at := mem.Uintptr()
	if !shape.IsScalar() {
		return tensor.New(tensor.Of(values.Tensor(dt)), tensor.WithShape(shape...), tensor.FromMemory(at, uintptr(size)), tensor.WithEngine(e)), nil
	}
	switch dt {
	case kernels.Float64:
		return (*gorgonia.F64)(foreign(at)), nil
	case kernels.Uint8:
		return (*gorgonia.U8)(foreign(at)), nil
	case kernels.Int32:
		return (*gorgonia.I32)(foreign(at)), nil
	case kernels.Int64:
		return (*gorgonia.I64)(foreign(at)), nil
	case kernels.Int:
		return (*gorgonia.I)(foreign(at)), nil
	}
	return (*gorgonia.F32)(foreign(at)), nil
}

// foreign returns an address outside Go's memory as a pointer.
func foreign(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }

// Run runs an op's plan on a machine's device, in the machine's context and in order with the
// machine's queue, and waits for it. The values must have the plan's types and shapes. If there is
// no kernel for the device, or a value is not contiguous in memory that the device can use, done is
// false: only the queue has run, and all memory is ready for the host.
func Run(extern gorgonia.External, dev gorgonia.Device, op kernels.Planner, out gorgonia.Value, in []gorgonia.Value) (done bool, err error) {
	return run(extern, dev, op, out, in, none)
}

// none is no input.
const none = -1

// run is Run for a plan that takes the output as it is, with a copy of the input start in it unless
// start is none.
func run(extern gorgonia.External, dev gorgonia.Device, op kernels.Planner, out gorgonia.Value, in []gorgonia.Value, start int) (done bool, err error) {
	e, err := engine(extern, dev)
	if err != nil {
		return false, err
	}
	if err := settle(e); err != nil {
		return false, err
	}
	c, err := contextOf(e, int(dev))
	if err != nil {
		return false, err
	}
	address := make([]driver.Ptr, len(in)+1)
	for i, v := range append(in[:len(in):len(in)], out) {
		if t, ok := v.(*tensor.Dense); ok && !values.Contiguous(t) {
			return false, nil
		}
		address[i] = driver.Ptr(v.Uintptr())
		if v.MemSize() > 0 && !c.ctx.OnDevice(address[i]) {
			return false, nil
		}
	}
	p, err := op.Plan(c.loader.Device())
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.Scratch > c.size {
		if err := c.ctx.Free(c.scratch); err != nil {
			return false, err
		}
		c.scratch, c.size = 0, 0
		if c.scratch, err = c.ctx.Alloc(p.Scratch); err != nil {
			return false, fmt.Errorf("%s: scratch memory: %w", p.Op, err)
		}
		c.size = p.Scratch
	}
	bound, err := c.loader.Bind(p, func(r kernels.Ref) driver.Ptr {
		switch {
		case r.Operand == kernels.Scratch:
			return c.scratch + driver.Ptr(r.Offset)
		case r.Operand == kernels.Out:
			return address[len(in)] + driver.Ptr(r.Offset)
		}
		return address[r.Operand] + driver.Ptr(r.Offset)
	})
	if err != nil {
		onHost(err)
		return false, nil
	}
	defer func() { err = errors.Join(err, bound.Close()) }()
	if start != none && address[start] != address[len(in)] {
		if err := c.stream.Copy(address[len(in)], address[start], int64(out.MemSize())); err != nil {
			return false, fmt.Errorf("%s: %w", p.Op, err)
		}
	}
	if err := bound.Run(c.stream); err != nil {
		return false, fmt.Errorf("%s: %w", p.Op, err)
	}
	if err := c.stream.Sync(); err != nil {
		return false, fmt.Errorf("%s: %w", p.Op, err)
	}
	return true, nil
}

// said holds the reasons that onHost has logged.
var said sync.Map

// onHost logs, once for each reason, why ops run on the host.
func onHost(reason error) {
	if _, known := said.LoadOrStore(reason.Error(), true); !known {
		log.Printf("stheno: an op runs on the host: %v", reason)
	}
}

// Settle waits for all work that a machine has queued for a device, after which the host can read
// the device's values.
func Settle(ctx gorgonia.ExecutionContext) error {
	if ctx.External == nil || ctx.Device == gorgonia.CPU {
		return nil
	}
	e, err := engine(ctx.External, ctx.Device)
	if err != nil {
		return err
	}
	return settle(e)
}

// settle has the engine's own goroutine do the queued work, since the queue is not safe for two
// goroutines. That goroutine ends after a failed call and would then never answer, so errors are
// watched meanwhile.
func settle(e *cuda.Engine) error {
	queue := e.Context()
	failed := func() error {
		if err := queue.Errors(); err != nil {
			return fmt.Errorf("tape: an earlier CUDA call of Gorgonia's machine failed: %w", err)
		}
		return nil
	}
	if err := failed(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		done <- queue.Do(func() error {
			queue.DoWork()
			return nil // an error would end the goroutine
		})
	}()
	for {
		select {
		case err := <-done:
			return errors.Join(err, failed())
		case <-time.After(100 * time.Millisecond):
			if err := failed(); err != nil {
				return err
			}
		}
	}
}
