package exec

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/loader"
	"github.com/stheno-ml/stheno/cudaops/internal/nccl"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// GPUBackend is the backend of a CUDA device. It owns an arena and a stream; all backends of the process share the device's
// context and loader.
type GPUBackend struct {
	*device
	stream *driver.Stream // during Capture, the capturing stream
	arena  driver.Ptr
	async  copyStream
	comm   *nccl.Comm // nil if this GPU is the only one
	watch  *watch     // of collectives, or nil
	rank   int        // among the GPUs of this process
	// hostMemory guards staged, which Stage appends to from several goroutines.
	hostMemory sync.Mutex
	staged     []*driver.Pinned
	events     []*driver.Event
	graphs     []*driver.Graph
	record     bool // during Capture
	fullEdges  bool // disables programmatic dependent launch in captured graphs
	bound      []*loader.Bound
	once       sync.Once
	closed     error
}

var _ Backend = (*GPUBackend)(nil)

// OpenGPU returns a backend on CUDA device i. The error wraps
// [driver.ErrNoDevice] if there is none that can be used.
func OpenGPU(i int) (*GPUBackend, error) {
	g, err := StartGPU(i)
	if err == nil {
		err = g.Open()
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

// StartGPU is OpenGPU that does not wait for the device's context, which takes as long as it takes to compile a graph. Before Open, programs can be
// compiled for the backend, and Preload can be called.
func StartGPU(i int) (*GPUBackend, error) {
	d, err := startDevice(i)
	if err != nil {
		return nil, err
	}
	return &GPUBackend{device: d}, nil
}

// Open implements opener.
func (g *GPUBackend) Open() (err error) {
	if g.stream != nil {
		return nil
	}
	if err := g.wait(); err != nil {
		return err
	}
	g.stream, err = g.ctx.NewStream()
	return err
}

func (g *GPUBackend) Device() kernels.Device { return g.loader.Device() }
func (g *GPUBackend) Name() string           { return g.ctx.Device.Name }

// Uncalibrated returns why the file with the device's calibration is not used, or nil.
func (g *GPUBackend) Uncalibrated() error { return g.loader.Uncalibrated() }

func (g *GPUBackend) Alloc(bytes int64) (err error) {
	if bytes > 0 {
		g.arena, err = g.ctx.Alloc(bytes)
	}
	return err
}

func (g *GPUBackend) Clear(s Span) error {
	return g.ctx.Memset8(g.address(s), 0, s.Size)
}

func (g *GPUBackend) NewMemory(bytes int64) (program.Memory, error) {
	at, err := g.ctx.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	m := &gpuMemory{g.ctx, at}
	if err := g.ctx.Memset8(at, 0, bytes); err != nil {
		return nil, driver.Join(err, m.Free())
	}
	return m, nil
}

// gpuMemory is memory of GPUBackend.NewMemory.
type gpuMemory struct {
	ctx *driver.Context
	at  driver.Ptr
}

func (m *gpuMemory) Read(dst []byte, offset int64) error {
	return m.ctx.Download(dst, m.at+driver.Ptr(offset))
}

func (m *gpuMemory) Write(offset int64, src []byte) error {
	return m.ctx.Upload(m.at+driver.Ptr(offset), src)
}

func (m *gpuMemory) Free() error { return m.ctx.Free(m.at) }

// Context returns the device's context.
func (g *GPUBackend) Context() *driver.Context { return g.ctx }

// Stream returns the work stream.
func (g *GPUBackend) Stream() *driver.Stream { return g.stream }

// Address returns the address of a byte of the arena. Before Alloc the arena starts at 0, so that offsets are addresses.
func (g *GPUBackend) Address(offset int64) driver.Ptr { return g.arena + driver.Ptr(offset) }

// address returns the address of a span.
func (g *GPUBackend) address(s Span) driver.Ptr {
	if s.Home != nil {
		return ofRank(s.Home, g.rank).(*gpuMemory).at + driver.Ptr(s.Offset)
	}
	return g.Address(s.Offset)
}

// Preload starts to load the kernels of plans; done waits for it. The plans must be bound before done is called.
func (g *GPUBackend) Preload(plans []*kernels.Plan) (done func() error) {
	return g.loader.Preload(plans)
}

// Load loads a plan's kernels and binds its operands to addresses. The caller closes the result.
func (g *GPUBackend) Load(p *kernels.Plan, in, out []Span, scratch Span) (*loader.Bound, error) {
	return g.loader.Bind(p, func(r kernels.Ref) driver.Ptr {
		s := scratch
		switch {
		case r.Operand == kernels.Out:
			var k int
			k, r.Offset = p.Part(r.Offset)
			s = out[k]
		case r.Operand >= 0:
			s = in[r.Operand]
		}
		return g.address(s) + driver.Ptr(r.Offset)
	})
}

func (g *GPUBackend) Bind(p *kernels.Plan, in, out []Span, scratch Span) (func() error, error) {
	bound, err := g.Load(p, in, out, scratch)
	if err != nil {
		return nil, err
	}
	g.bound = append(g.bound, bound)
	launch := func() error { return bound.Run(g.stream) }
	if !p.Graph {
		return launch, nil
	}
	graph, err := g.Capture([]Work{{Queue: launch}})
	if err != nil {
		return nil, fmt.Errorf("graph of %d launches: %w", len(p.Launches), err)
	}
	return func() error {
		if g.record { // the launches become part of the captured graph
			return launch()
		}
		return graph()
	}, nil
}

// Capture implements Backend: the work becomes a CUDA graph.
func (g *GPUBackend) Capture(work []Work) (func() error, error) {
	graph, err := g.ctx.Capture(!g.fullEdges, func(s *driver.Stream) error {
		own := g.stream
		g.stream, g.record = s, true
		defer func() { g.stream, g.record = own, false }()
		return Record(s, work)
	})
	if err != nil {
		return nil, err
	}
	g.graphs = append(g.graphs, graph)
	return func() error { return g.stream.LaunchGraph(graph) }, nil
}

// Recording is a stream that captures the work queued on it. SetDependencies sets the graph nodes that the next work waits
// for; Dependencies returns them.
type Recording interface {
	SetDependencies([]driver.GraphNode) error
	Dependencies() ([]driver.GraphNode, error)
}

// Record queues work on a capturing stream, each piece with the dependencies that it names.
func Record(s Recording, work []Work) error {
	tails := make([][]driver.GraphNode, len(work)) // by piece, the nodes that its dependents wait for
	for i, w := range work {
		var dependencies []driver.GraphNode
		for _, j := range w.After {
			dependencies = append(dependencies, tails[j]...)
		}
		slices.Sort(dependencies)
		err := s.SetDependencies(slices.Compact(dependencies))
		if err == nil {
			err = w.Queue()
		}
		if err == nil {
			tails[i], err = s.Dependencies()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Stage implements Backend: the memory is pinned.
func (g *GPUBackend) Stage(n int64) ([]byte, error) {
	p, err := g.ctx.AllocPinned(n)
	if err != nil {
		return nil, err
	}
	g.hostMemory.Lock()
	defer g.hostMemory.Unlock()
	g.staged = append(g.staged, p)
	return p.Bytes, nil
}

func (g *GPUBackend) Upload(to Span, src []byte) error {
	dst := g.address(to)
	if g.smallCopy(dst, src) {
		return g.copy(dst, driver.Address(src), int64(len(src)))
	}
	return g.stream.Upload(dst, src)
}

func (g *GPUBackend) Download(dst []byte, from Span) error {
	src := g.address(from)
	if g.smallCopy(src, dst) {
		return g.copy(driver.Address(dst), src, int64(len(dst)))
	}
	return g.stream.Download(dst, src)
}

// copyLimit is the size in bytes of the largest copy between staging memory and the device that a kernel makes. In a graph
// that starts and ends with a copy of 4 KB, kernels took 2.3 us for both, and the driver's copies 6 to 12 us (H200,
// bench/notes/engine.md). Larger copies use the copy engines, which occupy no SM.
const copyLimit = 64 << 10

// smallCopy reports whether a kernel copies between host memory and a device address. The copy must be small and part of a
// graph, where all host memory is pinned. The kernel accesses 16 bytes at a time.
func (g *GPUBackend) smallCopy(at driver.Ptr, m []byte) bool {
	return g.record && len(m) > 0 && len(m) <= copyLimit && (at|driver.Address(m))%16 == 0
}

// copy queues a copy of n bytes by a kernel.
func (g *GPUBackend) copy(dst, src driver.Ptr, n int64) error {
	p, err := CopyPlan(g.Device(), n)
	if err != nil {
		return err
	}
	bound, err := g.loader.Bind(p, func(r kernels.Ref) driver.Ptr {
		if r.Operand == kernels.Out {
			return dst + driver.Ptr(r.Offset)
		}
		return src + driver.Ptr(r.Offset)
	})
	if err != nil {
		return err
	}
	g.bound = append(g.bound, bound)
	return bound.Run(g.stream)
}

// CopyPlan plans a copy of n bytes.
func CopyPlan(dev kernels.Device, n int64) (*kernels.Plan, error) {
	d := kernels.Uint8
	if n%4 == 0 {
		d = kernels.Float32
	}
	identity, err := expr.Identity(d)
	if err != nil {
		return nil, err
	}
	shape := []int{int(n / d.Size())}
	return codegen.Map(dev, identity, shape, codegen.Dense(shape))
}

func (g *GPUBackend) Sync() error { return g.watched(g.stream.Sync) }

// watched waits for the device, and watches collectives meanwhile.
func (g *GPUBackend) watched(wait func() error) error {
	if g.watch != nil {
		return g.watch.during(wait)
	}
	return wait()
}

func (g *GPUBackend) Events(n int) error {
	for len(g.events) < n {
		e, err := g.ctx.NewEvent()
		if err != nil {
			return err
		}
		g.events = append(g.events, e)
	}
	return nil
}

func (g *GPUBackend) Record(i int) error {
	if g.record {
		return g.stream.RecordInGraph(g.events[i])
	}
	return g.stream.Record(g.events[i])
}

func (g *GPUBackend) Elapsed(i, j int) (time.Duration, error) {
	return driver.Elapsed(g.events[i], g.events[j])
}

func (g *GPUBackend) Close() error {
	g.once.Do(func() {
		if g.stream == nil { // not opened
			return
		}
		errs := append([]error{g.Sync()}, g.closeCopies()...)
		for _, e := range g.events {
			errs = append(errs, e.Close())
		}
		for _, graph := range g.graphs {
			errs = append(errs, graph.Close())
		}
		for _, p := range g.staged {
			errs = append(errs, p.Free())
		}
		for _, b := range g.bound {
			errs = append(errs, b.Close())
		}
		errs = append(errs, g.leaveRanks(), g.ctx.Free(g.arena), g.stream.Close())
		g.closed = driver.Join(errs...)
	})
	return g.closed
}
