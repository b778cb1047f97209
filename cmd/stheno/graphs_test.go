package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/evidence"
	"github.com/stheno-ml/stheno/internal/graphspec"
	"github.com/stheno-ml/stheno/internal/results"
	"gorgonia.org/gorgonia"
)

func TestTimedGraphsSelect(t *testing.T) {
	count := func(text string, most megabytes) int {
		n := 0
		for _, c := range timedGraphs(most) {
			if (pattern{regexp.MustCompile(text)}).Matches(caseName(c)) {
				n++
			}
		}
		return n
	}
	if n, all := count("", 0), len(evidence.Graphs()); n != all || n == 0 {
		t.Errorf("%d graphs are selected of %d, want all", n, all)
	}
	if n := count("^softmax/16384x1000/f32$", 0); n != 1 {
		t.Errorf("the pattern of one graph selects %d", n)
	}
	if n := count("^softmax/", 134.3); n != 2 {
		t.Errorf("%d softmaxes move at most 134.3 MB, want those of 128 and 1000 columns", n)
	}
}

// A run of a machine is checked and timed; one whose outputs are others' is not taken.
func TestGraphCaseRun(t *testing.T) {
	c := graphCase{evidence.TimedGraph{Case: graphspec.CrossEntropy(20, 30)}}
	in := c.Values(newRandomBlock(1, 100_003).f32)
	g, nodes := c.Graph(in)
	vm, err := cudaops.NewVM(g, cudaops.OnHost())
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	row := results.Row{Graph: &results.Graph{}}
	if err := c.run(&row, vm, in, nodes, 3); err != nil || !(row.Graph.Run > 0) || row.Error > 1 {
		t.Errorf("got %+v, %v, want a time and no error", row, err)
	}
	other := c.Values(newRandomBlock(2, 100_003).f32)
	if err := c.run(&row, vm, other, nodes, 3); err == nil || !strings.Contains(err.Error(), "wrong result") {
		t.Errorf("outputs for other inputs: %v, want an error that they are wrong", err)
	}
	if err := c.run(&row, vm, in, gorgonia.Nodes{nodes[0]}, 3); err == nil {
		t.Error("no error for an output too few")
	}
}
