package exec

import (
	"bytes"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Launches that are repeated find the copied values in their place on the device, and do the
// same again.
func TestReplay(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(30, 70), gorgonia.WithInit(gorgonia.Uniform(-1, 1)))
	y := gorgonia.Must(gorgonia.Tanh(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Exp(x))))))
	z := gorgonia.Must(gorgonia.HadamardProd(gorgonia.Must(gorgonia.SoftMax(y)), y))
	gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Neg(z)), 0))
	graph, err := lower.New(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := new(HostBackend)
	if err := passes.Run(graph.Program, passes.Target{Device: b.Device(), Replay: true}, nil); err != nil {
		t.Fatal(err)
	}
	if err := program.Verify(graph.Program); err != nil {
		t.Fatal(err)
	}
	e, err := New(graph.Program, b, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Run([]gorgonia.Value{x.Value()}); err != nil {
		t.Fatal(err)
	}
	replay, err := e.Replay(len(e.launches)) // on the host, recording is running
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(b.arena)
	for range 3 {
		if err := replay(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.arena, before) {
			t.Fatal("the device's memory differs from that after the run")
		}
	}
	if len(e.launches) == 0 {
		t.Error("there are no launches")
	}
}
