package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
)

// The program runs on small sizes, its results are right (it fails if not), and its text, page and figure are there.
func TestAttention(t *testing.T) {
	notebooktest.Run(t, title, files, run, 1, "Step 1: unfused", "attention_tiled_bf16(", "func softmaxMean(", "void attend(", "struct Attend", "Step 5: warp-specialised", "steps.png")
}

// One pass computes what two compute.
func TestSoftmaxMean(t *testing.T) {
	scores, values := make([]float64, 100), make([]float64, 100)
	total, sum := 0.0, 0.0
	for i := range scores {
		scores[i], values[i] = 10*rand.NormFloat64(), rand.NormFloat64()
		total += math.Exp(scores[i])
		sum += math.Exp(scores[i]) * values[i]
	}
	if got, want := softmaxMean(scores, values), sum/total; math.Abs(got-want) > 1e-12 {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The record has every figure that the program shows.
func TestRecordIsComplete(t *testing.T) {
	notebooktest.Recorded(t, files, run)
}
