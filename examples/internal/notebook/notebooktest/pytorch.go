package notebooktest

import (
	"errors"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"gorgonia.org/tensor"
)

// Logits fails unless a network has PyTorch's logits, within 1e-5 of the largest. testdata/make.py of the test's folder has written its weights to model.safetensors, and
// inputs x and their logits to logits.safetensors. of returns the logits of x, of a shape, by the network with the weights of the store.
func Logits[T safetensors.Element](t *testing.T, of func(store *cudaops.Store, x []T, shape []int) []float32) {
	t.Helper()
	store := cudaops.NewStore()
	defer store.Close()
	_, err := checkpoint.LoadStore("testdata/model.safetensors", store)
	f, opened := safetensors.Open("testdata/logits.safetensors")
	if err := errors.Join(err, opened); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, out := f.Find("x"), f.Find("logits")
	x, want := make([]T, tensor.Shape(in.Shape).TotalSize()), make([]float64, tensor.Shape(out.Shape).TotalSize())
	if err := errors.Join(safetensors.Elements(in, 0, x), safetensors.Elements(out, 0, want)); err != nil {
		t.Fatal(err)
	}
	got := of(store, x, in.Shape)
	if len(got) != len(want) {
		t.Fatalf("got %d logits, want %d", len(got), len(want))
	}
	var worst, largest float64
	for i, v := range want {
		worst, largest = max(worst, math.Abs(float64(got[i])-v)), max(largest, math.Abs(v))
	}
	if !(worst <= 1e-5*largest) {
		t.Errorf("the logits differ by up to %g, want 1e-5 of the largest, %g", worst, largest)
	}
}
