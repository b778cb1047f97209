package own

import (
	"testing"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/gradcheck"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Two ops that differ in a parameter are two nodes, each with its own values.
func TestQuad(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3),
		gorgonia.WithValue(tensor.New(tensor.WithBacking([]float64{1, 2, 3}))))
	once, err1 := Quad(x, 1, 0)
	twice, err2 := Quad(x, 2, 0)
	again, err3 := Quad(x, 2, 0)
	if err1 != nil || err2 != nil || err3 != nil || once == twice || twice != again {
		t.Fatalf("got nodes %v, %v, %v and errors %v, %v, %v, want the last two nodes to be one", once, twice, again, err1, err2, err3)
	}
	vm, err := stheno.NewVM(g)
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	for i, v := range []float64{1, 4, 9} {
		if a, b := once.Value().Data().([]float64)[i], twice.Value().Data().([]float64)[i]; a != v || b != 2*v {
			t.Errorf("element %d: got %v and %v, want %v and %v", i, a, b, v, 2*v)
		}
	}
}

func TestQuadGradient(t *testing.T) {
	build := func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return Quad(in[0], 3, -1) }
	x, err := gradcheck.Random(1, tensor.Float64, tensor.Shape{5, 7})
	if err != nil {
		t.Fatal(err)
	}
	if err := gradcheck.Check(build, x); err != nil {
		t.Error(err)
	}
}
