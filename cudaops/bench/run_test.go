package bench

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/window"
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
			k := &kernels.Kernel{Entry: "test", Body: func(call kernels.Call) {
				c.body(kernels.Slice[float64](call, kernels.In(0)), kernels.Slice[float64](call, kernels.At(kernels.Out, 0)), kernels.Slice[float64](call, kernels.At(kernels.Scratch, 0)))
			}}
			p := &kernels.Plan{Op: "test", Inputs: []int64{n * 8}, Out: n * 8, Scratch: n * 8, Launches: []kernels.Launch{
				{Kernel: k},
			}}
			out := make([]byte, n*8)
			err := runGuarded(new(exec.HostBackend), p, [][]byte{x}, out)
			if c.want == "" && (err != nil || string(out) != string(x)) {
				t.Errorf("got %v and %v, want a copy of the input", err, kernels.Elements[float64](out))
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	p := &kernels.Plan{Op: "test", Inputs: []int64{8}, Out: 8}
	if runGuarded(new(exec.HostBackend), p, nil, make([]byte, 8)) == nil || runGuarded(new(exec.HostBackend), p, [][]byte{x[:4]}, make([]byte, 8)) == nil ||
		runGuarded(new(exec.HostBackend), p, [][]byte{x[:8]}, nil) == nil {
		t.Error("buffers of the wrong size passed")
	}
}

// Window sums of any geometry: rows that share tiles, runs that share windows,
// windows wider than tiles, on the GPU as by the Go bodies.
func TestWindowSums(t *testing.T) {
	dev := device0(t)
	const seed = 11
	r := rand.New(rand.NewPCG(seed, 2))
	draws, most := 300, int64(3_000_000)
	if testing.Short() {
		draws, most = 40, 200_000
	}
	for i := range draws {
		rows, n, radius := 1+r.Int64N(30), 1+r.Int64N(3000), r.Int64N(600)
		switch i % 4 {
		case 0:
			if i%8 == 0 { // few elements in rows that share blocks, or take several
				n, radius = 1+r.Int64N(20_000), radius%8
			}
		case 1:
			rows, n = 1, 1+r.Int64N(most)
			if i%8 == 1 { // few elements in long rows
				rows, radius = 1+r.Int64N(3), radius%8
			}
			if i%8 == 5 { // windows of many segments
				rows, radius = 1+r.Int64N(3), r.Int64N(most/[]int64{2, 100}[i/8%2])
			}
		case 2:
			radius = r.Int64N(6000)
		case 3:
			rows, n, radius = 1+r.Int64N(3000), 1+r.Int64N(100), r.Int64N(100)
			if i%8 == 3 { // short rows of whole vectors
				n, radius = 4*n, radius%8
			}
		}
		mode := window.WindowMode(r.IntN(3))
		if mode == window.WindowValid {
			radius = min(radius, (n-1)/2)
		}
		dev := dev
		switch i % 16 {
		case 5: // segments as short as on a larger device
			dev.SMs *= 20
		case 13: // blocks that take several
			dev.SMs = 4
		case 4, 12: // rows of few elements as of many, by stream
			dev.SMs = 1
		}
		compareWindowSum[float32](t, dev, r, kernels.Float32, rows, n, radius, mode)
		compareWindowSum[float64](t, dev, r, kernels.Float64, rows, n, radius, mode)
	}
}

// compareWindowSum takes small whole numbers, whose sums are exact in any order.
func compareWindowSum[T kernels.Float](t *testing.T, dev kernels.Device, r *rand.Rand, dt kernels.Dtype, rows, n, radius int64, mode window.WindowMode) {
	t.Helper()
	x := make([]T, rows*n)
	for i := range x {
		x[i] = T(r.IntN(2001) - 1000)
	}
	p := window.WindowSum(dev, dt, rows, n, radius, mode)
	got, want := make([]T, rows*mode.Outputs(n, radius)), make([]T, rows*mode.Outputs(n, radius))
	if err := Run(0, p, [][]byte{kernels.Bytes(x)}, kernels.Bytes(got)); err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	if err := window.WindowSum(kernels.HostDevice(), dt, rows, n, radius, mode).Run([][]byte{kernels.Bytes(x)}, kernels.Bytes(want), nil); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("output %d is %v, want %v; %v", i, got[i], want[i], p)
		}
	}
}
