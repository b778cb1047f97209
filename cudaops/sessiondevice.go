package cudaops

import (
	"errors"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/loader"
	"github.com/stheno-ml/stheno/kernels"
)

// sessionDevice is the device of a [Session] with its memory. It does not refer to the session.
type sessionDevice interface {
	properties() kernels.Device
	alloc(n int64) (memory, error)
	free(m memory) error
	// upload and download wait for queued work and for the copy.
	upload(to memory, src []byte) error
	download(dst []byte, from memory) error
	// launch queues a plan with operands. checked is set if the arguments are known to match the kernel's parameters.
	launch(p *kernels.Plan, operands []*Buffer, checked bool) error
	sync() error
	// close waits for queued work and releases everything.
	close() error
}

// memory is the memory of a buffer.
type memory struct {
	address driver.Ptr // on a GPU
	bytes   []byte     // on the host
}

// hostSession is the sessionDevice of the host.
type hostSession struct{}

func (hostSession) properties() kernels.Device { return kernels.HostDevice() }

func (hostSession) alloc(n int64) (m memory, err error) {
	m.bytes, err = exec.HostMemory(n)
	return m, err
}

func (hostSession) free(memory) error { return nil }

func (hostSession) upload(to memory, src []byte) error {
	copy(to.bytes, src)
	return nil
}

func (hostSession) download(dst []byte, from memory) error {
	copy(dst, from.bytes)
	return nil
}

func (hostSession) launch(p *kernels.Plan, operands []*Buffer, _ bool) error {
	var inputs [][]byte
	for _, m := range operands {
		inputs = append(inputs, m.memory.bytes)
	}
	return p.Run(inputs, nil, nil)
}

func (hostSession) sync() error  { return nil }
func (hostSession) close() error { return nil }

// gpuSession is the sessionDevice of a CUDA device.
type gpuSession struct {
	gpu   *exec.GPUBackend
	held  map[driver.Ptr]bool
	bound map[kernels.Image]*loader.Bound
}

func (g *gpuSession) properties() kernels.Device { return g.gpu.Device() }

func (g *gpuSession) alloc(n int64) (memory, error) {
	p, err := g.gpu.Context().Alloc(n)
	if err != nil {
		return memory{}, err
	}
	g.held[p] = true
	return memory{address: p}, nil
}

func (g *gpuSession) free(m memory) error {
	delete(g.held, m.address)
	return driver.Join(g.gpu.Sync(), g.gpu.Context().Free(m.address))
}

func (g *gpuSession) upload(to memory, src []byte) error {
	return driver.Join(g.gpu.Stream().Upload(to.address, src), g.gpu.Stream().Sync())
}

func (g *gpuSession) download(dst []byte, from memory) error {
	return driver.Join(g.gpu.Stream().Download(dst, from.address), g.gpu.Stream().Sync())
}

func (g *gpuSession) launch(p *kernels.Plan, operands []*Buffer, checked bool) error {
	var spans []exec.Span // the arena starts at 0, so offsets are addresses
	for _, m := range operands {
		spans = append(spans, exec.Span{Offset: int64(m.memory.address), Size: m.size})
	}
	bound, err := g.gpu.Load(p, spans, nil, exec.Span{})
	if err != nil {
		return err
	}
	if !checked {
		if err := bound.CheckSizes(p); err != nil {
			return errors.Join(err, bound.Close())
		}
	}
	// The last bound launch of each image keeps its module loaded until the session is closed.
	image := p.Launches[0].Kernel.Image
	old := g.bound[image]
	g.bound[image] = bound
	if old != nil {
		if err := old.Close(); err != nil {
			return err
		}
	}
	return bound.Run(g.gpu.Stream())
}

func (g *gpuSession) sync() error { return g.gpu.Sync() }

func (g *gpuSession) close() error {
	errs := []error{g.gpu.Sync()}
	for p := range g.held {
		errs = append(errs, g.gpu.Context().Free(p))
	}
	clear(g.held)
	errs = append(errs, g.gpu.Close())
	for _, b := range g.bound {
		errs = append(errs, b.Close())
	}
	return driver.Join(errs...)
}
