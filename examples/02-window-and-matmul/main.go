// Window and matmul shows how threads share what they load: vectors added with
// the host's side spelled out, sums over a sliding window, and the product of
// matrices in fourteen steps, from one thread per output to the limit of the tensor cores.
//
//	go run ./examples/02-window-and-matmul
//	go run ./examples/02-window-and-matmul -html out.html
//
// It reads like a notebook: byhand.go, chain.go and add.go add vectors, window.go sums
// windows, matmul.go climbs the ladder, warpgroups.go and race.go its upper half, counts.go counts loads, accuracy.go looks
// at the last bits. Without a GPU it runs the kernels' Go bodies on less and shows
// the figures recorded on a GPU.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
)

//go:embed recorded.json
var recorded []byte

const title = "Windows and matrices: threads that share what they load"

func main() {
	counted := flag.String("counts", "", "file with the loads that ncu counted, as CSV: see counts.go")
	measured := flag.String("cublas", "", "file with cuBLAS's times, as cublas.py prints them")
	profile := flag.Bool("profile", false, "launch versions 1 to 7 of MatMul once each, for ncu, and do nothing else")
	notebook.Main(title, recorded, func(p *notebook.Page) error {
		if *profile {
			return launchAll(p)
		}
		return run(p, *counted, *measured)
	})
}

func run(p *notebook.Page, counted, measured string) error {
	for _, section := range []func(*notebook.Page) error{vectors, windows} {
		if err := section(p); err != nil {
			return err
		}
	}
	ladder, err := matrices(p)
	if err != nil {
		return err
	}
	if err := warpgroups(p, ladder.us, measured); err != nil {
		return err
	}
	if err := loads(p, counted); err != nil {
		return err
	}
	if err := accuracy(p); err != nil {
		return err
	}
	learnt(p)
	return nil
}

// onGPU times a plan on the GPU, the mean of that many runs in us, and checks its output; without a
// GPU it returns the recorded time, and the benchmarks' for a case of theirs. inputs is called on a GPU only.
func onGPU(p *notebook.Page, key string, c notebook.Case, runs int, plan func() (*kernels.Plan, error), inputs func() [][]byte, check func(out []byte) error) (notebook.Measured, error) {
	return p.Benchmark(key, c, func() (float64, error) {
		plan, err := plan()
		if err != nil {
			return 0, err
		}
		t, err := bench.Time(p.GPU().Ordinal, plan, inputs(), runs)
		if err != nil {
			return 0, err
		}
		if err := check(t.Out); err != nil {
			return 0, err
		}
		mean := 0.0
		for _, d := range t.Runs {
			mean += float64(d) / 1e3 / float64(len(t.Runs))
		}
		return mean, nil
	})
}

// benchmark names the product of n x n matrices among the cases of the benchmarks, which are of the
// op alone.
func benchmark(version, n int, dt kernels.Dtype) notebook.Case {
	if version != 0 {
		return notebook.Case{}
	}
	return notebook.Case{Op: "MatMul", Name: fmt.Sprint(n), Dtype: dt.String()}
}

// fill returns n numbers from -1 to 1 of 12 bits, different ones for each seed.
func fill[T kernels.Float](n int, seed uint32) []T {
	x := make([]T, n)
	state := seed*2654435761 + 1
	for i := range x {
		state = state*1664525 + 1013904223
		x[i] = T(int32(state)>>20) / 2048
	}
	return x
}

// rate prints work per time in us; work is in thousands of the unit.
func rate(work, us float64, unit string) string {
	return notebook.Measured{Value: work / us / 1e3, Unit: unit}.String()
}

// gain prints how many times as fast the later of two times is.
func gain(before, after float64) string {
	if math.IsNaN(before / after) {
		return figure.Number(math.NaN())
	}
	return figure.Number(before/after) + "x"
}
