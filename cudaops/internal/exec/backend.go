// Package exec runs placed programs: on a CUDA device through the driver, or on
// the host by the kernels' Go bodies.
package exec

import (
	"time"

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

// preloader is a backend that loads the code of all plans concurrently, before they are bound. done waits for it.
type preloader interface {
	Preload(plans []*kernels.Plan) (done func() error)
}

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
