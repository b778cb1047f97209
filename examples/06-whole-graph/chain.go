package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// gate is a chain of element-wise ops, as a Gorgonia program writes it: sigmoid(tanh(a * b) + c) * a.
func gate(a, b, c *G.Node) *G.Node {
	x := G.Must(G.Tanh(G.Must(G.HadamardProd(a, b))))
	x = G.Must(G.Sigmoid(G.Must(G.Add(x, c))))
	return G.Must(G.HadamardProd(x, a))
}

// unfused has the ops of gate one by one. Each has the result before as its first input and,
// if it has another one, a, b or c by its number.
var unfused = []struct {
	name  string
	apply func(in ...*G.Node) (*G.Node, error)
	other int
}{
	{"a * b", func(in ...*G.Node) (*G.Node, error) { return G.HadamardProd(in[0], in[1]) }, 1},
	{"tanh", func(in ...*G.Node) (*G.Node, error) { return G.Tanh(in[0]) }, -1},
	{"+ c", func(in ...*G.Node) (*G.Node, error) { return G.Add(in[0], in[1]) }, 2},
	{"sigmoid", func(in ...*G.Node) (*G.Node, error) { return G.Sigmoid(in[0]) }, -1},
	{"* a", func(in ...*G.Node) (*G.Node, error) { return G.HadamardProd(in[0], in[1]) }, 0},
}

func chain(s *story) {
	n := s.Size(1<<24, 1<<18, 1<<12)
	s.Heading("A chain of five ops")
	s.Text(`A node of a Gorgonia graph is an op, and Gorgonia's tape machine runs one op after the other: each reads its inputs from memory and
		writes its result there. For ops that work element by element that is a waste. An addition takes no time beside the 12 bytes that it moves, and its
		result travels to memory only to be read again by the next op. A small example before the whole program, on vectors of %d float32:`, n)
	s.GoFunction("chain.go", "gate")
	in := make([]G.Value, 3)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range in {
		x := make([]float32, n)
		for k := range x {
			x[k] = 4*r.Float32() - 2
		}
		in[i] = tensor.New(tensor.WithShape(n), tensor.WithBacking(x))
	}
	whole, fused := runTimed(s.Page, func(in ...*G.Node) (*G.Node, error) { return gate(in[0], in[1], in[2]), nil }, in...)
	s.Text("Stheno's machine compiles the graph before it runs. Ops that work on the same elements are fused: they become one function, and one launch computes it.")
	s.Listing("what is left of the five ops", function(fused[0].Op))
	s.Text("Beside it, the same five ops, each in a graph of its own, so that there is nothing to fuse:")
	chainTable(s, in, whole, fused)
}

// chainTable runs the ops one by one and compares: the bits must be equal.
func chainTable(s *story, in []G.Value, whole G.Value, fused []cudaops.Step) {
	t := figure.Table{Header: []string{"launch", "bytes", "time"}}
	add := func(name string, steps []cudaops.Step) (bytes int64, took time.Duration) {
		for _, step := range steps {
			bytes, took = bytes+step.Bytes, took+step.Time
		}
		t.Add(name, size(bytes), notebook.Micros(micros(took)))
		return bytes, took
	}
	v, total := in[0], []cudaops.Step(nil)
	for _, op := range unfused {
		args := []G.Value{v}
		if op.other >= 0 {
			args = append(args, in[op.other])
		}
		var steps []cudaops.Step
		v, steps = runTimed(s.Page, op.apply, args...)
		add("`"+op.name+"` alone", steps)
		total = append(total, steps...)
	}
	bytes, took := add("all five, one by one", total)
	fusedBytes, fusedTook := add("all five in one launch", fused)
	if !slices.Equal(kernels.Bytes(whole.Data().([]float32)), kernels.Bytes(v.Data().([]float32))) {
		notebook.Fail("the fused chain has other bits than the single ops")
	}
	where := "by the host's clock"
	if s.GPU() != nil {
		where = "by the device's clock"
	}
	t.Caption = fmt.Sprintf("Launches on %d elements, median times %s", v.Shape()[0], where)
	s.Table(t)
	s.Text(`One launch moves %s instead of %s. Both ways give the same result to the last bit, and the program fails if they do not: fusing changes where an intermediate result is, in a register or in memory, and neither its
		value nor the order of operations.`, size(fusedBytes), size(bytes))
	chainOnGPU(s, took, fusedTook)
}

// chainOnGPU describes the gain of the fused chain on a GPU, with the times measured there.
func chainOnGPU(s *story, took, fusedTook time.Duration) {
	before := s.Measure("chain, one by one", "us", func() float64 { return micros(took) })
	after := s.Measure("chain, in one launch", "us", func() float64 { return micros(fusedTook) })
	if s.GPU() == nil {
		s.Text("A CPU is busy with `tanh` and `sigmoid` for longer than with its memory, so here the one launch gains little. A GPU has more arithmetic than memory can feed.")
	}
	s.Text("On the GPU, on %d elements, the five launches take %v and the one %v: it is %s times as fast.", s.Timed(1<<24, 1<<12), before, after, figure.Number(before.Value/after.Value))
}

// runTimed runs an expression of values a few times and returns its value and its steps,
// with their median times.
func runTimed(p *notebook.Page, build func(in ...*G.Node) (*G.Node, error), in ...G.Value) (G.Value, []cudaops.Step) {
	g := G.NewGraph()
	nodes := make(G.Nodes, len(in))
	for i, v := range in {
		nodes[i] = G.NewVector(g, tensor.Float32, G.WithName(string(rune('a'+i))), G.WithShape(v.Shape()...), G.WithValue(v))
	}
	out := notebook.Must(build(nodes...))
	vm := newVM(p, g, cudaops.Timed())
	defer vm.Close()
	steps := timeSteps(vm, 9)
	return out.Value(), steps
}
