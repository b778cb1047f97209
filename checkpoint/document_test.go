package checkpoint

import (
	"os"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/must"
)

// The loop of docs/training.md is the example's, which is compiled and run.
func TestDocument(t *testing.T) {
	page := string(must.Get[[]byte](t)(os.ReadFile("../docs/training.md")))
	example := string(must.Get[[]byte](t)(os.ReadFile("example_test.go")))
	_, section, _ := strings.Cut(page, "\n## Checkpoints\n")
	section, _, found := strings.Cut(section, "\n## ")
	var code strings.Builder
	for line := range strings.Lines(section) {
		if own, ok := strings.CutPrefix(line, "    "); ok {
			for strings.HasPrefix(own, "    ") {
				own = own[4:]
			}
			code.WriteString(own)
		}
	}
	var flat strings.Builder
	for line := range strings.Lines(example) {
		flat.WriteString(strings.TrimLeft(line, "\t"))
	}
	if !found || strings.Count(code.String(), "\n") < 20 || !strings.Contains(flat.String(), code.String()) {
		t.Errorf("the code of the section is not a part of example_test.go:\n%s", code.String())
	}
}
