package nn_test

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// The code of docs/nn.md is that of the examples, which are compiled and run.
func TestDocument(t *testing.T) {
	testutil.CheckDocument(t, "../docs/nn.md", "example_test.go", 3)
}
