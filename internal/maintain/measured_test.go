package maintain

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

var (
	generated = regexp.MustCompile(`(?s)<!-- (\w+):begin -->.*?<!-- \w+:end -->`)
	measured  = regexp.MustCompile(`\d ?(us|µs|ms|GB/s|[TG]FLOP/s|steps/s|times as fast)\b`)
)

// A measured number stands in a table that is generated from recorded runs, or in none: where a
// text repeats one, the two differ after the next run. Pages that a run writes whole are left out.
func TestMeasurementsAreGenerated(t *testing.T) {
	root := filepath.Join("..", "..")
	pages := testutil.Get[[]string](t)(filepath.Glob(filepath.Join(root, "docs", "*.md")))
	for _, path := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		text := string(testutil.Get[[]byte](t)(os.ReadFile(path)))
		for _, line := range strings.Split(generated.ReplaceAllString(text, ""), "\n") {
			if found := measured.FindString(line); found != "" {
				t.Errorf("%s has the measurement %q outside of a generated table: %s", path, found, line)
			}
		}
	}
	if !measured.MatchString("Add took 738 us") || measured.MatchString("float64 in 3 mshapes") {
		t.Error("measurements are not recognised")
	}
}
