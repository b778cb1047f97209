package passes

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// TestPlain checks that targets without Mixed have all other passes, in their order.
func TestPlain(t *testing.T) {
	name := func(p Pass) string { return p.Name }
	others := slices.DeleteFunc(slices.Clone(All), func(p Pass) bool { return p.Name == "mixed" })
	if got, want := program.Collect(plain, name), program.Collect(others, name); !slices.Equal(got, want) {
		t.Errorf("got the passes %v, want %v", got, want)
	}
}
