//go:build cuda

package tape

import (
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A transposed input is bound in order for a run, and then as it was, with the
// gradient bound to it meanwhile.
func TestCompactInputs(t *testing.T) {
	g := gorgonia.NewGraph()
	own := tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6}))
	if err := own.T(); err != nil {
		t.Fatal(err)
	}
	plain := tensor.New(tensor.WithBacking([]float64{7, 8}))
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(2, 3), gorgonia.WithValue(own))
	y := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("y"), gorgonia.WithShape(2), gorgonia.WithValue(plain))
	for range 2 { // the second time x has a gradient
		restore, err := compactInputs(g)
		if err != nil {
			t.Fatal(err)
		}
		if got := x.Value().Data().([]float64); !slices.Equal(got, []float64{1, 3, 5, 2, 4, 6}) {
			t.Errorf("bound %v, want [1 3 5 2 4 6]", got)
		}
		if y.Value() != gorgonia.Value(plain) {
			t.Error("an input in order was bound anew")
		}
		gorgonia.WithGrad(tensor.New(tensor.WithShape(2, 3), tensor.Of(tensor.Float64)))(x)
		restore()
		if x.Value() != gorgonia.Value(own) {
			t.Errorf("after the run x is bound to %v, want its own value", x.Value())
		}
		if d, err := x.Grad(); err != nil || !d.Shape().Eq(tensor.Shape{2, 3}) {
			t.Errorf("after the run the gradient is %v, %v", d, err)
		}
	}
}

func TestCompactInputsRefuses(t *testing.T) {
	g := gorgonia.NewGraph()
	masked := tensor.New(tensor.WithBacking([]float64{1, 2}, []bool{false, true}))
	gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(2), gorgonia.WithValue(masked))
	restore, err := compactInputs(g)
	restore()
	if err == nil || !strings.Contains(err.Error(), "input x is masked") {
		t.Errorf("a masked input: %v", err)
	}
}
