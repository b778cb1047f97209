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
	c := Program{Step: graphspec.Step{Case: graphspec.CrossEntropy(20, 30)}}
	in, values := c.Values(NewBlock(1, 100_003).F32), map[string]float64{}
	checked, times, err := c.runGraph(values, in, 3, cudaops.OnHost())
	if err != nil || checked != "all" || len(times) == 0 || times[0] <= 0 || values["error"] > 1 {
		t.Errorf("got %q, %v, %v, %v, want times and no error", checked, times, values, err)
	}
	right := c.Build
	for want, build := range map[string]func(in gorgonia.Nodes) gorgonia.Nodes{
		"wrong result": func(in gorgonia.Nodes) gorgonia.Nodes {
			out := right(in)
			return append(gorgonia.Nodes{gorgonia.Must(gorgonia.Neg(out[0]))}, out[1:]...)
		},
		"outputs, want": func(in gorgonia.Nodes) gorgonia.Nodes { return right(in)[:1] },
	} {
		c.Build = build
		if _, _, err := c.runGraph(values, in, 3, cudaops.OnHost()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
