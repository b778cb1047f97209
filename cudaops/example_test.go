package cudaops_test

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
)

// A machine reports where each node runs; Strict refuses ops without a kernel.
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
	// cudaops: no kernel for 1 of the ops, and Strict is set: node Sparsemax{}()(x), op Sparsemax{}(): no kernel
	// [1  2  3  5]
	// x: input, 16 bytes in, 0 out
	// Sparsemax{}()(x): host, 16 bytes in, 0 out
	// Add(x, Sparsemax{}()(x)): host backend, 0 bytes in, 16 out
}

// A line through four points: each run makes a step of the solver, and Pull brings the
// parameters to the host.
func ExampleTrain() {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float64, G.WithShape(4), G.WithName("x"), G.WithInit(G.RangedFrom(0)))
	y := G.NewVector(g, G.Float64, G.WithShape(4), G.WithName("y"), G.WithInit(G.RangedFrom(3)))
	m := G.NewScalar(g, G.Float64, G.WithName("m"), G.WithValue(0.0))
	c := G.NewScalar(g, G.Float64, G.WithName("c"), G.WithValue(0.0))
	line := G.Must(G.Add(G.Must(G.Mul(x, m)), c))
	loss := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(line, y))))))
	if _, err := G.Grad(loss, m, c); err != nil {
		fmt.Println(err)
		return
	}

	solver := G.NewVanillaSolver()
	vm, err := cudaops.NewVM(g, cudaops.OnHost(), cudaops.Train(solver, m, c)) // OnDevice(0) for the GPU
	if err != nil {
		fmt.Println(err)
		return
	}
	defer vm.Close()
	for step := range 400 {
		G.WithLearnRate(0.2 / (1 + float64(step)/1000))(solver) // a schedule
		if err := vm.RunAll(); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("before Pull:", m.Value(), c.Value())
	if err := vm.Pull(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("after Pull: %.3f %.3f\n", m.Value().Data(), c.Value().Data())
	// Output:
	// before Pull: 0 0
	// after Pull: 1.000 3.000
}

// Gorgonia takes two slices for one node if their ends differ by a multiple of 256.
func ExampleNewVM_mergedSlices() {
	g := G.NewGraph()
	qkv := G.NewMatrix(g, G.Float64, G.WithName("qkv"), G.WithShape(2, 3*256), G.WithInit(G.RangedFrom(0)))

	q := G.Must(G.Slice(qkv, nil, G.S(0, 256)))
	k := G.Must(G.Slice(qkv, nil, G.S(256, 512)))
	fmt.Println("one node:", q == k)

	parts := G.Must(G.Reshape(qkv, []int{2, 3, 256})) // parts along an axis of their own
	q = G.Must(G.Slice(parts, nil, G.S(0)))
	k = G.Must(G.Slice(parts, nil, G.S(1)))
	fmt.Println("one node:", q == k)
	// Output:
	// one node: true
	// one node: false
}
