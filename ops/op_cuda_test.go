//go:build cuda

package ops

import (
	"testing"

	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// orphan is an Add whose kernel has a Go body and no image.
type orphan struct{ add }

func (orphan) String() string { return "Orphan" }

func (o orphan) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	p, err := o.add.Plan(dev, in...)
	if err != nil {
		return nil, err
	}
	k := *p.Launches[0].Kernel
	k.Image = kernels.Builtin().Image("no such source")
	p.Launches[0].Kernel = &k
	return p, nil
}

// Without an image an op runs on the host in the middle of a graph on a device.
func TestNoImage(t *testing.T) {
	testutil.SkipUnless(t, "GPU", tape.Available())
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(3),
		gorgonia.WithValue(tensor.New(tensor.WithBacking([]float32{1, 2, 3}))))
	y := x
	for _, p := range []Primitive{add{}, orphan{}, add{}} {
		var err error
		if y, err = Apply(p, y, y); err != nil {
			t.Fatal(err)
		}
	}
	vm, err := tape.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	if err := vm.Close(); err != nil {
		t.Error(err)
	}
	if got := y.Value().Data().([]float32); got[0] != 8 || got[1] != 16 || got[2] != 24 {
		t.Errorf("got %v, want [8 16 24]", got)
	}
}

// A machine's values that do not fit the op are errors that name it.
func TestCUDADoBadValues(t *testing.T) {
	op := addOp(t, kernels.Float32, 3)
	three := tensor.New(tensor.WithBacking([]float32{1, 2, 3}))
	for name, in := range map[string][]gorgonia.Value{
		"one input":     {three},
		"no value":      {three, nil},
		"another shape": {three, tensor.New(tensor.WithBacking([]float32{1}))},
		"another type":  {three, tensor.New(tensor.WithBacking([]float64{1, 2, 3}))},
		"no machine":    {three, three},
	} {
		if v, err := (cudaOp{op}).CUDADo(nil, 0, nil, in...); err == nil {
			t.Errorf("%s: got %v and no error", name, v)
		}
	}
}
