package cudaops

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Let takes a slice for a tensor of the node's shape.
func TestLetSlice(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithShape(2, 3), G.WithName("x"))
	one := G.NewScalar(g, tensor.Float32, G.WithName("one"), G.WithValue(float32(1)))
	y := testutil.Get[*G.Node](t)(G.Sum(testutil.Get[*G.Node](t)(G.Add(x, one)), 0))
	vm := testutil.Get[*VM](t)(NewVM(g, OnAny()))
	defer vm.Close()
	testutil.Do(t, vm.Let(x, []float32{1, 2, 3, 4, 5, 6}))
	testutil.Do(t, vm.Let(one, float32(1)))
	testutil.Do(t, vm.RunAll())
	sameValue(t, "sums of columns", y.Value(), tensor.New(tensor.WithBacking([]float32{7, 9, 11})))
	for want, value := range map[string]any{
		"node x: got a slice of 5 elements, want one for each element of shape (2, 3)": make([]float32, 5),
		"node x: got a slice of struct {}":                                             make([]struct{}, 6),
		"node x: ":                                                                     make([]float64, 6),
	} {
		if err := vm.Let(x, value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want %q", err, want)
		}
	}
	if err := vm.Let(one, []float32{1}); err == nil {
		t.Error("got no error of a slice for a scalar")
	}
}
