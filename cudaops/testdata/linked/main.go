// Program linked runs a graph with no option.
package main

import (
	"github.com/stheno-ml/stheno"
	"gorgonia.org/gorgonia"
)

func main() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, gorgonia.Float32, gorgonia.WithShape(2, 3), gorgonia.WithInit(gorgonia.Ones()))
	gorgonia.Must(gorgonia.Mul(x, gorgonia.Must(gorgonia.Transpose(x))))
	vm, err := stheno.NewVM(g)
	if err == nil {
		defer vm.Close()
		err = vm.RunAll()
	}
	if err != nil {
		panic(err)
	}
}
