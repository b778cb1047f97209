package cudaops

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/kernels"
)

// gpu is the backend of a CUDA device: an arena and a stream of its own on a
// device that all VMs of the process share.
type gpu struct {
	*card
	stream *driver.Stream
	arena  driver.Ptr
	marks  []*driver.Event
	graphs []*driver.Graph
	once   sync.Once
	freed  error
}

// openGPU makes a backend on device i.
func openGPU(i int) (*gpu, error) {
	c, err := openCard(i)
	if err != nil {
		return nil, err
	}
	s, err := c.ctx.NewStream()
	if err != nil {
		return nil, err
	}
	return &gpu{card: c, stream: s}, nil
}

func (g *gpu) device() kernels.Device { return properties(g.ctx.Device) }

func (g *gpu) name() string { return g.ctx.Device.Name }

func (g *gpu) alloc(bytes int64) (err error) {
	if bytes > 0 {
		g.arena, err = g.ctx.Alloc(bytes)
	}
	return err
}

func (g *gpu) address(offset int64) driver.Ptr { return g.arena + driver.Ptr(offset) }

// bind finds the kernels and builds their arguments: addresses are fixed, so a
// run is nothing but launches.
func (g *gpu) bind(p *kernels.Plan, in []span, out, scratch span) (func() error, error) {
	type launch struct {
		function    *driver.Function
		grid, block [3]uint32
		shared      uint32
		cooperative bool
		params      []unsafe.Pointer
	}
	launches := make([]launch, len(p.Launches))
	for i, l := range p.Launches {
		f, err := g.function(l.Kernel, l.Shared)
		if err != nil {
			return nil, err
		}
		if l.Resident || l.Cooperative {
			if err := g.checkResident(f, l); err != nil {
				return nil, err
			}
		}
		params := make([]unsafe.Pointer, len(l.Args))
		for k, a := range l.Args {
			switch a := a.(type) {
			case kernels.Ref:
				s := out
				switch {
				case a.Operand == kernels.Scratch:
					s = scratch
				case a.Operand >= 0:
					s = in[a.Operand]
				}
				address := uint64(g.address(s.offset + a.Offset))
				params[k] = unsafe.Pointer(&address)
			case int32:
				params[k] = unsafe.Pointer(&a)
			case int64:
				params[k] = unsafe.Pointer(&a)
			case float32:
				params[k] = unsafe.Pointer(&a)
			case float64:
				params[k] = unsafe.Pointer(&a)
			case kernels.Dims:
				params[k] = unsafe.Pointer(&a)
			default:
				return nil, fmt.Errorf("argument %d of %s is a %T, which no kernel takes", k, l.Kernel.Entry, a)
			}
		}
		launches[i] = launch{f, dim3(l.Grid), dim3(l.Block), uint32(l.Shared), l.Cooperative, params}
	}
	launchAll := func(s *driver.Stream) error {
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
	}
	if !p.Graph {
		return func() error { return launchAll(g.stream) }, nil
	}
	graph, err := g.ctx.Capture(launchAll)
	if err != nil {
		return nil, fmt.Errorf("graph of %d launches: %w", len(launches), err)
	}
	g.graphs = append(g.graphs, graph)
	return func() error { return g.stream.LaunchGraph(graph) }, nil
}

// checkResident says how many blocks fit on the device at once if those of l do
// not, which would wait for ever for one another.
func (g *gpu) checkResident(f *driver.Function, l kernels.Launch) error {
	threads := l.Block[0] * l.Block[1] * l.Block[2]
	each, err := f.MaxActiveBlocks(threads, l.Shared)
	if err != nil {
		return err
	}
	blocks, sms := l.Grid[0]*l.Grid[1]*l.Grid[2], g.ctx.Device.SMs
	if blocks > each*sms {
		return fmt.Errorf("kernel %s: got %d blocks of %d threads that wait for one another, want at most %d, as many as can be on %s at once (%d on each of %d multiprocessors)",
			l.Kernel.Entry, blocks, threads, each*sms, g.name(), each, sms)
	}
	return nil
}

