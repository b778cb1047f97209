package train

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/must"
)

// The code of docs/training.md is that of the examples, which are compiled and run.
func TestDocument(t *testing.T) {
	document := string(must.Get[[]byte](t)(os.ReadFile("../docs/training.md")))
	examples := string(must.Get[[]byte](t)(os.ReadFile("example_test.go")))
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(document, -1)
	for _, b := range blocks {
		if !strings.Contains(examples, "\n"+b[1]) {
			t.Errorf("the examples do not have\n%s", b[1])
		}
	}
	if len(blocks) < 5 {
		t.Errorf("the document has %d pieces of code, want those of the loop", len(blocks))
	}
}
