// Package loader prepares plans to run in a CUDA context: it loads the images of their kernels and builds the kernels'
// arguments.
package loader

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/internal/calibration"
	"github.com/stheno-ml/stheno/kernels"
)

// idleModules is the number of modules that stay loaded without a bound plan. It exceeds the number of sources in a program's
// libraries, so only generated modules are unloaded. The memory of idle modules is negligible.
const idleModules = 64

// Loader holds the modules loaded into one context: the modules of bound plans, and the [idleModules] most recently used other
// ones. It is safe for concurrent use.
type Loader struct {
	ctx     *driver.Context
	modules *cache[*module]

	mu    sync.Mutex   // guards the functions of modules and the words
	words []driver.Ptr // zeroed memory for kernels.Arrivals that no bound plan uses
}

// module is a loaded image with the functions used so far.
type module struct {
	*driver.Module
	code      kernels.Code
	functions map[string]*function // by entry point
}

type function struct {
	*driver.Function
	shared int // maximum dynamic shared memory set so far, in bytes
}

// New returns a loader for ctx, with nothing loaded.
func New(ctx *driver.Context) *Loader {
	l := &Loader{ctx: ctx}
	l.modules = newCache(idleModules, l.load, func(m *module) error { return m.Unload() })
	return l
}

// load loads an image into the context.
func (l *Loader) load(image kernels.Image) (*module, error) {
	d := l.ctx.Device
	safe, err := kernels.Load(image)
	if err != nil {
		return nil, err
	}
	code, err := safe.Code(d.Major, d.Minor)
	if err != nil {
		return nil, err
	}
	var m *driver.Module
	if err = driver.CheckDriver(code.MinDriver); err == nil {
		m, err = l.ctx.Load(code.Text)
	}
	if err != nil {
		return nil, fmt.Errorf("image %s for %s: %w", safe.Name(), code.Target, err)
	}
	return &module{m, code, map[string]*function{}}, nil
}

// Preload starts to load the images of plans concurrently. The returned function waits for them, and releases the images that no
// plan bound in the meantime uses. If an image cannot be loaded, Bind returns the error.
//
// The eleven images of a training step took 9.5 ms instead of 15.4 to load and bind (H200, 16 cores, bench/notes/engine.md).
func (l *Loader) Preload(plans []*kernels.Plan) (done func() error) {
	var loading sync.WaitGroup
	var held []*cached[*module]
	seen, turns := map[kernels.Image]bool{}, make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, p := range plans {
		for _, k := range p.Launches {
			image := k.Kernel.Image
			if _, err := kernels.Load(image); err != nil || seen[image] {
				continue
			}
			seen[image] = true
			e := l.modules.enter(image)
			held = append(held, e)
			loading.Go(func() {
				turns <- struct{}{}
				e.load()
				<-turns
			})
		}
	}
	return func() (err error) {
		loading.Wait()
		for _, e := range held {
			err = driver.Join(err, l.modules.release(e))
		}
		held = nil
		return err
	}
}

// Device returns the device that plans for the context are made for.
func (l *Loader) Device() kernels.Device { return Properties(l.ctx.Device) }

// Uncalibrated returns why the file with the device's calibration is not used, nil without such a file or if it is.
func (l *Loader) Uncalibrated() error {
	_, err := calibration.Find(l.Device())
	return err
}

// Properties returns the properties of a device that plans depend on, with its calibration if there is one.
func Properties(d *driver.Device) kernels.Device {
	dev := kernels.Device{Name: d.Name, Major: d.Major, Minor: d.Minor, SMs: d.SMs, SharedOptin: d.SharedOptin, L2: int64(d.L2), Memory: d.Memory,
		Cooperative: d.CooperativeLaunch,
		Bandwidth:   2 * 1000 * float64(d.MemoryClock) * float64(d.BusWidth) / 8, // two transfers a clock
	}
	dev.FMAs = 1000 * float64(d.Clock) * float64(d.SMs) * dev.FMALanes(kernels.Float32)
	dev.Calibration, _ = calibration.Find(dev)
	return dev
}