func dim3(v [3]int) [3]uint32 { return [3]uint32{uint32(v[0]), uint32(v[1]), uint32(v[2])} }

func (g *gpu) upload(to span, src []byte) error { return g.stream.Upload(g.address(to.offset), src) }

func (g *gpu) download(dst []byte, from span) error {
	return g.stream.Download(dst, g.address(from.offset))
}

func (g *gpu) sync() error { return g.stream.Sync() }

func (g *gpu) clock(n int) error {
	for range n {
		e, err := g.ctx.NewEvent()
		if err != nil {
			return err
		}
		g.marks = append(g.marks, e)
	}
	return nil
}

func (g *gpu) mark(i int) error { return g.stream.Record(g.marks[i]) }

func (g *gpu) elapsed(i, j int) (time.Duration, error) {
	return driver.Elapsed(g.marks[i], g.marks[j])
}

func (g *gpu) free() error {
	g.once.Do(func() {
		errs := []error{g.stream.Sync()}
		for _, e := range g.marks {
			errs = append(errs, e.Close())
		}
		for _, graph := range g.graphs {
			errs = append(errs, graph.Close())
		}
		errs = append(errs, g.ctx.Free(g.arena), g.stream.Close())
		g.freed = errors.Join(errs...)
	})
	return g.freed
}

// A card is an open device with the kernels loaded so far. It stays open as
// long as the process: starting a context takes 0.3 s.
type card struct {
	ctx *driver.Context

	mu        sync.Mutex
	modules   map[string]*driver.Module
	functions map[*kernels.Kernel]*function
}

type function struct {
	*driver.Function
	shared int // dynamic shared memory that it may ask for, bytes
}

var cards struct {
	sync.Mutex
	open map[int]*card
}

func openCard(i int) (*card, error) {
	cards.Lock()
	defer cards.Unlock()
	if c := cards.open[i]; c != nil {
		return c, nil
	}
	d, err := driver.Get(i)
	if err != nil {
		return nil, err
	}
	if err := usable(d); err != nil {
		return nil, err
	}
	ctx, err := d.Open()
	if err != nil {
		return nil, err
	}
	c := &card{ctx: ctx, modules: map[string]*driver.Module{}, functions: map[*kernels.Kernel]*function{}}
	if cards.open == nil {
		cards.open = map[int]*card{}
	}
	cards.open[i] = c
	return c, nil
}

// function gives a kernel, loading its module at first use, ready for that
// many bytes of dynamic shared memory.
func (c *card) function(k *kernels.Kernel, shared int) (*driver.Function, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.functions[k]
	if f == nil {
		m := c.modules[k.Module]
		if m == nil {
			d := c.ctx.Device
			image, _, minDriver, err := kernels.Image(k.Module, d.Major, d.Minor)
			if err != nil {
				return nil, err
			}
			if m, err = driver.LoadImage(c.ctx, image, minDriver); err != nil {
				return nil, fmt.Errorf("module %s: %w", k.Module, err)
			}
			c.modules[k.Module] = m
		}
		df, err := m.Function(k.Entry)
		if err != nil {
			return nil, err
		}
		f = &function{df, c.ctx.Device.SharedPerBlock}
		// Static shared memory counts against the limit that needs no asking.
		if a, err := df.Attributes(); err == nil {
			f.shared -= a.Shared
		}
		c.functions[k] = f
	}
	if shared > f.shared {
		if err := f.SetMaxShared(shared); err != nil {
			return nil, err
		}
		f.shared = shared
	}
	return f.Function, nil
}

func properties(d *driver.Device) kernels.Device {
	return kernels.Device{Name: d.Name, Major: d.Major, Minor: d.Minor, SMs: d.SMs, SharedOptin: d.SharedOptin, L2: int64(d.L2), Memory: d.Memory,
		Cooperative: d.CooperativeLaunch}
}
