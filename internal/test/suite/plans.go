package suite

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
)

// A Runner runs a plan and reports where it wrote outside of its outputs.
type Runner func(p *kernels.Plan, inputs [][]byte, out []byte) error

// onGPU runs a plan on CUDA device 0, operands guarded in its memory.
func onGPU(p *kernels.Plan, inputs [][]byte, out []byte) error {
	return bench.Run(0, p, inputs, out)
}

// OnHost runs a plan's Go bodies, with guards around the output and the
// scratch memory, both poisoned.
func OnHost(p *kernels.Plan, inputs [][]byte, out []byte) error {
	return runOnHost(nil, p, inputs, out)
}

func runOnHost(by kernels.BLAS, p *kernels.Plan, inputs [][]byte, out []byte) error {
	const guard = 256
	before := make([][]byte, len(inputs))
	for i := range inputs {
		before[i] = bytes.Clone(inputs[i])
	}
	guarded := func(size int64) (all, inner []byte) {
		all = kernels.Bytes(make([]float64, (size+7)/8+2*guard/8))
		copy(all, bytes.Repeat([]byte{poison}, len(all)))
		return all, all[guard : guard+size : guard+size]
	}
	allOut, result := guarded(p.Out)
	allScratch, scratch := guarded(p.Scratch)
	if err := (kernels.Host{BLAS: by}).Run(p, inputs, [][]byte{result}, scratch); err != nil {
		return err
	}
	for i := range inputs {
		if !bytes.Equal(inputs[i], before[i]) {
			return fmt.Errorf("the plan wrote its input %d", i)
		}
	}
	for name, b := range map[string]struct{ all, inner []byte }{"output": {allOut, result}, "scratch": {allScratch, scratch}} {
		for _, outside := range [][2]int{{0, guard}, {guard + len(b.inner), len(b.all)}} {
			for i := outside[0]; i < outside[1]; i++ {
				if b.all[i] != poison {
					return fmt.Errorf("the plan wrote outside its %s, at byte %d of %d", name, i-guard, len(b.inner))
				}
			}
		}
	}
	copy(out, result)
	return nil
}

// CheckPlan runs a plan from dt to result so many times: every element written, all
// runs of the same bits, unless the order of atomics decides them, and the values
// right.
func CheckPlan(run Runner, runs int, p *kernels.Plan, dt, result kernels.Dtype, xs [][]float64, ref, magnitude []float64, tolerance float64, atomic bool) error {
	var first []byte
	inputs := bytesOf(dt, xs)
	size := int(result.Size())
	unwritten := bytes.Repeat([]byte{poison}, size)
	for i := range runs {
		out := bytes.Repeat([]byte{poison}, int(p.Out))
		if err := run(p, inputs, out); err != nil {
			return err
		}
		if i > 0 && !atomic {
			if !bytes.Equal(out, first) {
				return fmt.Errorf("run %d gave other bits than the first: %w", i+1, Identical(result, out, first))
			}
			continue
		}
		first = out
		for k := 0; k < len(out); k += size {
			// A NaN may have these bits too, so elements whose reference is NaN do not count.
			if bytes.Equal(out[k:k+size], unwritten) && !math.IsNaN(ref[k/size]) {
				return fmt.Errorf("element %d of %d was not written", k/size, len(out)/size)
			}
		}
		if err := opspec.CloseTo(result, Aligned(out), ref, magnitude, tolerance); err != nil {
			return fmt.Errorf("%v\n%w", p, err)
		}
	}
	return nil
}

// runsOn returns how often a plan runs on some numbers, on a GPU or on the host. Another order of a sum changes only bits of numbers
// whose sums are rounded.
func runsOn(k opspec.Numbers, gpu bool) int {
	switch {
	case k.Name != opspec.Normal.Name:
		return 1
	case gpu:
		return 3
	}
	return 2
}

