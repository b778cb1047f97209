package graphspec

import (
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Step is a training step: forward, loss, backward, and a solver's update.
type Step struct {
	// Case is the program. Its first output is the loss; inputs that every row reads are learnt, the
	// other inputs are a batch. One without a Row cannot be checked by Check.
	Case
	Solver func() G.Solver
	Rule   string // Solver's name
	Rate   float64
	// FromHost is set if a batch comes from the memory of the host in each step, pinned memory unless Pageable
	// is set; else it is on the device.
	FromHost, Pageable bool
	// Parts is set if the launches are also timed one by one.
	Parts bool
	// UpdateAlone is set if only the update is timed, without forward and backward.
	UpdateAlone bool
	// Precision is that of the products.
	Precision kernels.Precision
	bytes     int64 // the least traffic if it is not that of the case
}

// Steps returns the training steps that are timed.
func Steps() []Step {
	small, large := MLP(128, 784, 512, 512, 10), MLP(4096, 784, 512, 512, 10)
	pinned := sgd(large)
	pinned.FromHost = true
	pageable := pinned
	pageable.Pageable = true
	pinned.Name += ", batch from the host"
	pageable.Name += ", batch from pageable memory"
	wide := sgd(MLP(4096, 784, 4096, 4096, 10))
	both := StepsOf(small, large)
	both[0].Parts = true
	return slices.Concat(both, []Step{pinned, pageable}, InPrecisions(sgd(small)), InPrecisions(sgd(large)), []Step{wide}, InPrecisions(wide),
		[]Step{sgd(ConvnetExample(100)), sgd(ConvnetExample(2048)), sgd(LSTM(64, 50, 64, 256, 10)), update(100_000_000)})
}

// InPrecisions returns a step with products in TF32 and in BF16.
func InPrecisions(s Step) (steps []Step) {
	for _, by := range []kernels.Precision{kernels.TF32, kernels.BF16} {
		reduced := s
		reduced.Precision = by
		reduced.Name += ", " + by.String()
		steps = append(steps, reduced)
	}
	return steps
}

// StepsOf returns the steps of both solvers of programs with their gradients.
func StepsOf(cases ...Case) (steps []Step) {
	for _, c := range cases {
		steps = append(steps, sgd(c), adam(c))
	}
	return steps
}

// sgd makes a step of a program with its gradients.
func sgd(c Case) Step {
	return step(c, "SGD", 0.01, func(rate float64) G.Solver { return G.NewVanillaSolver(G.WithLearnRate(rate)) })
}

func adam(c Case) Step {
	return step(c, "Adam", 0.001, func(rate float64) G.Solver { return G.NewAdamSolver(G.WithLearnRate(rate)) })
}

func step(c Case, rule string, rate float64, solver func(rate float64) G.Solver) Step {
	c.Name = strings.TrimSuffix(c.Name, ", gradient") + ", " + rule
	return Step{Case: c, Solver: func() G.Solver { return solver(rate) }, Rule: rule, Rate: rate}
}

// Describe describes the step.
func (s Step) Describe() Description {
	d := s.Case.Describe()
	d.Rule, d.Rate, d.FromHost, d.Pageable, d.UpdateAlone = s.Rule, s.Rate, s.FromHost, s.Pageable, s.UpdateAlone
	if s.Precision != kernels.FullPrecision {
		d.Precision = s.Precision.String()
	}
	return d
}

// update is the step of Adam on n parameters whose gradient is known: it reads parameter,
// gradient and two moments, and writes all but the gradient.
func update(n int) Step {
	s := adam(Case{
		Name: "update of 10^8 parameters", Size: "alone", Rows: 1, Flops: 12 * int64(n),
		Inputs:  []Input{{Name: "x", Shape: tensor.Shape{n}}, {Name: "w", Shape: tensor.Shape{n}, Whole: true, Kind: "weights"}},
		Outputs: []Output{{Name: "loss", Elements: 1, Sum: true}, {Name: "dw", Elements: n, Sum: true}},
		Build:   func(in G.Nodes) G.Nodes { return gradients(G.Must(G.Sum(G.Must(G.HadamardProd(in[0], in[1])))), in[1]) },
	})
	s.UpdateAlone, s.bytes = true, 28*int64(n)
	return s
}

// Bytes is the least traffic of a step.
func (s Step) Bytes() int64 {
	if s.bytes > 0 {
		return s.bytes
	}
	return s.Case.Bytes()
}

// Program is the graph of a step.
type Program struct {
	Graph             *G.ExprGraph
	Loss              *G.Node
	Learnables, Batch G.Nodes
}

// Program makes the graph of a step, with the inputs bound to values. Those of learnables are
// copies.
func (s Step) Program(in []G.Value) (p Program) {
	in = slices.Clone(in)
	for i, input := range s.Inputs {
		if input.Whole {
			in[i] = in[i].(*tensor.Dense).Clone().(*tensor.Dense)
		}
	}
	var nodes G.Nodes
	p.Graph, nodes = s.nodes(in)
	for i, n := range nodes {
		if s.Inputs[i].Whole {
			p.Learnables = append(p.Learnables, n)
		} else {
			p.Batch = append(p.Batch, n)
		}
	}
	p.Loss = s.Build(nodes)[0]
	return p
}
