package cudaops

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Plans that break the rules are caught, on the host backend as on any.
func TestRunGuarded(t *testing.T) {
	const n = 7
	x := kernels.Bytes([]float64{1, 2, 3, 4, 5, 6, 7})
	past := func(x []float64, k int) *float64 {
		return (*float64)(unsafe.Add(unsafe.Pointer(&x[0]), k*8))
	}
	for _, c := range []struct {
		name, want string
		body       func(in, out, scratch []float64)
	}{
		{"right", "", func(in, out, scratch []float64) { copy(scratch, in); copy(out, scratch) }},
		{"before the output", "before the start of out", func(in, out, _ []float64) { copy(out, in); *past(out, -1) = 0 }},
		{"past the output", "past the end of out", func(in, out, _ []float64) { copy(out, in); *past(out, n) = 0 }},
		{"past the scratch memory", "past the end of scratch", func(in, out, scratch []float64) { copy(out, in); *past(scratch, n) = 0 }},
		{"the input", "wrote its input in0", func(in, out, _ []float64) { copy(out, in); in[2]++ }},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &kernels.Kernel{Module: "test", Entry: "test", Body: func(call kernels.Call) {
				c.body(kernels.Slice[float64](call, 0), kernels.Slice[float64](call, 1), kernels.Slice[float64](call, 2))
			}}
			p := &kernels.Plan{Op: "test", Inputs: []int64{n * 8}, Out: n * 8, Scratch: n * 8, Launches: []kernels.Launch{
				{Kernel: k, Args: []any{kernels.Ref{}, kernels.Ref{Operand: kernels.Out}, kernels.Ref{Operand: kernels.Scratch}}},
			}}
			out := make([]byte, n*8)
			err := runGuarded(&host{}, p, [][]byte{x}, out)
			if c.want == "" && (err != nil || string(out) != string(x)) {
				t.Errorf("got %v and %v, want a copy of the input", err, kernels.Elements[float64](out))
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	p := &kernels.Plan{Op: "test", Inputs: []int64{8}, Out: 8}
	if runGuarded(&host{}, p, nil, make([]byte, 8)) == nil || runGuarded(&host{}, p, [][]byte{x[:4]}, make([]byte, 8)) == nil ||
		runGuarded(&host{}, p, [][]byte{x[:8]}, nil) == nil {
		t.Error("buffers of the wrong size passed")
	}
}
