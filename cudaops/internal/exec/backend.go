// Package exec runs placed programs: on a CUDA device through the driver, or on
// the host by the kernels' Go bodies.
package exec

import (
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// Span is a range of a backend's arena or of its Home, in bytes.
type Span struct {
	Offset, Size int64
	Home         program.Memory // from NewMemory of a backend of the same device; nil selects the arena
}

// Outputs returns the span of each output of a plan, within the span of all outputs.
func Outputs(p *kernels.Plan, all Span) []Span {
	if len(p.Parts) == 0 {
		return []Span{all}
	}
	list := make([]Span, len(p.Parts))
	for k, at := range p.Parts {
		list[k] = Span{all.Offset + at, p.OutputBytes(k), all.Home}
	}
	return list
}

// opener is a backend whose memory and whose work have to wait until the device is ready.
type opener interface {
	// Open waits until the device is ready. Further calls do nothing.
	Open() error
}

// Open waits until a backend's device is ready.
func Open(b Backend) error {
	if b, ok := b.(opener); ok {
		return b.Open()
	}
	return nil
}

// preloader is a backend that loads the code of all plans concurrently, before they are bound. done waits for it.
type preloader interface {
	Preload(plans []*kernels.Plan) (done func() error)
}

// Preloads returns a function that starts to load the kernels of a plan, nil if a backend loads none. done waits for them, after the plans that use them have been bound.
func Preloads(b Backend) (start func(*kernels.Plan), done func() error) {
	l, ok := b.(preloader)
	if !ok {
		return nil, func() error { return nil }
	}
	var all []func() error
	begun := map[*kernels.Plan]bool{} // equal instructions share a plan
	start = func(p *kernels.Plan) {
		if !begun[p] {
			begun[p] = true
			all = append(all, l.Preload([]*kernels.Plan{p}))
		}
	}
	return start, func() error {
		var errs []error
		for _, done := range all {
			errs = append(errs, done())
		}
		return driver.Join(errs...)
	}
}

// bulkUploader is a backend that copies many or large values in less time than Upload takes for them one by one. uploadAll waits for the copies.
type bulkUploader interface{ uploadAll(list []upload) error }

// Backend runs plans on one arena of memory and on memory that it shares with other backends of its device. It executes work in the order of the calls; Sync waits for all of it. A Backend
// must not be used concurrently.
type Backend interface {
	// Device returns the properties that plans are made for.
	Device() kernels.Device
	// Name returns the backend's name in reports.
	Name() string
	// Alloc allocates the arena; it is called once.
	Alloc(bytes int64) error
	// NewMemory allocates zeroed memory, which outlives the backend.
	NewMemory(bytes int64) (program.Memory, error)
	// Clear fills a span with zeros.
	Clear(s Span) error
	// Bind makes a plan ready to run on spans of the arena, one for each input and output.
	Bind(p *kernels.Plan, in, out []Span, scratch Span) (run func() error, err error)
	// Collective makes a collective ready to run: of each input of all ranks, of an element type, into the output of the same index.
	Collective(c kernels.Collective, d []kernels.Dtype, in, out []Span) (run func() error, err error)
	// Upload fills a span; src must not change before Sync.
	Upload(to Span, src []byte) error
	// Download copies a span into dst, which is complete after Sync.
	Download(dst []byte, from Span) error
	// Capture records pieces of work without executing them, and returns a function that queues all of them at once.
	// Independent pieces may run concurrently. Copies must be between the arena and memory from Stage.
	Capture(work []Work) (launch func() error, err error)
	// Stage returns n bytes of host memory for captured copies, or nil if captured copies may use any memory.
	Stage(n int64) ([]byte, error)
	// Sync waits for all work. Its error may come from any earlier work.
	Sync() error
	// Events makes timing events until there are n. Record records event i after the work queued so far, in Capture in each launch; Elapsed
	// returns the time between two events after Sync, which is negative if the second was recorded first.
	Events(n int) error
	Record(i int) error
	Elapsed(i, j int) (time.Duration, error)
	// Close releases everything. Further calls do nothing.
	Close() error
}
