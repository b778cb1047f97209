package main

import (
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
)

// The program runs on small sizes, its sums are right (it fails if not), and
// its text, page and figures are there.
func TestStepByStep(t *testing.T) {
	notebooktest.Run(t, title, files, run, 3,
		"Step 1: one thread", "void sum_thread(", "double tree_sum(", "void reduce_rows(", "6: the op, ops.Sum", "steps.png", "sums-by-size.png")
}

// The drawn picture is grey values.
func TestPicture(t *testing.T) {
	for i, v := range draw(64) {
		if !(v >= 0 && v <= 1) {
			t.Fatalf("pixel %d of the drawn picture is %v, want 0 to 1", i, v)
		}
	}
}

// The record has every figure that the program shows.
func TestRecordIsComplete(t *testing.T) {
	notebooktest.Recorded(t, files, run)
}
