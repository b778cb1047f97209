package main

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func main() {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(64, 503), G.WithInit(G.Ones()))
	w := G.NewMatrix(g, tensor.Float32, G.WithName("w"), G.WithShape(503, 503), G.WithInit(G.Ones()))
	labels := G.NewVector(g, tensor.Int32, G.WithName("labels"), G.WithShape(64))
	y := G.Must(ops.MatMul(x, w))
	loss := G.Must(ops.CrossEntropy(y, labels))
	if _, err := G.Grad(loss, w); err != nil { panic(err) }
	vm, err := cudaops.NewVM(g, cudaops.OnHost(), cudaops.Train(G.NewVanillaSolver(), w))
	if err != nil {
		panic(err)
	}
	fmt.Println(vm.Report())
	for _, s := range vm.Report().Steps {
		fmt.Println(s.Op)
	}
}
