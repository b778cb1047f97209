package cudaops

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// A backend runs plans on one arena of memory. Work is done in the order of
// the calls; sync waits for all of it. The VM above it is the same for every
// backend.
type backend interface {
	// device is what plans are made for.
	device() kernels.Device
	// name is what reports call it.
	name() string
	// alloc reserves the arena; it is called once.
	alloc(bytes int64) error
	// bind makes a plan ready to run on spans of the arena.
	bind(p *kernels.Plan, in []span, out, scratch span) (run func() error, err error)
	// upload fills a span; src must not change before sync.
	upload(to span, src []byte) error
	// download gives a span's contents; dst is filled after sync.
	download(dst []byte, from span) error
	sync() error
	// clock makes n marks; mark sets one in the order of the work, and elapsed
	// gives the time between two after sync.
	clock(n int) error
	mark(i int) error
	elapsed(i, j int) (time.Duration, error)
	// free gives everything back. Further calls do nothing.
	free() error
}

// host is the backend of the Go bodies. Its work is done when a call returns.
type host struct {
	arena []byte
	marks []time.Time
}

func (h *host) device() kernels.Device { return kernels.HostDevice() }

func (h *host) name() string { return "host backend" }

func (h *host) alloc(bytes int64) (err error) {
	defer func() { // make panics where it can tell that there is no such memory
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot allocate %d bytes: %v", bytes, r)
		}
	}()
	const words = alignment / 8
	memory := kernels.Bytes(make([]float64, bytes/8+words))
	skip := -uintptr(unsafe.Pointer(&memory[0])) & (alignment - 1)
	h.arena = memory[skip : int64(skip)+bytes]
	return nil
}

func (h *host) slice(s span) []byte { return h.arena[s.offset : s.offset+s.size : s.offset+s.size] }

func (h *host) bind(p *kernels.Plan, in []span, out, scratch span) (func() error, error) {
	inputs := make([][]byte, len(in))
	for i, s := range in {
		inputs[i] = h.slice(s)
	}
	o, s := h.slice(out), h.slice(scratch)
	return func() error { return p.Run(inputs, o, s) }, nil
}

func (h *host) upload(to span, src []byte) error {
	copy(h.slice(to), src)
	return nil
}

func (h *host) download(dst []byte, from span) error {
	copy(dst, h.slice(from))
	return nil
}

func (h *host) sync() error { return nil }

func (h *host) clock(n int) error {
	h.marks = make([]time.Time, n)
	return nil
}

func (h *host) mark(i int) error {
	h.marks[i] = time.Now()
	return nil
}

func (h *host) elapsed(i, j int) (time.Duration, error) { return h.marks[j].Sub(h.marks[i]), nil }

func (h *host) free() error {
	h.arena = nil
	return nil
}
