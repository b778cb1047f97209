package main

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
)

// The program runs on small sizes, its sums are right (it fails if not), and
// its text, page and figures are there.
func TestReduction(t *testing.T) {
	notebooktest.Run(t, title, files, run, 5,
		"double naive_sum(", "double tree_sum(", "double warp_sum(", "a + b*b", "void reduce_rows(", "void sum_blocks2d(",
		"7: tree in shared memory", "columns, the op", "sums.png", "lengths.png", "ripple.png", "ripple-racy-wrong.png")
}

// The record has every figure that the program shows.
func TestRecordIsComplete(t *testing.T) { notebooktest.Recorded(t, files, run) }

// The checks find one element that is lost, in sums of double precision, and a
// neighbour of the last bit in float32.
func TestAgrees(t *testing.T) {
	x := shares(1e6)
	all := func(v float64) float64 { return v }
	exact, largest := total(x, all), float64(x[len(x)-1])
	if math.Abs(exact-1) > 1e-7 || total(x[:1], all) != 0 || total([]float64{1, 2, 3}, all) != 6 {
		t.Errorf("the shares add up to %v, want 1", exact)
	}
	lost := append([]float32(nil), x...)
	lost[len(x)/2] = 0
	if agrees("lost", total(lost, all), exact, double) == nil {
		t.Error("a lost element is not found in double precision")
	}
	if agrees("lost", float64(float32(total(lost, all))), exact, single) == nil {
		t.Error("a lost element is not found in float32")
	}
	for _, got := range []float64{float64(math.Nextafter32(float32(largest), 0)), math.NaN()} {
		if agrees("largest", got, largest, 0) == nil {
			t.Errorf("%v passes for %v", got, largest)
		}
	}
	if err := agrees("right", float64(float32(exact)), exact, single); err != nil {
		t.Error(err)
	}
}
