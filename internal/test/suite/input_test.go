package suite

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Values that do not fit the graph are errors of Do.
func TestBadValues(t *testing.T) {
	x32 := tensor.New(tensor.WithBacking([]float32{1, 2, 3}))
	for name, v := range map[string]gorgonia.Value{
		"none":          nil,
		"another shape": tensor.New(tensor.WithBacking([]float32{1, 2})),
		"another type":  tensor.New(tensor.WithBacking([]float64{1, 2, 3})),
		"scalar":        gorgonia.NewF32(1),
		"a column":      tensor.New(tensor.WithShape(3, 1), tensor.WithBacking([]float32{1, 2, 3})),
		"no elements":   tensor.New(tensor.WithShape(0), tensor.WithBacking([]float32{})),
	} {
		g := gorgonia.NewGraph()
		a := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(3), gorgonia.WithName("a"))
		b := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(3), gorgonia.WithName("b"))
		n, err := ops.Add(a, b)
		if err != nil {
			t.Fatal(err)
		}
		op := n.Op()
		if out, err := op.Do(x32, v); err == nil || !strings.Contains(err.Error(), "Add: input 1") {
			t.Errorf("%s: Do gave %v and error %v, want one that names input 1", name, out, err)
		}
	}
}
