package maintain

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"gorgonia.org/gorgonia"
)

// A run of a machine is checked and timed; one whose outputs are others' is not taken.
func TestGraphCaseRun(t *testing.T) {
	c := Graph{graphspec.CrossEntropy(20, 30)}
	in := c.Values(NewBlock(1, 100_003).F32)
	g, nodes := c.Graph(in)
	vm, err := cudaops.NewVM(g, cudaops.OnHost())
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	values := map[string]float64{}
	if err := c.run(values, vm, in, nodes, 3); err != nil || !(values["run"] > 0) || values["error"] > 1 {
		t.Errorf("got %v, %v, want a time and no error", values, err)
	}
	other := c.Values(NewBlock(2, 100_003).F32)
	if err := c.run(values, vm, other, nodes, 3); err == nil || !strings.Contains(err.Error(), "wrong result") {
		t.Errorf("outputs for other inputs: %v, want an error that they are wrong", err)
	}
	if err := c.run(values, vm, in, gorgonia.Nodes{nodes[0]}, 3); err == nil {
		t.Error("no error for an output too few")
	}
}
