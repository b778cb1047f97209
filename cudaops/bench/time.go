// Package bench runs and times launch plans on a CUDA device, one at a time, and times
// the launches of graphs: for tests of kernels and for measurements. Graphs run on
// cudaops.VM.
package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// Timing is the result of [Time].
type Timing struct {
	// Runs holds times of the plan, each the mean over consecutive runs that take a millisecond together.
	Runs []time.Duration
	// Out is the output after the last timed run. It is filled with NaN before the first run, as is scratch memory, which
	// shows elements that the plan does not write.
	Out []byte
}

// Time runs a plan repeatedly with its operands in device memory, and times it by the device's clock after a warm-up. inputs are
// the plan's inputs as bytes. runs, at least 1, is the number of timed runs; long plans have fewer, so that a call takes
// about three seconds at most. [TimeWithin] has another limit.
//
// Operands that are smaller than four times the L2 cache in total are allocated several times and used alternately, so that every
// run reads memory.
//
// The error wraps cudaops.ErrNoDevice if there is no such device.
func Time(device int, p *kernels.Plan, inputs [][]byte, runs int) (*Timing, error) {
	return TimeWithin(device, p, inputs, runs, 3*time.Second)
}

// TimeWithin is [Time] with a budget: if the runs would exceed it there are fewer, but at least five.
func TimeWithin(device int, p *kernels.Plan, inputs [][]byte, runs int, budget time.Duration) (*Timing, error) {
	if err := checkInputs(p, inputs); err != nil {
		return nil, fmt.Errorf("bench: %s: %w", p.Op, err)
	}
	return onGPU(device, p.Op, func(g *exec.GPUBackend) (*Timing, error) { return timePlan(g, p, inputs, runs, budget) })
}

func timePlan(g *exec.GPUBackend, p *kernels.Plan, inputs [][]byte, runs int, budget time.Duration) (t *Timing, err error) {
	const maxCopies = 64
	copies := int(min(max((4*g.Device().L2+p.Bytes()-1)/max(p.Bytes(), 1), 1), maxCopies))
	var size int64
	take := func(bytes int64) exec.Span {
		s := exec.Span{Offset: size, Size: bytes}
		size += padded(bytes)
		return s
	}
	in, out := make([][]exec.Span, copies), make([]exec.Span, copies)
	for c := range copies {
		for _, bytes := range p.Inputs {
			in[c] = append(in[c], take(bytes))
		}
		out[c] = take(p.Out)
	}
	scratch := take(p.Scratch)
	if err := g.Alloc(size); err != nil {
		return nil, err
	}
	if err := g.Context().Memset8(g.Address(0), poison, size); err != nil {
		return nil, err
	}
	turns := make([]func() error, copies)
	for c := range copies {
		for i, s := range in[c] {
			if c == 0 {
				err = g.Upload(s, inputs[i])
			} else {
				err = g.Stream().Copy(g.Address(s.Offset), g.Address(in[0][i].Offset), s.Size)
			}
			if err != nil {
				return nil, err
			}
		}
		if turns[c], err = g.Bind(p, in[c], exec.Outputs(p, out[c]), scratch); err != nil {
			return nil, err
		}
	}
	last := 0
	times, err := repeat(g, runs, budget, func(i int) error {
		last = i % copies
		return turns[last]()
	})
	if err != nil {
		return nil, err
	}
	t = &Timing{times, kernels.Bytes(make([]float64, (p.Out+7)/8))[:p.Out]}
	if err := g.Download(t.Out, out[last]); err != nil {
		return nil, err
	}
	return t, g.Sync()
}

// CopyBandwidth measures the bandwidth of copies within device memory in GB/s, counting bytes read and written. It is the median
// over copies of random numbers, of 2 GiB or a sixteenth of the memory if that is less.
func CopyBandwidth(device int) (float64, error) { return onGPU(device, "copy", copyBandwidth) }

func copyBandwidth(g *exec.GPUBackend) (float64, error) {
	size := min(2<<30, g.Device().Memory/16) &^ (program.Alignment - 1)
	if err := g.Alloc(2 * size); err != nil {
		return 0, err
	}
	block := make([]byte, min(64<<20, size))
	rand.NewChaCha8([32]byte{}).Read(block) // reads always fill the slice
	if err := g.Upload(exec.Span{Offset: 0, Size: size}, block); err != nil {
		return 0, err
	}
	for done := int64(len(block)); done < size; done *= 2 {
		if err := g.Stream().Copy(g.Address(done), g.Address(0), min(done, size-done)); err != nil {
			return 0, err
		}
	}
	times, err := repeat(g, 31, 3*time.Second, func(int) error { return g.Stream().Copy(g.Address(size), g.Address(0), size) })
	if err != nil {
		return 0, err
	}
	return float64(2*size) / float64(median(times)), nil // bytes per ns
}

// repeat times run, whose argument counts the calls. It warms up for 50 ms to estimate the time of a run, and omits runs that
// exceed the budget.
func repeat(g exec.Backend, runs int, budget time.Duration, run func(i int) error) ([]time.Duration, error) {
	warmUp := min(50*time.Millisecond, budget)
	const (
		interval = time.Millisecond // minimum between events
		fewest   = 5
		longest  = 4096 // maximum of runs between two events
	)
	if runs < 1 {
		return nil, fmt.Errorf("got %d timed runs, want at least 1", runs)
	}
	if err := g.Events(max(runs, fewest) + 1); err != nil {
		return nil, err
	}
	calls := 0
	group := func(n int) error {
		for range n {
			if err := run(calls); err != nil {
				return err
			}
			calls++
		}
		return nil
	}
	var each, warm time.Duration
	for n := 1; ; n *= 2 {
		if err := g.Record(0); err != nil {
			return nil, err
		}
		if err := group(n); err != nil {
			return nil, err
		}
		if err := g.Record(1); err != nil {
			return nil, err
		}
		if err := g.Sync(); err != nil {
			return nil, err
		}
		d, err := g.Elapsed(0, 1)
		if err != nil {
			return nil, err
		}
		warm += d
		if each = max(d/time.Duration(n), 1); warm >= warmUp || n >= longest {
			break
		}
	}
	n := int(min(max(interval/each, 1), longest))
	if maxRuns := int(budget / (each * time.Duration(n))); runs > maxRuns {
		runs = min(runs, max(maxRuns, fewest))
	}
	for i := range runs + 1 {
		if i > 0 {
			if err := group(n); err != nil {
				return nil, err
			}
		}
		if err := g.Record(i); err != nil {
			return nil, err
		}
	}
	if err := g.Sync(); err != nil {
		return nil, err
	}
	times := make([]time.Duration, runs)
	for i := range times {
		d, err := g.Elapsed(i, i+1)
		if err != nil {
			return nil, err
		}
		times[i] = d / time.Duration(n)
	}
	return times, nil
}

func median(times []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(times))
	return s[len(s)/2]
}

// padded returns n rounded up to the arena's alignment.
func padded(n int64) int64 { return (n + program.Alignment - 1) &^ (program.Alignment - 1) }
