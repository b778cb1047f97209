// Package loader makes plans ready to run in a CUDA context: it loads the
// images of their kernels and builds the kernels' arguments.
package loader

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/kernels"
)

// Loader holds the kernels loaded so far into one context. It is safe for
// several goroutines.
type Loader struct {
	ctx *driver.Context

	mu        sync.Mutex
	modules   map[string]*driver.Module
	functions map[*kernels.Kernel]*function
}

type function struct {
	*driver.Function
	shared int // dynamic shared memory that it may ask for, bytes
}

// New is a loader into ctx, with nothing loaded.
func New(ctx *driver.Context) *Loader {
	return &Loader{ctx: ctx, modules: map[string]*driver.Module{}, functions: map[*kernels.Kernel]*function{}}
}

// Device is what plans for the context are made for.
func (l *Loader) Device() kernels.Device { return Properties(l.ctx.Device) }

// Properties are those of a device that plans may depend on.
func Properties(d *driver.Device) kernels.Device {
	return kernels.Device{Name: d.Name, Major: d.Major, Minor: d.Minor, SMs: d.SMs, SharedOptin: d.SharedOptin, L2: int64(d.L2), Memory: d.Memory,
		Cooperative: d.CooperativeLaunch}
}

// Bind finds the plan's kernels and builds their arguments, so that a run is
// nothing but launches. address tells where an argument that is an operand
// lies.
func (l *Loader) Bind(p *kernels.Plan, address func(kernels.Ref) driver.Ptr) (run func(*driver.Stream) error, err error) {
	type launch struct {
		function    *driver.Function
		grid, block [3]uint32
		shared      uint32
		cooperative bool
		params      []unsafe.Pointer
	}
	launches := make([]launch, len(p.Launches))
	for i, k := range p.Launches {
		f, err := l.function(k.Kernel, k.Shared)
		if err != nil {
			return nil, err
		}
		if k.Resident || k.Cooperative {
			if err := l.checkResident(f, k); err != nil {
				return nil, err
			}
		}
		params := make([]unsafe.Pointer, len(k.Args))
		for n, a := range k.Args {
			switch a := a.(type) {
			case kernels.Ref:
				at := address(a)
				params[n] = unsafe.Pointer(&at)
			case int32:
				params[n] = unsafe.Pointer(&a)
			case int64:
				params[n] = unsafe.Pointer(&a)
			case float32:
				params[n] = unsafe.Pointer(&a)
			case float64:
				params[n] = unsafe.Pointer(&a)
			case kernels.Dims:
				params[n] = unsafe.Pointer(&a)
			default:
				return nil, fmt.Errorf("argument %d of %s is a %T, which no kernel takes", n, k.Kernel.Entry, a)
			}
		}
		launches[i] = launch{f, dim3(k.Grid), dim3(k.Block), uint32(k.Shared), k.Cooperative, params}
	}
	return func(s *driver.Stream) error {
		for i := range launches {
			l := &launches[i]
			launch := s.Launch
			if l.cooperative {
				launch = s.LaunchCooperative
			}
			if err := launch(l.function, l.grid, l.block, l.shared, l.params); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// checkResident says how many blocks fit on the device at once if those of k do
// not, which would wait for ever for one another.
func (l *Loader) checkResident(f *driver.Function, k kernels.Launch) error {
	threads := k.Block[0] * k.Block[1] * k.Block[2]
	each, err := f.MaxActiveBlocks(threads, k.Shared)
	if err != nil {
		return err
	}
	d := l.ctx.Device
	if blocks := k.Grid[0] * k.Grid[1] * k.Grid[2]; blocks > each*d.SMs {
		return fmt.Errorf("kernel %s: got %d blocks of %d threads that wait for one another, want at most %d, as many as can be on %s at once (%d on each of %d multiprocessors)",
			k.Kernel.Entry, blocks, threads, each*d.SMs, d.Name, each, d.SMs)
	}
	return nil
}

func dim3(v [3]int) [3]uint32 { return [3]uint32{uint32(v[0]), uint32(v[1]), uint32(v[2])} }

// function gives a kernel, loading its module at first use, ready for that
// many bytes of dynamic shared memory.
func (l *Loader) function(k *kernels.Kernel, shared int) (*driver.Function, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.functions[k]
	if f == nil {
		m := l.modules[k.Module]
		if m == nil {
			d := l.ctx.Device
			image, _, minDriver, err := kernels.Image(k.Module, d.Major, d.Minor)
			if err != nil {
				return nil, err
			}
			if m, err = driver.LoadImage(l.ctx, image, minDriver); err != nil {
				return nil, fmt.Errorf("module %s: %w", k.Module, err)
			}
			l.modules[k.Module] = m
		}
		df, err := m.Function(k.Entry)
		if err != nil {
			return nil, err
		}
		f = &function{df, l.ctx.Device.SharedPerBlock}
		// Static shared memory counts against the limit that needs no asking.
		if a, err := df.Attributes(); err == nil {
			f.shared -= a.Shared
		}
		l.functions[k] = f
	}
	if shared > f.shared {
		if err := f.SetMaxShared(shared); err != nil {
			return nil, err
		}
		f.shared = shared
	}
	return f.Function, nil
}
