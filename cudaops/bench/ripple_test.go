package bench

import (
	"math"
	"os"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// amplitude of the ripple, by its definition.
func amplitude(ix, iy int) float64 {
	return (1 + math.Sin(2*math.Pi*float64(ix-64)/256)) * (1 + math.Sin(2*math.Pi*float64(iy-64)/256))
}

// checkRipple compares a picture with the definition and counts the elements that
// are wrong by more than the tolerance.
func checkRipple[T kernels.Float](out []T, width int, tolerance float64) (wrong int) {
	for i, v := range out {
		x, y := i%width, i/width
		want := amplitude(x-x%16+15-x%16, y-y%16+15-y%16)
		if !(math.Abs(float64(v)-want) <= tolerance) {
			wrong++
		}
	}
	return wrong
}

func TestRipple(t *testing.T) {
	const columns, rows = 33, 17
	single := make([]float32, columns*rows*256)
	double := make([]float64, columns*rows*256)
	for name, run := range map[string]func(p *kernels.Plan, out []byte) error{
		"host": func(p *kernels.Plan, out []byte) error { return runGuarded(new(exec.HostBackend), p, nil, out) },
		"GPU":  func(p *kernels.Plan, out []byte) error { return Run(0, p, nil, out) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "GPU" {
				device0(t)
			}
			if err := run(versions.Ripple(kernels.Float32, columns, rows), kernels.Bytes(single)); err != nil {
				t.Fatal(err)
			}
			// Elements are up to 4; a few roundings of factors up to 2.
			if n := checkRipple(single, columns*16, 0x1p-20); n > 0 {
				t.Errorf("float32: %d of %d elements are wrong", n, len(single))
			}
			if err := run(versions.Ripple(kernels.Float64, columns, rows), kernels.Bytes(double)); err != nil {
				t.Fatal(err)
			}
			// The definition's own argument is up to 11, and rounded.
			if n := checkRipple(double, columns*16, 0x1p-46); n > 0 {
				t.Errorf("float64: %d of %d elements are wrong", n, len(double))
			}
		})
	}
}

// The Go body of the racy ripple gets those elements wrong that a warp reads before another
// has written it: the upper half of each tile.
func TestRippleRacyHost(t *testing.T) {
	out := make([]float32, 4*256)
	if err := runGuarded(new(exec.HostBackend), versions.RippleRacy(kernels.Float32, 4, 1), nil, kernels.Bytes(out)); err != nil {
		t.Fatal(err)
	}
	upper, lower := checkRipple(out[:8*64], 64, 0x1p-20), 0
	for i, v := range out[8*64:] {
		x, y := i%64, 8+i/64
		if math.Abs(float64(v)-amplitude(x-x%16+15-x%16, 15-y)) > 0x1p-20 {
			lower++
		}
	}
	if upper == 0 || lower > 0 {
		t.Errorf("%d of the upper and %d of the lower elements are wrong, want some and none", upper, lower)
	}
}

// The racy ripple, for bench/gpu-run.sh to see that the race checker finds the
// race. The result is arbitrary, so that nothing is checked but the memory
// around. Nothing else runs it.
func TestRippleRacy(t *testing.T) {
	if os.Getenv("STHENO_PLANT_FAULT") != "1" {
		t.Skip("only with STHENO_PLANT_FAULT=1, under a race checker")
	}
	device0(t)
	const columns, rows = 64, 64
	out := make([]float32, columns*rows*256)
	if err := Run(0, versions.RippleRacy(kernels.Float32, columns, rows), nil, kernels.Bytes(out)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d elements are wrong", checkRipple(out, columns*16, 0x1p-20), len(out))
}
