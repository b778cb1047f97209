package bench

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/window"
)

// TestMaxPooling: max-poolings of ReLUs and their gradients, in every type and layout that MaxPooling.Takes reports, compute the bits of the plainest loops, of any numbers, on every backend.
func TestMaxPooling(t *testing.T) {
	r, draws := random(t), 400
	if testing.Short() {
		draws = 60
	}
	run := map[string]func(p *kernels.Plan, in [][]byte, out []byte) error{
		"host": func(p *kernels.Plan, in [][]byte, out []byte) error {
			return runGuarded(new(exec.HostBackend), p, in, out)
		},
	}
	dev := kernels.HostDevice()
	if devices, err := cudaops.Devices(); err == nil {
		run["GPU"] = func(p *kernels.Plan, in [][]byte, out []byte) error { return Run(0, p, in, out) }
		dev = devices[0].Device
	} else if testutil.Required("GPU") {
		t.Fatalf("STHENO_REQUIRE_GPU=1, but: %v", err)
	}
	seen := map[window.MaxPooling]int{} // without sizes
	for range draws {
		p := drawPooling(r)
		if !p.Takes(dev) {
			continue
		}
		kind := p
		kind.Images, kind.Channels, kind.Windows = 0, 0, window.Windows{}
		seen[kind]++
		in, want, d := pooled(r, p)
		plan := testutil.Get[*kernels.Plan](t)(p.Plan(dev))
		for name, run := range run {
			got := make([]byte, plan.Out)
			for i := range got {
				got[i] = 0xa5
			}
			testutil.Do(t, run(plan, in, got))
			for i, w := range want {
				if g := element(d, got, i); math.Float32bits(g) != math.Float32bits(w) && !(g != g && w != w) {
					t.Fatalf("%s: element %d is %v, want %v: %v", name, i, g, w, plan)
				}
			}
		}
	}
	if len(seen) < 20 && !testing.Short() {
		t.Errorf("got %d kinds of poolings, want 20 or more: %v", len(seen), seen)
	}
}

// drawPooling draws a max-pooling of planes that may be odd, empty of whole windows, or many.
func drawPooling(r *rand.Rand) window.MaxPooling {
	axis := func() window.WindowAxis {
		return window.WindowAxis{In: 2 + r.IntN(11), Size: 2, Stride: 2, Dilation: 1}
	}
	p := window.MaxPooling{
		Stored: [2]kernels.Dtype{[]kernels.Dtype{kernels.Float32, expr.BF16, expr.F16}[r.IntN(3)]}, Images: 1 + r.Int64N(4), Channels: 1 + r.Int64N(9), Windows: window.Windows{Rows: axis(), Columns: axis()},
		Gradient: r.IntN(2) == 0, ReLU: r.IntN(3) > 0, ChannelsLast: [2]bool{r.IntN(4) > 0, r.IntN(2) == 0},
	}
	if r.IntN(2) == 0 {
		p.Channels *= 8
	}
	if r.IntN(2) == 0 {
		p.Stored[window.PoolOutputs] = p.Stored[window.PoolImages]
	}
	if r.IntN(8) == 0 {
		p.Images *= 50 // several blocks
	}
	return p
}

// pooled draws operands of a max-pooling and computes its result, and the type that it is stored in.
func pooled(r *rand.Rand, p window.MaxPooling) (in [][]byte, want []float32, d kernels.Dtype) {
	v, h := p.Windows.Rows, p.Windows.Columns
	n, windows := int(p.Images*p.Channels)*v.In*h.In, int(p.Images*p.Channels)*v.Out()*h.Out()
	special, few := []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0, float32(math.Copysign(0, -1)), -math.MaxFloat32}, r.IntN(2) == 0
	draw := func(n int, d kernels.Dtype) (x []float32, b []byte) {
		x = make([]float32, n)
		for i := range x {
			if x[i] = float32(r.NormFloat64()); few {
				x[i] = float32(r.IntN(5) - 2)
			}
			if r.IntN(8) == 0 {
				x[i] = special[r.IntN(len(special))]
			}
			if d != kernels.Float32 {
				x[i] = expr.FromHalf(d, expr.ToHalf(d, x[i]))
			}
		}
		if d == kernels.Float32 {
			return x, kernels.Bytes(x)
		}
		half := make([]uint16, n)
		for i := range x {
			half[i] = expr.ToHalf(d, x[i])
		}
		return x, kernels.Bytes(half)
	}
	x, b := draw(n, p.Stored[window.PoolImages])
	dy, db := draw(windows, p.Stored[window.PoolOutputs])
	dx, y := make([]float32, n), make([]float32, windows)
	at := func(of int, image, channel, row, column, rows, columns int) int {
		if p.ChannelsLast[of] {
			return ((image*rows+row)*columns+column)*int(p.Channels) + channel
		}
		return ((image*int(p.Channels)+channel)*rows+row)*columns + column
	}
	for image := range int(p.Images) {
		for channel := range int(p.Channels) {
			for row := range v.Out() {
				for column := range h.Out() {
					o, first := at(window.PoolOutputs, image, channel, row, column, v.Out(), h.Out()), -1
					y[o] = -math.MaxFloat32
					for i := range 4 {
						k := at(window.PoolImages, image, channel, 2*row+i/2, 2*column+i%2, v.In, h.In)
						e := x[k]
						if p.ReLU && e < 0 {
							e = special[4]
						} else if p.ReLU {
							e += 0
						}
						if e > y[o] {
							y[o], first = e, k
						}
					}
					if first >= 0 {
						dx[first] += dy[o]
					}
				}
			}
		}
	}
	for i := range dx {
		if p.ReLU && x[i] >= 0 {
			dx[i] *= 1
		} else if p.ReLU {
			dx[i] *= 0
		}
	}
	in, want, d = [][]byte{b}, y, p.Stored[window.PoolOutputs]
	if p.Gradient {
		in, want, d = [][]byte{b, db}, dx, p.Stored[window.PoolImages]
	}
	if d != kernels.Float32 {
		for i := range want {
			want[i] = expr.FromHalf(d, expr.ToHalf(d, want[i]))
		}
	}
	return in, want, d
}

// element returns element i of memory with elements of a type.
func element(d kernels.Dtype, b []byte, i int) float32 {
	if d == kernels.Float32 {
		return kernels.Elements[float32](b)[i]
	}
	return expr.FromHalf(d, kernels.Elements[uint16](b)[i])
}
