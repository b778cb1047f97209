//go:build !cuda

package tape_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// NewMachine takes the place of gorgonia.NewTapeMachine, with the tag cuda and without.
func ExampleNewMachine() {
	g := gorgonia.NewGraph()
	w := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("w"), gorgonia.WithValue(tensor.New(tensor.WithBacking([]float64{1, 2, 3}))))
	loss := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(w))))
	if _, err := gorgonia.Grad(loss, w); err != nil {
		fmt.Println(err)
		return
	}

	vm, err := tape.NewMachine(g, gorgonia.BindDualValues(w))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(loss.Value())
	// Output: 14
}

// The code in docs/cuda-tag.md is that of the example.
func TestDocument(t *testing.T) {
	testutil.CheckDocument(t, "../../docs/cuda-tag.md", "example_test.go", 1)
}
