package main

import (
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
)

// The program runs on small sizes, its ranks agree with one device (it fails if not), and its text, page and figures are there.
func TestSeveralGPUs(t *testing.T) {
	notebooktest.Run(t, title, files, run, 2, "func (net *network) train(", "after 20 steps", "rank 0, collectives", "rank 1, collectives", "timeline.png", "scaling.png")
}

// The time beside another lane is the part of each event that its events cover.
func TestHidden(t *testing.T) {
	of := &lane{events: []event{{Start: 0, Took: 10}, {Start: 20, Took: 10}}}
	beside := &lane{events: []event{{Start: 5, Took: 20}, {Start: 6, Took: 1}}}
	if all, part := hidden(of, beside); all != 20 || part < 9.7 || part > 10.3 {
		t.Errorf("got %v of %v, want 10 of 20", part, all)
	}
}
