package maintain

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// The scripts that time other libraries know every op, every expression, and every program of a graph or a step, by how its name begins.
func TestPeersKnowEveryCase(t *testing.T) {
	entries := func(scripts ...string) (names []string) {
		for _, script := range scripts {
			text := string(testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(root, "bench", script))))
			for _, m := range regexp.MustCompile(`"([^"]+)": `).FindAllStringSubmatch(text, -1) {
				names = append(names, m[1])
			}
		}
		return names
	}
	known := entries("op_peers.py")
	drawn := testutil.Get[[]opspec.Drawn](t)(opspec.Draw(1200, 1, opspec.Limits{Least: 1e3, Most: 1e9, Flops: 1e12}, opspec.All()))
	words := map[string]bool{}
	for _, c := range slices.Concat(Cases(records.Ops), Random(drawn)) {
		d := c.Describe().(opspec.Description)
		words[d.Op], words[d.Expression] = true, true
	}
	delete(words, "")
	if len(words) < 12+6+6 {
		t.Errorf("%d ops and expressions are timed or drawn, want all", len(words))
	}
	for word := range words {
		if !slices.Contains(known, word) {
			t.Errorf("bench/op_peers.py has no entry %q", word)
		}
	}
	programs := entries("graph_peers.py", "step_peers.py")
	for _, c := range slices.Concat(Cases(records.Graphs), Cases(records.Steps)) {
		if !slices.ContainsFunc(programs, func(name string) bool { return strings.HasPrefix(c.Key().Op, name) }) {
			t.Errorf("bench/graph_peers.py and step_peers.py have no program for %v", c.Key())
		}
	}
}
