package bench

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

func TestTimeChecksInputs(t *testing.T) {
	p := basic.Add(kernels.HostDevice(), kernels.Float32, 8)
	for _, inputs := range [][][]byte{nil, {make([]byte, 32)}, {make([]byte, 32), make([]byte, 31)}} {
		if _, err := Time(0, p, inputs, 1); err == nil || errors.Is(err, cudaops.ErrNoDevice) {
			t.Errorf("%d inputs: %v, want an error about them", len(inputs), err)
		}
	}
	if _, err := Time(99, p, [][]byte{make([]byte, 32), make([]byte, 32)}, 1); !errors.Is(err, cudaops.ErrNoDevice) {
		t.Errorf("device 99: %v, want cudaops.ErrNoDevice", err)
	}
	if _, err := TimeWithin(99, p, [][]byte{make([]byte, 32), make([]byte, 32)}, 1, time.Second); !errors.Is(err, cudaops.ErrNoDevice) {
		t.Errorf("device 99: %v, want cudaops.ErrNoDevice", err)
	}
	if _, err := CopyBandwidth(99); !errors.Is(err, cudaops.ErrNoDevice) {
		t.Errorf("device 99: %v, want cudaops.ErrNoDevice", err)
	}
}

func TestTime(t *testing.T) {
	dev := device0(t)
	const n, runs = 100_003, 7
	a, b := make([]float32, n), make([]float32, n)
	for i := range n {
		a[i], b[i] = float32(i), float32(3*i)
	}
	timing := testutil.Get[*Timing](t)(Time(0, basic.Add(dev, kernels.Float32, n), [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, runs))
	if len(timing.Runs) != runs {
		t.Errorf("got %d runs, want %d", len(timing.Runs), runs)
	}
	for _, d := range timing.Runs {
		if d <= 0 {
			t.Errorf("a run took %v", d)
		}
	}
	out := kernels.Elements[float32](timing.Out)
	if len(out) != n {
		t.Fatalf("got %d elements, want %d", len(out), n)
	}
	for i, got := range out {
		if want := float32(4 * i); got != want {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
	if gbs := testutil.Get[float64](t)(CopyBandwidth(0)); !(gbs > 1) {
		t.Errorf("device copy %v GB/s", gbs)
	}
}

// A plan that writes 1024 elements past its output, for bench/gpu-run.sh to see
// that the memory checker finds it. Nothing else runs it.
func TestPlantedFault(t *testing.T) {
	if os.Getenv("STHENO_PLANT_FAULT") != "1" {
		t.Skip("only with STHENO_PLANT_FAULT=1, under a memory checker")
	}
	const n = 1 << 20
	p := basic.Add(device0(t), kernels.Float32, n)
	p.Launches[0].Args[3] = int64(n + 1024)
	p.Launches[0].Grid[0]++ // 256 threads of 4 elements
	in := make([]byte, 4*n)
	t.Logf("the plan says: %v", Run(0, p, [][]byte{in, in}, make([]byte, 4*n)))
}

// A budget that is too short for the runs leaves five, a long one leaves them all.
func TestTimeWithin(t *testing.T) {
	dev := device0(t)
	const n, runs = 1 << 10, 9
	x := make([]float32, n)
	plan := reduce.Sum(dev, kernels.Float32, []int{n}, []int{0}, false)
	for budget, want := range map[time.Duration]int{0: 5, time.Minute: runs} {
		timing := testutil.Get[*Timing](t)(TimeWithin(0, plan, [][]byte{kernels.Bytes(x)}, runs, budget))
		if len(timing.Runs) != want {
			t.Errorf("budget %v: got %d runs, want %d", budget, len(timing.Runs), want)
		}
	}
}
