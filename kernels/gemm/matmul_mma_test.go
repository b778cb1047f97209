package gemm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// productDevices are devices of all architectures, as their drivers describe them.
var productDevices = []kernels.Device{
	{Name: "NVIDIA Tesla V100", Major: 7, Minor: 0, SMs: 80, SharedOptin: 96 << 10, L2: 6 << 20, Memory: 16 << 30},
	{Name: "NVIDIA T4", Major: 7, Minor: 5, SMs: 40, SharedOptin: 64 << 10, L2: 4 << 20, Memory: 15 << 30},
	{Name: "NVIDIA A100", Major: 8, Minor: 0, SMs: 108, SharedOptin: 163 << 10, L2: 40 << 20, Memory: 80 << 30},
	{Name: "NVIDIA GeForce RTX 3090", Major: 8, Minor: 6, SMs: 82, SharedOptin: 99 << 10, L2: 6 << 20, Memory: 24 << 30},
	{Name: "Orin", Major: 8, Minor: 7, SMs: 16, SharedOptin: 163 << 10, L2: 4 << 20, Memory: 32 << 30},
	{Name: "NVIDIA L4", Major: 8, Minor: 9, SMs: 58, SharedOptin: 99 << 10, L2: 48 << 20, Memory: 24 << 30},
	{Name: "NVIDIA GeForce RTX 4090", Major: 8, Minor: 9, SMs: 128, SharedOptin: 99 << 10, L2: 72 << 20, Memory: 24 << 30},
	{Name: "NVIDIA H200", Major: 9, Minor: 0, SMs: 132, SharedOptin: 227 << 10, L2: 50 << 20, Memory: 141 << 30},
	{Name: "NVIDIA B200", Major: 10, Minor: 0, SMs: 148, SharedOptin: 227 << 10, L2: 126 << 20, Memory: 180 << 30},
	{Name: "NVIDIA B300", Major: 10, Minor: 3, SMs: 148, SharedOptin: 227 << 10, L2: 126 << 20, Memory: 270 << 30},
	{Name: "NVIDIA Thor", Major: 11, Minor: 0, SMs: 20, SharedOptin: 227 << 10, L2: 32 << 20, Memory: 128 << 30},
	{Name: "NVIDIA GeForce RTX 5090", Major: 12, Minor: 0, SMs: 170, SharedOptin: 99 << 10, L2: 96 << 20, Memory: 32 << 30},
}

// What takes a large product, by device: float32, TF32, BF16 and float64. No launch asks for more than the device has.
func TestProductsByDevice(t *testing.T) {
	const fma, fma64 = "large_f32", "short_f64"
	want := map[string][4]string{
		"NVIDIA Tesla V100":       {fma, fma, fma, fma64},
		"NVIDIA T4":               {fma, fma, fma, fma64},
		"NVIDIA A100":             {"mma_f32_nn", "mma_tf32_nt", "mma_bf16_nn", "mma_f64"},
		"NVIDIA GeForce RTX 3090": {fma, "mma_tf32_nt", "mma_bf16_nn", fma64},
		"Orin":                    {fma, "mma_tf32_nt", "mma_bf16_nn", fma64},
		"NVIDIA L4":               {fma, "mma_tf32_nt", "mma_bf16_nn", fma64},
		"NVIDIA GeForce RTX 4090": {fma, "mma_tf32_nt", "mma_bf16_nn", fma64},
		"NVIDIA H200":             {"hopper_f32", "hopper_tf32", "hopper_bf16", "double"},
		"NVIDIA B200":             {fma, "mma_tf32_one_nt", "mma_bf16_one_nn", fma64},
		"NVIDIA B300":             {fma, "mma_tf32_one_nt", "mma_bf16_one_nn", fma64},
		"NVIDIA Thor":             {fma, fma, fma, fma64},
		"NVIDIA GeForce RTX 5090": {fma, "mma_tf32_one_nt", "mma_bf16_one_nn", fma64},
	}
	var plans []*kernels.Plan
	for _, dev := range productDevices {
		var got [4]string
		for i, by := range []kernels.Precision{kernels.FullPrecision, kernels.TF32, kernels.BF16, kernels.FullPrecision} {
			dt := kernels.Float32
			if i == 3 {
				dt = kernels.Float64
			}
			for _, n := range []int64{4096, 1000, 513} {
				p := planOf(t, dev, by, dt, 1, n, n, n, false, false)
				plans = append(plans, p)
				if err := p.Check(dev); err != nil {
					t.Errorf("%s: %v", dev.Name, err)
				}
				if n == 4096 {
					got[i] = strings.TrimPrefix(p.Launches[len(p.Launches)-1].Kernel.Entry, "matmul_")
					if isHopper(dev) && strings.HasPrefix(got[i], want[dev.Name][i]) {
						got[i] = want[dev.Name][i] // predicted times decide between tiles
					}
				}
			}
		}
		if got != want[dev.Name] {
			t.Errorf("%s: got %v, want %v", dev.Name, got, want[dev.Name])
		}
	}
	checkLaunches(t, plans...)
}

