package suite

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/opspec"
)

// Ops of other parameters, types or shapes are other nodes of a graph, which
// distinguishes them by their hashes.
func TestHash(t *testing.T) {
	seen := map[uint32]string{}
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			for _, dt := range c.Types {
				if c.Composed { // other cases have its last op, too
					continue
				}
				_, n, err := c.Nodes(dt, nil)
				if err != nil {
					t.Fatalf("%s, case %s: %v", s.Name, c.Name, err)
				}
				_, again, err := c.Nodes(dt, nil)
				if err != nil {
					t.Fatal(err)
				}
				o := n.Op()
				if o.Hashcode() != again.Op().Hashcode() {
					t.Errorf("%v has two hashes", o)
				}
				what := fmt.Sprint(o, dt, c.Shapes)
				if other, ok := seen[o.Hashcode()]; ok && other != what {
					t.Errorf("%s and %s have one hash", other, what)
				}
				seen[o.Hashcode()] = what
			}
		}
	}
}
