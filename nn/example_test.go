package nn_test

import (
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// gated is a layer of one's own: x weight_a + (x weight_b) sigmoid(gate), with a gate for each output.
func gated(s *nn.Scope, x *G.Node, out int) *G.Node {
	gate := s.Parameter("gate", nn.Constant(0), out)
	return s.Keep(ops.Map("a + b*sigmoid(c)", nn.Linear(s.At("a"), x, out), nn.Linear(s.At("b"), x, out), gate))
}

// model is a function of a scope, in which layers find their parameters by path.
func model(s *nn.Scope, x *G.Node) *G.Node {
	x = nn.GELU(s, gated(s.At("first"), x, 32))
	for i := range 2 {
		x = nn.Residual(s.At("block", i), x, func(s *nn.Scope, x *G.Node) *G.Node {
			return nn.Linear(s.At("fc"), nn.LayerNorm(s.At("norm"), x), 32)
		})
	}
	return nn.Linear(s.At("head"), nn.Dropout(s, x, 0.1), 3)
}

// One function builds the graphs of training and of one row, whose parameters are in one Store.
func Example() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	store := cudaops.NewStore()
	defer store.Close()
	s := nn.New(G.NewGraph(), nn.In(store), nn.Seed(1))
	x, y := s.Input("x", tensor.Float32, 12, 4), s.Input("y", tensor.Int, 12)
	loss := nn.CrossEntropy(s, model(s, x), y)
	check(s.Grad(loss))
	vm, err := s.NewVM(cudaops.OnHost(), cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.01)), s.Parameters()...))
	check(err)
	defer vm.Close()
	rows, labels := make([]float32, 48), make([]int, 12)
	for i := range labels {
		labels[i] = i % 3
		rows[4*i+i%3], rows[4*i+3] = 1, float32(i)/12
	}
	check(vm.Let(x, rows))
	check(vm.Let(y, labels))
	for range 50 {
		check(vm.RunAll())
	}
	fmt.Println("learnt:", loss.Value().Data().(float32) < 0.1)

	one := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
	row := one.Input("x", tensor.Float32, 1, 4)
	class := one.Keep(ops.ArgMax(model(one, row), -1))
	single, err := one.NewVM(cudaops.OnHost(), cudaops.Outputs(class))
	check(err)
	defer single.Close()
	check(single.Let(row, []float32{0, 1, 0, 0.5}))
	check(single.RunAll())
	fmt.Println("class:", class.Value())
	// Output:
	// learnt: true
	// class: [1]
}

// Errors are kept: the first one names the path of the layer.
func ExampleScope_Err() {
	s := nn.New(G.NewGraph())
	x := s.Input("images", tensor.Float32, 8, 28, 28)
	x = nn.ReLU(s, nn.Conv2d(s.At("conv1"), x, 16, 3))
	nn.Linear(s.At("fc"), nn.Flatten(s, x), 10)
	fmt.Println(s.Err())
	// Output:
	// nn: conv1: Conv2d got shape (8, 28, 28), want (batch, channels, height, width)
}
