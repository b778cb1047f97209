package maintain

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Every op has calls of other libraries, in Python that can be read, which know the expressions of its cases. The scripts have every
// program of a graph or a step, by how its name begins.
func TestPeersKnowEveryCase(t *testing.T) {
	drawn := testutil.Get[[]opspec.Drawn](t)(opspec.Draw(1200, 1, opspec.Limits{Least: 1e3, Most: 1e9, Flops: 1e12}, opspec.All()))
	ops := map[string]bool{}
	for _, c := range slices.Concat(Cases(records.Ops, true), Random(drawn)) {
		d := c.Describe().(opspec.Description)
		if ops[d.Op] = true; !strings.Contains(d.Peers, "def peers(c, d):") || !strings.Contains(d.Peers, d.Expression) {
			t.Errorf("%v: got the peers %q, want the Python function peers(c, d), which knows the expression %q", c.Key(), d.Peers, d.Expression)
		}
	}
	specs := slices.DeleteFunc(opspec.All(), func(s opspec.Spec) bool { return s.Wide == nil })
	if len(ops) != len(specs) {
		t.Errorf("%d ops are timed or drawn, want all %d that have wide cases", len(ops), len(specs))
	}
	if python, err := exec.LookPath("python3"); err == nil {
		for _, s := range specs {
			check := exec.Command(python, "-c", "import sys; compile(sys.stdin.read(), 'peers of "+s.Name+"', 'exec')")
			check.Stdin = strings.NewReader(s.Peers)
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
	}

	entries := func(scripts ...string) (names []string) {
		for _, script := range scripts {
			text := string(testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(root, "bench", script))))
			for _, m := range regexp.MustCompile(`"([^"]+)": `).FindAllStringSubmatch(text, -1) {
				names = append(names, m[1])
			}
		}
		return names
	}
	programs := entries("graph_peers.py", "step_peers.py")
	for _, c := range slices.Concat(Cases(records.Graphs, true), Cases(records.Steps, true)) {
		if !slices.ContainsFunc(programs, func(name string) bool { return strings.HasPrefix(c.Key().Op, name) }) {
			t.Errorf("bench/graph_peers.py and step_peers.py have no program for %v", c.Key())
		}
	}
}
