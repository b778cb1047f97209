package maintain

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// A new test of a group makes the group's evidence stale under the tools that run it, and another order of the list does not. Another generator makes that of generated kernels stale.
func TestEvidenceOfTests(t *testing.T) {
	g := groups["generated"]
	more, turned, short := g, g, g
	more.tests = append(slices.Clone(g.tests), "TestNew")
	turned.tests = slices.Clone(g.tests)
	slices.Reverse(turned.tests)
	short.checked = g.checked[1:]
	for _, c := range []struct {
		name, tool string
		g          group
		want       State
	}{
		{"the same", "test", g, Current},
		{"another order", "test", turned, Current},
		{"one more", "test", more, Stale},
		{"one more, that sanitizers do not run", "memcheck", more, Current},
		{"one less that sanitizers run", "memcheck", short, Stale},
		{"one less under sanitizers alone", "test", short, Current},
	} {
		digests := testutil.Get[records.Digests](t)(c.g.digests("generated", c.tool))
		recorded := ran(c.tool+" generated", "PASS", testutil.Get[records.Digests](t)(g.digests("generated", c.tool)))
		if got := newSuite(c.tool, "generated", 1, 1, "", "", digests).State([]records.Record{recorded}); got != c.want {
			t.Errorf("%s: got state %v, want %v", c.name, got, c.want)
		}
		recorded.Kernels = changed(recorded.Kernels, "generator", "x")
		if got := newSuite(c.tool, "generated", 1, 1, "", "", digests).State([]records.Record{recorded}); got != Stale {
			t.Errorf("%s, another generator: got state %v, want %v", c.name, got, Stale)
		}
	}
}
