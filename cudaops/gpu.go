package cudaops

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/loader"
	"github.com/stheno-ml/stheno/kernels"
)

// gpu is the backend of a CUDA device: an arena and a stream of its own on a
// device that all VMs of the process share.
type gpu struct {
	*card
	stream *driver.Stream
	arena  driver.Ptr
	marks  []*driver.Event
	bound  []*loader.Bound
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

func (g *gpu) device() kernels.Device { return g.loader.Device() }

func (g *gpu) name() string { return g.ctx.Device.Name }

func (g *gpu) alloc(bytes int64) (err error) {
	if bytes > 0 {
		g.arena, err = g.ctx.Alloc(bytes)
	}
	return err
}

func (g *gpu) address(offset int64) driver.Ptr { return g.arena + driver.Ptr(offset) }

// load loads a plan's kernels and fixes its addresses.
func (g *gpu) load(p *kernels.Plan, in []span, out, scratch span) (*loader.Bound, error) {
	return g.loader.Bind(p, func(r kernels.Ref) driver.Ptr {
		s := out
		switch {
		case r.Operand == kernels.Scratch:
			s = scratch
		case r.Operand >= 0:
			s = in[r.Operand]
		}
		return g.address(s.offset + r.Offset)
	})
}

// bind makes a plan ready to run until the backend is freed.
func (g *gpu) bind(p *kernels.Plan, in []span, out, scratch span) (func() error, error) {
	bound, err := g.load(p, in, out, scratch)
	if err != nil {
		return nil, err
	}
	g.bound = append(g.bound, bound)
	if !p.Graph {
		return func() error { return bound.Run(g.stream) }, nil
	}
	graph, err := g.ctx.Capture(bound.Run)
	if err != nil {
		return nil, fmt.Errorf("graph of %d launches: %w", len(p.Launches), err)
	}
	g.graphs = append(g.graphs, graph)
	return func() error { return g.stream.LaunchGraph(graph) }, nil
}

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
		for _, b := range g.bound {
			errs = append(errs, b.Close())
		}
		errs = append(errs, g.ctx.Free(g.arena), g.stream.Close())
		g.freed = errors.Join(errs...)
	})
	return g.freed
}

// A card is an open device with the kernels loaded so far. It stays open as
// long as the process: starting a context takes 0.3 s.
type card struct {
	ctx    *driver.Context
	loader *loader.Loader
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
	c := &card{ctx, loader.New(ctx)}
	if cards.open == nil {
		cards.open = map[int]*card{}
	}
	cards.open[i] = c
	return c, nil
}
