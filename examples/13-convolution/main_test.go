package main

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
)

// The program runs on small sizes, its results are right (it fails if not), and its text, page and figure are there.
func TestConvolution(t *testing.T) {
	notebooktest.Run(t, title, files, run, 1, "Step 1: direct", "conv_direct_f32(", "func windows(", "void tiles(", "struct Windows", "Step 5: BF16, channels last", "steps.png")
}

// Windows of a corner have zeros outside of the image, and each element is the middle of its window.
func TestWindows(t *testing.T) {
	image := [][]float32{{1, 2, 3}, {4, 5, 6}}
	rows := windows(image)
	if want := []float32{0, 0, 0, 0, 1, 2, 0, 4, 5}; len(rows) != 6 || !slices.Equal(rows[0], want) {
		t.Fatalf("got %v, want 6 rows, the first of them %v", rows, want)
	}
	for i, row := range rows {
		if row[4] != image[i/3][i%3] {
			t.Errorf("the middle of window %d is %v, want %v", i, row[4], image[i/3][i%3])
		}
	}
}

// The record has every figure that the program shows.
func TestRecordIsComplete(t *testing.T) {
	notebooktest.Recorded(t, files, run)
}
