package safetensors

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Zero and nil values are errors, and end in no panic.
func TestSurvives(t *testing.T) {
	x := Tensor{Name: "a", Dtype: "F32", Shape: []int{2}, Data: make([]byte, 8)}
	f := testutil.Get[*File](t)(rewritten(nil, []Tensor{x}))
	path := filepath.Join(t.TempDir(), "empty")
	testutil.Write(t, path, "")
	testutil.Survive(t, map[string]any{"New": New, "Open": Open, "Write": Write, "Elements": Elements[float32]},
		path, bytes.NewReader(nil), new(bytes.Buffer), new(File), f, *f, Tensor{}, x, &x, &f.Tensors[0], []float32{1})
}