// Where a driver compiles PTX, which is for devices of all architectures, there are no tensor cores.
func TestTensorCores(t *testing.T) {
	for _, c := range []struct {
		major, minor int
		wgmma, mma   bool
	}{{0, 0, true, false}, {6, 1, false, false}, {7, 5, false, false}, {8, 0, false, true}, {8, 7, false, true}, {8, 9, false, true}, {9, 0, true, false}, {9, 1, false, false},
		{10, 0, false, true}, {10, 3, false, true}, {11, 0, false, false}, {12, 0, false, true}, {12, 1, false, true}, {13, 0, false, false}} {
		dev := kernels.Device{Major: c.major, Minor: c.minor}
		if c.major == 0 {
			dev = kernels.HostDevice()
		}
		if wgmma, mma := hasWGMMA(dev), hasMMA(dev); wgmma != c.wgmma || mma != c.mma {
			t.Errorf("%d.%d has wgmma %v and mma %v, want %v and %v", c.major, c.minor, wgmma, mma, c.wgmma, c.mma)
		}
	}
}

// What is rounded to TF32 for kernels that do not round has the bits of Precision.Round and zeros between rows.
func TestRoundedTF32(t *testing.T) {
	r := testutil.Random(t)
	const batch, rows, cols = 2, 70, 37
	for _, trans := range []bool{false, true} {
		x := Prepare{TF32, batch, rows, cols, trans}
		p, err := x.Plan(tensorDevices[1])
		if err != nil {
			t.Fatal(err)
		}
		checkLaunches(t, p)
		in, out := uniform(r, batch*rows*cols), uniform(r, p.Out/4)
		if err := p.Run([][]byte{kernels.Bytes(in)}, kernels.Bytes(out), nil); err != nil {
			t.Fatal(err)
		}
		lines, length := x.extents()
		for i, got := range out {
			matrix, line, at := int64(i)/x.pitch()/lines, int64(i)/x.pitch()%lines, int64(i)%x.pitch()
			want := float32(0)
			if at < length {
				row, col := line, at
				if trans {
					row, col = at, line
				}
				want = kernels.TF32.Round(in[(matrix*rows+row)*cols+col])
			}
			if got != want {
				t.Fatalf("transposed %v: element %d of line %d of matrix %d is %v, want %v", trans, at, line, matrix, got, want)
			}
		}
	}
}

// tensorDevices are a device of each kind of tensor cores, with a name.
var tensorDevices = func() []kernels.Device {
	hopper := matmulDevices[1]
	ampere := hopper
	ampere.Name, ampere.Major, ampere.SharedOptin = fmt.Sprint(hopper.Name, " as 8.0"), 8, 163<<10
	return []kernels.Device{hopper, ampere}
}()
