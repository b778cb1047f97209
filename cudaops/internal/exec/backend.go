// Package exec runs placed programs: on a CUDA device through the driver, or on
// the host by the kernels' Go bodies.
package exec

import (
	"time"

	"github.com/stheno-ml/stheno/kernels"
)

// Span is a piece of a backend's arena, in bytes from its start.
type Span struct{ Offset, Size int64 }

// Outputs returns where the outputs of a plan lie in a span of all of them.
func Outputs(p *kernels.Plan, all Span) []Span {
	if len(p.Parts) == 0 {
		return []Span{all}
	}
	list := make([]Span, len(p.Parts))
	for k, at := range p.Parts {
		list[k] = Span{all.Offset + at, p.OutputBytes(k)}
	}
	return list
}

// preloader is a backend whose plans have code to load, which takes less time if it is begun for all of them at once, before
// they are bound. done waits for it.
type preloader interface {
	Preload(plans []*kernels.Plan) (done func() error)
}

// Backend runs plans on one arena of memory. Work is done in the order of the
// calls; Sync waits for all of it. A Backend is for one goroutine at a time.
type Backend interface {
	// Device returns the properties that plans are made for.
	Device() kernels.Device
	// Name returns the backend's name in reports.
	Name() string
	// Alloc reserves the arena; it is called once.
	Alloc(bytes int64) error
	// Clear fills a span with zeros.
	Clear(s Span) error
	// Bind makes a plan ready to run on spans of the arena, one for each input and each
	// output.
	Bind(p *kernels.Plan, in, out []Span, scratch Span) (run func() error, err error)
	// Upload fills a span; src must not change before Sync.
	Upload(to Span, src []byte) error
	// Download copies a span's contents into dst, which is filled after Sync.
	Download(dst []byte, from Span) error
	// Capture records pieces of work, which are not done, and returns a function that queues all
	// of them at once. Those that do not wait for each other may run side by side.
	// Copies among them must be between the arena and memory from Stage.
	Capture(work []Work) (launch func() error, err error)
	// Stage returns n bytes of host memory for copies in work that is captured, nil
	// if copies may take any memory.
	Stage(n int64) ([]byte, error)
	// Sync waits for all work. Its error may be that of any work before.
	Sync() error
	// Events makes n events; Record puts one into the order of the work, and
	// Elapsed returns the time between two of them after Sync.
	Events(n int) error
	Record(i int) error
	Elapsed(i, j int) (time.Duration, error)
	// Close releases everything. Further calls do nothing.
	Close() error
}