// Bound is a plan with loaded kernels and built arguments: Run only launches them.
type Bound struct {
	loader   *Loader
	launches []launch
	modules  []*cached[*module] // in use until Close
	word     driver.Ptr         // of kernels.Arrivals, 0 if no launch has it
}

type launch struct {
	function    *driver.Function
	grid, block [3]uint32
	shared      uint32
	cluster     uint32 // blocks, 0 for those of the kernel's code
	cooperative bool
	params      []unsafe.Pointer
}

// Bind loads a plan's kernels and builds their arguments. address returns the address of an operand. The modules stay loaded
// until the Bound is closed.
func (l *Loader) Bind(p *kernels.Plan, address func(kernels.Ref) driver.Ptr) (_ *Bound, err error) {
	b := &Bound{loader: l, launches: make([]launch, len(p.Launches))}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	operand := address
	address = func(r kernels.Ref) driver.Ptr {
		if r.Operand == kernels.Arrivals {
			return b.word
		}
		return operand(r)
	}
	for i, k := range p.Launches {
		if b.word == 0 && slices.Contains(k.Args, any(kernels.At(kernels.Arrivals, 0))) {
			if b.word, err = l.takeWord(); err != nil {
				return nil, err
			}
		}
		f, err := b.function(k.Kernel, k.Shared)
		if err != nil {
			return nil, err
		}
		if k.CoResident || k.Cooperative {
			if err := l.checkCoResident(f, k); err != nil {
				return nil, err
			}
		}
		params, err := l.params(k, address)
		if err != nil {
			return nil, err
		}
		b.launches[i] = launch{f, dim3(k.Grid), dim3(k.Block), uint32(k.Shared), uint32(k.Cluster), k.Cooperative, params}
	}
	return b, nil
}

// takeWord returns a zeroed word. Words are a sector of memory apart, and stay allocated as long as the context.
func (l *Loader) takeWord() (driver.Ptr, error) {
	const sector, count = 32, 128
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.words) == 0 {
		at, err := l.ctx.Alloc(sector * count)
		if err == nil {
			err = l.ctx.Memset8(at, 0, sector*count)
		}
		if err != nil {
			return 0, fmt.Errorf("memory for arrivals: %w", err)
		}
		for i := range count {
			l.words = append(l.words, at+driver.Ptr(sector*i))
		}
	}
	w := l.words[len(l.words)-1]
	l.words = l.words[:len(l.words)-1]
	return w, nil
}

// CheckSizes returns an error if the number or the sizes of a launch's arguments differ from the kernel's parameters, as far as
// the driver reports these.
func (b *Bound) CheckSizes(p *kernels.Plan) error {
	for i, l := range b.launches {
		if want, ok := l.function.ParamSizes(); ok {
			if err := checkSizes(p.Launches[i].Args, want); err != nil {
				return fmt.Errorf("kernel %s: %w", l.function.Name, err)
			}
		}
	}
	return nil
}

// checkSizes compares arguments with the sizes of a kernel's parameters.
func checkSizes(args []any, want []int) error {
	if len(args) != len(want) {
		return fmt.Errorf("got %d arguments, want %d", len(args), len(want))
	}
	for i, a := range args {
		size := 8 // a Ref, an int64 or a float64
		switch a.(type) {
		case int32, float32:
			size = 4
		case kernels.TensorMap:
			size = 128
		}
		if size != want[i] {
			return fmt.Errorf("argument %d: got a %T of %d bytes, want %d bytes", i, a, size, want[i])
		}
	}
	return nil
}

// params returns pointers to a launch's arguments.
func (l *Loader) params(k kernels.Launch, address func(kernels.Ref) driver.Ptr) ([]unsafe.Pointer, error) {
	params := make([]unsafe.Pointer, len(k.Args))
	for n, a := range k.Args {
		switch a := a.(type) {
		case kernels.Ref:
			at := address(a)
			params[n] = unsafe.Pointer(&at)
		case kernels.TensorMap:
			m, err := l.tensorMap(a, address(a.Ref))
			if err != nil {
				return nil, fmt.Errorf("kernel %s: argument %d: %w", k.Kernel.Entry, n, err)
			}
			params[n] = m
		case int32, int64, float32, float64:
			v := reflect.New(reflect.TypeOf(a))
			v.Elem().Set(reflect.ValueOf(a))
			params[n] = v.UnsafePointer()
		default:
			return nil, fmt.Errorf("kernel %s: argument %d is a %T, want a Ref, TensorMap, int32, int64, float32 or float64", k.Kernel.Entry, n, a)
		}
	}
	return params, nil
}

