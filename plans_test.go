package stheno_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/tensor"
)

// A runner runs a plan and reports where it wrote outside of its outputs.
type runner func(p *kernels.Plan, inputs [][]byte, out []byte) error

// onGPU runs a plan on CUDA device 0, operands guarded in its memory.
func onGPU(p *kernels.Plan, inputs [][]byte, out []byte) error {
	return bench.Run(0, p, inputs, out)
}

// onHost runs a plan's Go bodies, with guards around the output and the
// scratch memory, both poisoned.
func onHost(p *kernels.Plan, inputs [][]byte, out []byte) error {
	return runOnHost(nil, p, inputs, out)
}

// onHostBy is onHost with the products by a BLAS.
func onHostBy(by kernels.BLAS) runner {
	return func(p *kernels.Plan, inputs [][]byte, out []byte) error { return runOnHost(by, p, inputs, out) }
}

func runOnHost(by kernels.BLAS, p *kernels.Plan, inputs [][]byte, out []byte) error {
	const guard = 256
	before := make([][]byte, len(inputs))
	for i := range inputs {
		before[i] = bytes.Clone(inputs[i])
	}
	guarded := func(size int64) (all, inner []byte) {
		all = kernels.Bytes(make([]float64, (size+7)/8+2*guard/8))
		for i := range all {
			all[i] = poison
		}
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
	for name, b := range map[string]struct {
		all  []byte
		size int64
	}{"output": {allOut, p.Out}, "scratch": {allScratch, p.Scratch}} {
		for i, v := range b.all {
			if (i < guard || int64(i) >= guard+b.size) && v != poison {
				return fmt.Errorf("the plan wrote outside its %s, at byte %d of %d", name, i-guard, b.size)
			}
		}
	}
	copy(out, result)
	return nil
}

// checkPlan runs a plan from dt to result three times: every element written, all
// runs of the same bits, unless the order of atomics decides them, and the values
// right.
func checkPlan(run runner, p *kernels.Plan, dt, result kernels.Dtype, xs [][]float64, ref, magnitude []float64, tolerance float64, atomic bool) error {
	var outs [][]byte
	for i := range 3 {
		out := bytes.Repeat([]byte{poison}, int(p.Out))
		if err := run(p, bytesOf(dt, xs), out); err != nil {
			return err
		}
		size := int(result.Size())
		unwritten := bytes.Repeat([]byte{poison}, size)
		for k := 0; k < len(out); k += size {
			if bytes.Equal(out[k:k+size], unwritten) {
				return fmt.Errorf("element %d of %d was not written", k/size, len(out)/size)
			}
		}
		if !atomic && i > 0 && !bytes.Equal(out, outs[0]) {
			return fmt.Errorf("run %d gave other bits than the first: %w", i+1, identical(result, out, outs[0]))
		}
		outs = append(outs, out)
	}
	if !atomic {
		outs = outs[:1]
	}
	for _, out := range outs {
		if err := closeTo(result, aligned(out), ref, magnitude, tolerance); err != nil {
			return fmt.Errorf("%v\n%w", p, err)
		}
	}
	return nil
}

// checkCase compares the plans of a case for devices with one reference, on random
// numbers and, where the case is small, on all special ones.
func checkCase(r *rand.Rand, run runner, s opspec.Spec, c opspec.Case, dt kernels.Dtype, devices ...kernels.Device) error {
	kinds := []opspec.Numbers{opspec.Short, opspec.Normal}
	if c.Elements() <= 1<<13 {
		kinds = append(kinds, opspec.Special...)
	}
	tolerance := s.Tolerance
	if dt == kernels.Float64 && tolerance > 0 {
		// Sums in double are rounded once for float32, but at every addition for
		// float64. The errors mostly cancel, in sums of any length.
		tolerance += 3
	}
	for _, k := range kinds {
		if k.Denormal && c.Coarse && dt == kernels.Float32 {
			continue
		}
		xs := k.Draw(r, c, dt)
		ref, magnitude := c.Reference(xs...)
		for _, dev := range devices {
			p, result, err := c.Plan(dt, dev)
			if err == nil {
				err = checkPlan(run, p, dt, result.Dtype, xs, ref, magnitude, tolerance, c.Atomic)
			}
			if err != nil {
				return fmt.Errorf("%s, planned for %s: %w", k.Name, dev.Name, err)
			}
		}
	}
	return nil
}

// others are devices of other widths than the host, whose plans must be right
// too; the Go bodies run them here, the CUDA bodies in TestKernels.
var others = []kernels.Device{
	{Name: "1 multiprocessor", Major: 7, SMs: 1, SharedOptin: 96 << 10, L2: 1 << 20},
	{Name: "132 multiprocessors", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 50 << 20, Cooperative: true},
}

// TestPlans: the Go bodies against the plain reference.
func TestPlans(t *testing.T) {
	each(t, 4<<20, planned, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		t.Parallel()
		devices := []kernels.Device{kernels.HostDevice()}
		if c.Elements() <= 1<<16 {
			devices = append(devices, others...)
		}
		if err := checkCase(random(t), onHost, s, c, dt, devices...); err != nil {
			t.Error(err)
		}
	})
}

