package exec

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/hostmem"
	"github.com/stheno-ml/stheno/kernels"
)

// HostBackend runs the Go bodies of the kernels, synchronously. The zero value is ready for Alloc.
type HostBackend struct {
	BLAS  kernels.BLAS // nil selects gonum's
	Ranks Exchange     // exchanges data with other ranks; nil if there are none
	Rank  int

	arena  []byte
	events []time.Time
}

var _ Backend = (*HostBackend)(nil)

func (h *HostBackend) Device() kernels.Device { return kernels.HostDevice() }
func (h *HostBackend) Name() string           { return "host backend" }

func (h *HostBackend) Alloc(bytes int64) (err error) {
	h.arena, err = HostMemory(bytes)
	return err
}

// HostMemory returns zeroed memory aligned to program.Alignment.
func HostMemory(bytes int64) ([]byte, error) {
	if err := hostmem.Check(bytes); err != nil {
		return nil, err
	}
	const words = program.Alignment / 8
	memory := kernels.Bytes(make([]float64, bytes/8+words))
	skip := int64(-uintptr(unsafe.Pointer(&memory[0])) & (program.Alignment - 1))
	return memory[skip : skip+bytes : skip+bytes], nil
}

// Memory returns the bytes of a span.
func (h *HostBackend) Memory(s Span) []byte {
	from := h.arena
	if s.Home != nil {
		from = ofRank(s.Home, h.Rank).(*hostMemory).bytes
	}
	return from[s.Offset : s.Offset+s.Size : s.Offset+s.Size]
}

func (h *HostBackend) NewMemory(bytes int64) (program.Memory, error) {
	m, err := HostMemory(bytes)
	if err != nil {
		return nil, err
	}
	return &hostMemory{m}, nil
}

// hostMemory is memory of HostBackend.NewMemory.
type hostMemory struct{ bytes []byte }

func (m *hostMemory) Read(dst []byte, offset int64) error {
	copy(dst, m.bytes[offset:])
	return nil
}

func (m *hostMemory) Write(offset int64, src []byte) error {
	copy(m.bytes[offset:], src)
	return nil
}

func (m *hostMemory) Free() error {
	m.bytes = nil
	return nil
}

func (h *HostBackend) Clear(s Span) error {
	clear(h.Memory(s))
	return nil
}

func (h *HostBackend) Bind(p *kernels.Plan, in, out []Span, scratch Span) (func() error, error) {
	inputs, outputs, s := program.Collect(in, h.Memory), program.Collect(out, h.Memory), h.Memory(scratch)
	return func() error { return kernels.Host{BLAS: h.BLAS}.Run(p, inputs, outputs, s) }, nil
}

func (h *HostBackend) Collective(c kernels.Collective, d []kernels.Dtype, in, out []Span) (func() error, error) {
	if h.Ranks == nil {
		return nil, fmt.Errorf("%v: got a backend without other ranks", c)
	}
	return func() error {
		for i := range in {
			if c.Kind == kernels.OwnPart {
				copy(h.Memory(out[i]), h.Memory(in[i])[int64(h.Rank)*out[i].Size:])
				continue
			}
			if err := h.Ranks.Exchange(c, d[i], h.Memory(in[i]), h.Memory(out[i])); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func (h *HostBackend) Upload(to Span, src []byte) error {
	copy(h.Memory(to), src)
	return nil
}

func (h *HostBackend) Download(dst []byte, from Span) error {
	copy(dst, h.Memory(from))
	return nil
}

// Capture implements Backend: the returned function executes the work.
func (h *HostBackend) Capture(work []Work) (func() error, error) {
	return func() error {
		for _, w := range work {
			if err := w.Queue(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func (h *HostBackend) Stage(int64) ([]byte, error) { return nil, nil }
func (h *HostBackend) Sync() error                 { return nil }

func (h *HostBackend) Events(n int) error {
	h.events = make([]time.Time, max(n, len(h.events)))
	return nil
}

func (h *HostBackend) Record(i int) error {
	h.events[i] = time.Now()
	return nil
}

func (h *HostBackend) Elapsed(i, j int) (time.Duration, error) {
	return h.events[j].Sub(h.events[i]), nil
}

func (h *HostBackend) Close() error {
	h.arena = nil
	return nil
}