// tensorMap returns the encoded tensor map of the tensor at an address.
func (l *Loader) tensorMap(t kernels.TensorMap, at driver.Ptr) (unsafe.Pointer, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	tensor := driver.Tensor{
		Address: at,
		Type:    [...]driver.TensorType{kernels.TensorBF16: driver.BFloat16, kernels.TensorFloat32: driver.Float32, kernels.TensorTF32: driver.TFloat32}[t.Element],
		Extents: t.Extents,
		Strides: t.Strides,
		Box:     t.Box,
		Swizzle: t.Swizzle,
	}
	if w := t.Windows; w != nil {
		tensor.Lower, tensor.Upper, tensor.Steps = w.Lower, w.Upper, w.Steps
	}
	return l.ctx.Encode(tensor)
}

// Run queues the launches on a stream.
func (b *Bound) Run(s *driver.Stream) error {
	for i := range b.launches {
		l := &b.launches[i]
		var err error
		if l.cluster > 0 {
			err = s.LaunchClusters(l.function, l.grid, l.block, l.shared, l.cluster, l.params)
		} else {
			err = s.Launch(l.function, l.grid, l.block, l.shared, l.cooperative, l.params)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close allows the plan's modules to be unloaded. The device must have finished with the plan, and graphs captured from it must
// be closed. Further calls do nothing.
func (b *Bound) Close() error {
	var errs []error
	for _, m := range b.modules {
		errs = append(errs, b.loader.modules.release(m))
	}
	if b.word != 0 { // zero again, since the device has finished
		b.loader.mu.Lock()
		b.loader.words = append(b.loader.words, b.word)
		b.loader.mu.Unlock()
	}
	b.modules, b.launches, b.word = nil, nil, 0
	return errors.Join(errs...)
}

// checkCoResident returns an error with the maximum number of resident blocks if the blocks of a launch do not fit on the device
// at once: they would deadlock.
func (l *Loader) checkCoResident(f *driver.Function, k kernels.Launch) error {
	threads := k.Block[0] * k.Block[1] * k.Block[2]
	each, err := f.MaxActiveBlocks(threads, k.Shared)
	if err != nil {
		return err
	}
	d := l.ctx.Device
	if blocks := k.Blocks(); blocks > each*d.SMs {
		return fmt.Errorf("kernel %s: got %d blocks of %d threads that wait for one another, want at most %d, as many as can be on %s at once (%d on each of %d multiprocessors)",
			k.Kernel.Entry, blocks, threads, each*d.SMs, d.Name, each, d.SMs)
	}
	return nil
}

func dim3(v [3]int) [3]uint32 { return [3]uint32{uint32(v[0]), uint32(v[1]), uint32(v[2])} }

// function returns a kernel that may be launched with that many bytes of dynamic shared memory. It loads the kernel's module
// at first use; the module stays in use until b is closed.
func (b *Bound) function(k *kernels.Kernel, shared int) (*driver.Function, error) {
	l := b.loader
	c, err := l.modules.acquire(k.Image)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", k.Entry, err)
	}
	b.modules = append(b.modules, c)
	m := c.module()
	l.mu.Lock()
	defer l.mu.Unlock()
	f := m.functions[k.Entry]
	if f == nil {
		df, err := m.Function(k.Entry)
		if err != nil {
			return nil, err
		}
		df.WaitsForDependencies = m.code.WaitsForDependencies(k.Entry)
		f = &function{df, l.ctx.Device.SharedPerBlock}
		// The limit that needs no attribute includes static shared memory.
		if a, err := df.Attributes(); err == nil {
			f.shared -= a.Shared
		}
		m.functions[k.Entry] = f
	}
	if shared > f.shared {
		if err := f.SetMaxShared(shared); err != nil {
			return nil, err
		}
		f.shared = shared
	}
	return f.Function, nil
}