// TestKernels: the CUDA bodies against the plain reference, and so, within
// twice its tolerance, against the Go bodies.
func TestKernels(t *testing.T) {
	dev := gpu(t)
	each(t, 4<<20, planned, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		if err := checkCase(random(t), onGPU, s, c, dt, dev); err != nil {
			t.Error(err)
		}
	})
}

// TestLarge: the CUDA bodies on operands beyond 2^31 bytes, where offsets of 32 bits
// are wrong. It takes up to 40 GB of the host's memory, so it runs where STHENO_LARGE=1.
func TestLarge(t *testing.T) {
	if os.Getenv("STHENO_LARGE") != "1" {
		t.Skip("SKIPPED, NOT TESTED: operands beyond 2^31 bytes, without STHENO_LARGE=1")
	}
	dev := gpu(t)
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			if !c.Large {
				continue
			}
			t.Run(s.Name+"/"+c.Name, func(t *testing.T) {
				defer runtime.GC()
				xs := opspec.Short.Draw(random(t), c, c.Types[0])
				ref, magnitude := c.Reference(xs...)
				p, result, err := c.Plan(c.Types[0], dev)
				if err == nil {
					err = checkPlan(onGPU, p, c.Types[0], result.Dtype, xs, ref, magnitude, s.Tolerance, c.Atomic)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// broken is an Add whose body is replaced.
func broken(body func(a, b, out []float64)) *kernels.Plan {
	p := kernels.Add(kernels.HostDevice(), kernels.Float64, 7)
	p.Launches[0].Kernel = &kernels.Kernel{Entry: "broken", Body: func(c kernels.Call) {
		body(kernels.Slice[float64](c, 0), kernels.Slice[float64](c, 1), kernels.Slice[float64](c, 2))
	}}
	return p
}

// TestSuiteCatchesWrongKernels: kernels that are wrong in one way each fail
// the function that all kernels pass.
func TestSuiteCatchesWrongKernels(t *testing.T) {
	add := func(a, b, out []float64) {
		for i := range out {
			out[i] = a[i] + b[i]
		}
	}
	beyond := func(x []float64, k int) *float64 { return (*float64)(unsafe.Add(unsafe.Pointer(&x[0]), k*8)) }
	runs := 0.0
	for _, c := range []struct {
		name, want string
		body       func(a, b, out []float64)
	}{
		{"right", "", add},
		{"drops the last element", "element 6 of 7 was not written", func(a, b, out []float64) { add(a, b, out[:6]) }},
		{"drops the first element", "element 0 of 7 was not written", func(a, b, out []float64) { add(a[1:], b[1:], out[1:]) }},
		{"writes past the end", "outside its output", func(a, b, out []float64) { add(a, b, out); *beyond(out, 7) = 1 }},
		{"writes before the start", "outside its output", func(a, b, out []float64) { add(a, b, out); *beyond(out, -1) = 1 }},
		{"writes an input", "wrote its input 1", func(a, b, out []float64) { add(a, b, out); b[3]++ }},
		{"is off by a few epsilons", "element 4: got", func(a, b, out []float64) {
			add(a, b, out)
			out[4] += 0x1p-49 * (math.Abs(a[4]) + math.Abs(b[4]))
		}},
		{"gives a NaN", "element 2: got NaN", func(a, b, out []float64) { add(a, b, out); out[2] = math.NaN() }},
		{"gives an Inf", "element 2: got +Inf", func(a, b, out []float64) { add(a, b, out); out[2] = math.Inf(1) }},
		{"changes from run to run", "gave other bits", func(a, b, out []float64) {
			add(a, b, out)
			runs++
			out[0] = math.Float64frombits(math.Float64bits(out[0]) + uint64(runs))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := random(t)
			x := opspec.Case{Shapes: []tensor.Shape{{7}, {7}}}
			xs := opspec.Normal.Draw(r, x, kernels.Float64)
			ref, magnitude := make([]float64, 7), make([]float64, 7)
			for i := range ref {
				ref[i] = xs[0][i] + xs[1][i]
				magnitude[i] = math.Abs(xs[0][i]) + math.Abs(xs[1][i])
			}
			err := checkPlan(onHost, broken(c.body), kernels.Float64, kernels.Float64, xs, ref, magnitude, 1, false)
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
