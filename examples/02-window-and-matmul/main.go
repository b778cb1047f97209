// Window and matmul shows how threads share what they load: vectors added with
// the host's side spelled out, sums over a sliding window, and the product of
// matrices in fourteen steps, from one thread per output to the limit of the tensor cores.
//
//	go run ./examples/02-window-and-matmul
//	go run ./examples/02-window-and-matmul -html out.html
//
// It reads like a notebook: byhand.go and add.go add vectors, window.go sums
// windows, matmul.go climbs the ladder, warpgroups.go and race.go its upper half, counts.go counts loads, accuracy.go looks
// at the last bits. Without a GPU it runs the kernels' Go bodies on less and shows
// the figures recorded on a GPU.
package main

import (
	"embed"
	"flag"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
)

//go:embed *.go recorded.json
var files embed.FS

const title = "Windows and matrices: threads that share what they load"

func main() {
	counted := flag.String("counts", "", "file with the loads that ncu counted, as CSV: see counts.go")
	measured := flag.String("cublas", "", "file with cuBLAS's times, as cublas.py prints them")
	profile := flag.Bool("profile", false, "launch versions 1 to 7 of MatMul once each, for ncu, and do nothing else")
	notebook.Main(title, files, func(p *notebook.Page) {
		if *profile {
			launchAll(p)
		} else {
			run(p, *counted, *measured)
		}
	})
}

func run(p *notebook.Page, counted, measured string) {
	vectors(p)
	windows(p)
	ladder := matrices(p)
	warpgroups(p, ladder.us, measured)
	loads(p, counted)
	accuracy(p)
	learnt(p)
}

// benchmark names the product of n x n matrices among the cases of the benchmarks.
func benchmark(version, n int, dt kernels.Dtype) notebook.Case {
	return notebook.OpCase(version, "MatMul", fmt.Sprint(n), dt)
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
	return notebook.In(work/us/1e3, unit).String()
}

// gain prints how many times as fast the later of two times is.
func gain(before, after float64) string {
	if math.IsNaN(before / after) {
		return figure.Number(math.NaN())
	}
	return figure.Number(before/after) + "x"
}
