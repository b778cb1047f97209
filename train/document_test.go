package train

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// The code of docs/from-pytorch.md is that of the examples here.
func TestFromPyTorch(t *testing.T) {
	testutil.CheckDocument(t, "../docs/from-pytorch.md", "frompytorch_example_test.go", 16, "frompytorch_text_example_test.go", "../nn/pytorch_test.go")
}

// The code of docs/training.md is that of the examples here and in package checkpoint, which are
// compiled and run.
func TestDocument(t *testing.T) {
	testutil.CheckDocument(t, "../docs/training.md", "example_test.go", 15, "validate_example_test.go", "../checkpoint/example_test.go")
}
