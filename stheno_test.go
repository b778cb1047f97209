package stheno_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func graph() (*gorgonia.ExprGraph, *gorgonia.Node, error) {
	g := gorgonia.NewGraph()
	a := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("a"), gorgonia.WithShape(3),
		gorgonia.WithValue(tensor.New(tensor.WithBacking([]float32{1, 2, 3}))))
	sum, err := ops.Add(a, a)
	return g, sum, err
}

func ExampleNewVM() {
	g, sum, err := graph()
	if err != nil {
		fmt.Println(err)
		return
	}
	vm, err := stheno.NewVM(g) // on the GPU if there is one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sum.Value())
	// Output: [2  4  6]
}

func TestNewVM(t *testing.T) {
	g, _, err := graph()
	if err != nil {
		t.Fatal(err)
	}
	devices, none := stheno.Devices()
	if none != nil && !errors.Is(none, stheno.ErrNoDevice) || none == nil && len(devices) == 0 {
		t.Errorf("Devices gives %v, %v", devices, none)
	}
	vm, err := stheno.NewVM(g)
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if got := vm.Report().Device; (none == nil) == (got == "host backend") {
		t.Errorf("runs on %q, devices: %v (%v)", got, devices, none)
	}
	host, err := stheno.NewVM(g, cudaops.OnHost())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if got := host.Report().Device; got != "host backend" {
		t.Errorf("OnHost runs on %q", got)
	}
	if none != nil {
		if _, err := stheno.NewVM(g, cudaops.OnDevice(0)); !errors.Is(err, stheno.ErrNoDevice) {
			t.Errorf("OnDevice(0) without a GPU gives %v", err)
		}
	}
}
