package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// network is a perceptron with a batch of rows. Equal widths have equal initial values.
type network struct {
	graph      *G.ExprGraph
	x, y, loss *G.Node
	weights    G.Nodes
}

// newNetwork returns the network of a batch: three layers of a width.
func newNetwork(rows, width int) *network {
	net := &network{graph: G.NewGraph()}
	net.x = G.NewMatrix(net.graph, tensor.Float32, G.WithName("x"), G.WithShape(rows, width))
	net.y = G.NewMatrix(net.graph, tensor.Float32, G.WithName("y"), G.WithShape(rows, width))
	h, r := net.x, rand.New(rand.NewPCG(1, 2))
	for i := range 3 {
		w := G.NewMatrix(net.graph, tensor.Float32, G.WithName(fmt.Sprint("w", i)), G.WithShape(width, width))
		notebook.Check(notebook.Draw(w, r, 1/math.Sqrt(float64(width))))
		h = G.Must(G.Tanh(G.Must(G.Mul(h, w))))
		net.weights = append(net.weights, w)
	}
	net.loss = G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(h, net.y))))))
	notebook.Must(G.Grad(net.loss, net.weights...))
	return net
}

// train returns a VM that trains the network where on says. Of several ranks each takes its rows of x and y.
func (net *network) train(on cudaops.Option, more ...cudaops.Option) *cudaops.VM {
	return notebook.Must(cudaops.NewVM(net.graph, append(more, on,
		cudaops.Split(net.x, net.y),
		cudaops.Train(G.NewVanillaSolver(G.WithLearnRate(0.1)), net.weights...))...))
}

// batch draws rows for all ranks.
func batch(vm *cudaops.VM, net *network, r *rand.Rand) {
	for _, n := range []*G.Node{net.x, net.y} {
		rows := make([]float32, vm.RunShape(n).TotalSize())
		for i := range rows {
			rows[i] = float32(r.NormFloat64())
		}
		notebook.Check(vm.Let(n, rows))
	}
}

// together trains on all ranks and on one device at the whole batch, and compares.
func together(s *story) {
	s.Heading("One step, several devices")
	s.Text(`A graph that trains on one device trains on several by an option. The graph is the share of one of them: its batch is the batch of a device. ` + "`Split`" + ` names the inputs that hold a batch, and a run takes the rows of all.`)
	s.GoFunction("network.go", "train")
	const steps = 20
	rows, width := 4, min(s.width, 256)
	share, whole := newNetwork(rows, width), newNetwork(s.ranks*rows, width)
	all, one := share.train(s.all), whole.train(s.On())
	defer all.Close()
	defer one.Close()
	a, b := rand.New(rand.NewPCG(3, 4)), rand.New(rand.NewPCG(3, 4))
	for range steps {
		batch(all, share, a)
		batch(one, whole, b)
		notebook.Check(all.RunAll())
		notebook.Check(one.RunAll())
	}
	notebook.Check(all.Pull())
	notebook.Check(one.Pull())
	most := 0.0
	for i := range share.weights {
		got, want := share.weights[i].Value().Data().([]float32), whole.weights[i].Value().Data().([]float32)
		for k := range got {
			most = max(most, math.Abs(float64(got[k]-want[k])))
		}
	}
	s.Text(`Before the step of the solver the gradients of the ranks are averaged. The loss is a mean, so that is the gradient of the whole batch: after %d steps of %d x %d rows the weights differ by at most %.1e from those of one
		device at batch %d, the rounding of sums in another order.`, steps, s.ranks, rows, most, s.ranks*rows)
	if !(most < 1e-4) {
		notebook.Fail("the weights of %d ranks differ by %g from those of one device, want less than 1e-4", s.ranks, most)
	}
}