// checkCase compares the plans of a case for devices with one reference, on random
// numbers and, where the case is small, on all special ones.
func checkCase(r *rand.Rand, run Runner, s opspec.Spec, c opspec.Case, dt kernels.Dtype, kinds []opspec.Numbers, devices ...kernels.Device) error {
	onGPU := devices[0].Kind == kernels.GPU
	if onGPU && testing.Short() { // a sanitizer follows every access, whatever the numbers are
		kinds = kinds[:1]
	} else if c.Elements() <= 1<<13 {
		kinds = append(kinds, opspec.Special...)
	}
	var plans []*kernels.Plan // a plan for several devices is checked once
	var names []string        // of their devices
	var result kernels.Dtype
	for _, dev := range devices {
		p, out, err := c.Plan(dt, dev)
		if err != nil {
			return fmt.Errorf("planned for %s: %w", dev.Name, err)
		}
		result = out.Dtype
		if !slices.ContainsFunc(plans, func(q *kernels.Plan) bool { return reflect.DeepEqual(p, q) }) {
			plans, names = append(plans, p), append(names, dev.Name)
		}
	}
	for _, k := range kinds {
		runs := runsOn(k, onGPU)
		if k.Denormal && c.Coarse && dt == kernels.Float32 {
			continue
		}
		xs := k.Draw(r, c, dt)
		ref, magnitude := c.Reference(xs...)
		for i, p := range plans {
			if err := CheckPlan(run, runs, p, dt, result, xs, ref, magnitude, s.ToleranceOf(dt), c.Atomic); err != nil {
				return fmt.Errorf("%s, planned for %s: %w", k.Name, names[i], err)
			}
		}
	}
	return nil
}

// Others are devices of other widths than the host, whose plans must be right
// too: Plans runs their Go bodies, Kernels the CUDA bodies.
var Others = []kernels.Device{
	{Name: "1 multiprocessor", Major: 7, SMs: 1, SharedOptin: 96 << 10, L2: 1 << 20},
	{Name: "132 multiprocessors", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 50 << 20, Cooperative: true},
}

// random are the numbers that every case is checked on.
func random() []opspec.Numbers { return []opspec.Numbers{opspec.Short, opspec.Normal} }

// largeCase is the number of elements above which the tests on the host check a case in one type.
const largeCase = 1 << 11

// Plans compares the Go bodies of every op with its reference. Those of all types are one generic function, so a large case is
// checked in one type and on one kind of numbers, both drawn.
func Plans(t *testing.T) {
	each(t, 4<<20, planned, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		t.Parallel()
		kinds, devices := random(), []kernels.Device{kernels.HostDevice()}
		if c.Elements() <= 1<<16 {
			devices = append(devices, Others...)
		}
		if c.Elements() > largeCase {
			if !drawn(s, c, dt, "") {
				return
			}
			k := named(s.Name + c.Name).IntN(len(kinds))
			kinds = kinds[k : k+1]
		}
		if err := checkCase(Random(t), OnHost, s, c, dt, kinds, devices...); err != nil {
			t.Error(err)
		}
	})
}

// Kernels compares the CUDA bodies of every op with its reference, and so, within
// twice its tolerance, against the Go bodies.
func Kernels(t *testing.T) {
	dev := GPU(t)
	each(t, 4<<20, planned, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		if err := checkCase(Random(t), onGPU, s, c, dt, random(), dev); err != nil {
			t.Error(err)
		}
	})
}

// Large is [Kernels] on operands beyond 2^31 bytes, where offsets of 32 bits
// are wrong. It takes up to 40 GB of the host's memory, so it runs where STHENO_LARGE=1.
func Large(t *testing.T) {
	if os.Getenv("STHENO_LARGE") != "1" {
		t.Skip("SKIPPED, NOT TESTED: operands beyond 2^31 bytes, without STHENO_LARGE=1")
	}
	dev := GPU(t)
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			if !c.Large {
				continue
			}
			t.Run(s.Name+"/"+c.Name, func(t *testing.T) {
				defer runtime.GC()
				xs := opspec.Short.Draw(Random(t), c, c.Types[0])
				ref, magnitude := c.Reference(xs...)
				p, result, err := c.Plan(c.Types[0], dev)
				if err == nil {
					err = CheckPlan(onGPU, 3, p, c.Types[0], result.Dtype, xs, ref, magnitude, s.Tolerance, c.Atomic)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}
