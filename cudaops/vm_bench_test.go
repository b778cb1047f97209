package cudaops

import (
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec/exectest"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// chain returns a graph of consecutive nodes on vectors of 8 elements, with alternating ops of Stheno and Gorgonia.
func chain(t testing.TB, nodes int) *G.ExprGraph {
	node, g := testutil.Get[*G.Node](t), G.NewGraph()
	x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(8), G.WithValue(tensor.New(tensor.WithBacking(make([]float64, 8)))))
	for y := x; len(g.AllNodes()) < nodes; {
		if y = node(ops.Add(y, x)); len(g.AllNodes()) < nodes {
			y = node(G.Tanh(y))
		}
	}
	return g
}

// A graph of 16 000 nodes should compile within half a second.
func BenchmarkNewVM(b *testing.B) {
	g := chain(b, 16000)
	for b.Loop() {
		vm, err := NewVM(g, OnHost())
		testutil.Do(b, err)
		testutil.Do(b, vm.Close())
	}
}

// A run of 50 tiny nodes should take 15 us: the machine's overhead plus the Go bodies.
func BenchmarkRunTinyNodes(b *testing.B) {
	vm, err := NewVM(chain(b, 50), OnHost())
	testutil.Do(b, err)
	defer vm.Close()
	for b.Loop() {
		testutil.Do(b, vm.RunAll())
		vm.Reset()
	}
}

// BenchmarkRunOnNothing times the host's part of a run, without the driver: one launch, an input and a
// result.
func BenchmarkRunOnNothing(b *testing.B) {
	g := chain(b, 50)
	out := new(G.Value)
	G.Read(g.Roots()[0], out)
	vm, err := newVM(g, &config{}, &nothing{exectest.Recorder{For: exectest.H200}})
	testutil.Do(b, err)
	defer vm.Close()
	b.ReportAllocs()
	for b.Loop() {
		testutil.Do(b, vm.RunAll())
	}
}

// nothing is a device that does nothing.
type nothing struct{ exectest.Recorder }

func (n *nothing) Stage(bytes int64) ([]byte, error) { return make([]byte, bytes), nil }
