package cudaops

import (
	"errors"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/loader"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// sessionDevice is the backend of a [Session] with its memory. It does not refer to the session.
type sessionDevice struct {
	exec.Backend
	held  map[program.Memory]bool
	bound map[kernels.Image]*loader.Bound // on a GPU, the last launch of each image, which keeps its module loaded
}

// launch queues a plan with operands. checked is set if the arguments are known to match the kernel's parameters.
func (d *sessionDevice) launch(p *kernels.Plan, operands []*Buffer, checked bool) error {
	var spans []exec.Span
	for _, m := range operands {
		spans = append(spans, exec.Span{Size: m.size, Home: m.memory})
	}
	gpu, ok := d.Backend.(*exec.GPUBackend)
	if !ok {
		run, err := d.Bind(p, spans, []exec.Span{{}}, exec.Span{})
		if err != nil {
			return err
		}
		return run()
	}
	bound, err := gpu.Load(p, spans, nil, exec.Span{})
	if err != nil {
		return err
	}
	if !checked {
		if err := bound.CheckSizes(p); err != nil {
			return errors.Join(err, bound.Close())
		}
	}
	image := p.Launches[0].Kernel.Image
	old := d.bound[image]
	if d.bound[image] = bound; old != nil {
		if err := old.Close(); err != nil {
			return err
		}
	}
	return bound.Run(gpu.Stream())
}

// free waits for queued work and frees memory.
func (d *sessionDevice) free(m program.Memory) error {
	delete(d.held, m)
	return driver.Join(d.Sync(), m.Free())
}

// close waits for queued work and releases everything.
func (d *sessionDevice) close() error {
	errs := []error{d.Sync()}
	for m := range d.held {
		errs = append(errs, m.Free())
	}
	clear(d.held)
	errs = append(errs, d.Close())
	for _, b := range d.bound {
		errs = append(errs, b.Close())
	}
	return driver.Join(errs...)
}
