package cudaops_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Two ranks with two points each make the steps of one with four.
func ExampleOnDevices() {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float64, G.WithShape(2), G.WithName("x")) // of one rank
	y := G.NewVector(g, G.Float64, G.WithShape(2), G.WithName("y"))
	m := G.NewScalar(g, G.Float64, G.WithName("m"), G.WithValue(0.0))
	loss := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(G.Must(G.Mul(x, m)), y))))))
	if _, err := G.Grad(loss, m); err != nil {
		fmt.Println(err)
		return
	}

	solver := G.NewVanillaSolver(G.WithLearnRate(0.1))
	vm, err := cudaops.NewVM(g, cudaops.Train(solver, m),
		cudaops.OnHosts(2), // OnDevices(0, 1) for two GPUs
		cudaops.Split(x, y))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer vm.Close()
	rows := []float64{1, 2, 3, 4} // 1 and 2 for rank 0, 3 and 4 for rank 1
	for range 20 {
		if err := vm.Let(x, tensor.New(tensor.WithBacking(rows))); err != nil {
			fmt.Println(err)
			return
		}
		if err := vm.Let(y, tensor.New(tensor.WithBacking([]float64{2, 4, 6, 8}))); err != nil {
			fmt.Println(err)
			return
		}
		if err := vm.RunAll(); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := vm.Pull(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.3f, loss %.3f\n", m.Value(), loss.Value())
	// Output: 2.000, loss 0.000
}

// The code of docs/several-gpus.md is that of the example.
func TestSeveralGPUsDocument(t *testing.T) {
	testutil.CheckDocument(t, "../docs/several-gpus.md", "ranks_example_test.go", 1)
}
