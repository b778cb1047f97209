package own

import (
	"math"
	"os"
	"testing"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The images belong to swish.cu, and the launches have the arguments of its entry points.
func TestImages(t *testing.T) {
	var plans []*kernels.Plan
	for dt := range swishKernel {
		dev, dt := kernels.Device{Major: 9, SMs: 132}, kernels.Dtype(dt)
		plans = append(plans, swishPlan(dev, dt, 1000), gradPlan(dev, dt, 1000))
	}
	if err := kernels.Check(library, plans...); err != nil {
		t.Error(err)
	}
}

// The op computes its formula, on the GPU if there is one; there must be one
// where STHENO_REQUIRE_GPU=1.
func TestSwish(t *testing.T) {
	if _, err := stheno.Devices(); err != nil && os.Getenv("STHENO_REQUIRE_GPU") == "1" {
		t.Fatalf("STHENO_REQUIRE_GPU=1, but: %v", err)
	}
	x := make([]float32, 1003)
	for i := range x {
		x[i] = float32(i-500) / 50 // -10 to 10
	}
	g := gorgonia.NewGraph()
	in := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(len(x)),
		gorgonia.WithValue(tensor.New(tensor.WithBacking(x))))
	y, err := Swish(in)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := stheno.NewVM(g)
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	t.Log(vm.Report())
	for i, got := range y.Value().Data().([]float32) {
		want := float64(x[i]) / (1 + math.Exp(-float64(x[i])))
		if !(math.Abs(float64(got)-want) <= 1e-6*math.Abs(want)) {
			t.Errorf("Swish(%v) = %v, want %v", x[i], got, want)
		}
	}
}

// Gradients agree with finite differences, on the host and on Stheno's machine.
func TestGradient(t *testing.T) {
	build := func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return Swish(in[0]) }
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		x, err := gradcheck.Random(1, dt, tensor.Shape{5, 7})
		if err != nil {
			t.Fatal(err)
		}
		if err := gradcheck.Check(build, x); err != nil {
			t.Errorf("%v: %v", dt, err)
		}
		machine := func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return stheno.NewVM(g) }
		if err := gradcheck.Check(build, x, gradcheck.Machine(machine)); err != nil {
			t.Errorf("%v on Stheno's machine: %v", dt, err)
		}
	}
}
