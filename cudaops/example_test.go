package cudaops_test

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
)

// A machine tells where each node runs; Strict refuses what has no kernel.
func ExampleNewVM() {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float32, G.WithShape(4), G.WithName("x"), G.WithInit(G.RangedFrom(1)))
	y := G.Must(ops.Add(x, G.Must(G.Sparsemax(x))))

	_, err := cudaops.NewVM(g, cudaops.OnHost(), cudaops.Strict())
	fmt.Println(err)

	vm, err := cudaops.NewVM(g, cudaops.OnHost()) // OnDevice(0) for the GPU
	if err != nil {
		fmt.Println(err)
		return
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(y.Value())
	for _, n := range vm.Report().Nodes {
		fmt.Printf("%s: %s, %d bytes in, %d out\n", n.Name, n.Where, n.In, n.Out)
	}
	// Output:
	// cudaops: no kernel for 1 of the ops, and Strict is set: node Sparsemax{}()(%0), op Sparsemax{}(): no kernel
	// [1  2  3  5]
	// x: input, 16 bytes in, 0 out
	// Sparsemax{}()(%0): host, 16 bytes in, 0 out
	// Add(%0, %1): host backend, 0 bytes in, 16 out
}
