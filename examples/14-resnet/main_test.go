package main

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// The network has PyTorch's logits and trains (the program fails if not), and the page and its figures are there.
func TestResnet(t *testing.T) {
	notebooktest.Run(t, title, files, run, 2, "func resnet(", "func block(", "func load(", "func draw(", "func fit(", "evaluated", "trained", "are right", "images.png", "curves.png")
}

// An epoch draws the same images in each run, and others than the next epoch.
func TestDraw(t *testing.T) {
	set := testutil.Get[digits.Set](t)(digits.Load()).Take([]int{3, 4})
	if one := draw(1, set); len(one) != 2*side*side || !slices.Equal(one, draw(1, set)) || slices.Equal(one, draw(2, set)) {
		t.Errorf("got %d pixels, want %d, the same again in epoch 1 and others in epoch 2", len(one), 2*side*side)
	}
}
