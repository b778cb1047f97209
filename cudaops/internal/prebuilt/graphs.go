package main

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// graph is a program whose generated kernels are prebuilt.
type graph struct {
	name   string
	shapes []tensor.Shape // shapes of the inputs; a scalar has no axes
	build  func(in G.Nodes) G.Nodes
	solver G.Solver // of a training step; nil for other graphs
	learns []int    // indices of the inputs that are learnables

	lowered func() (*G.ExprGraph, *lower.Wanted, error) // if not nil, the graph, instead of shapes, build, solver and learns
	mixed   kernels.Precision                           // of the option Mixed
}

// one returns a graph with one output.
func one(name string, build func(in ...*G.Node) (*G.Node, error), shapes ...tensor.Shape) graph {
	return graph{name: name, shapes: shapes, build: func(in G.Nodes) G.Nodes { return G.Nodes{G.Must(build(in...))} }}
}

// few and many are numbers of elements for kernels of either kind.
var few, many = tensor.Shape{1000}, tensor.Shape{1 << 22}

// graphs are common programs. Not among them are gradients of functions of rows, normalizations of rows and operations by a scalar, alone, and rows of 4096: they took 0.46 MB in five targets,
// and no other of these programs needs one of their kernels.
func graphs() (list []graph) {
	for _, shape := range []tensor.Shape{few, many} {
		list = append(list, one("Rectify", func(in ...*G.Node) (*G.Node, error) { return G.Rectify(in[0]) }, shape))
		for _, f := range internal.UnaryFunctions {
			list = append(list, one(f.Name, func(in ...*G.Node) (*G.Node, error) { return f.New(in[0]) }, shape))
		}
		for _, f := range internal.BinaryFunctions {
			list = append(list, one(f.Name, func(in ...*G.Node) (*G.Node, error) { return f.New(in[0], in[1]) }, shape, shape))
		}
	}
	for _, rows := range []int{128, 1 << 14} {
		for name, f := range map[string]func(*G.Node) (*G.Node, error){"bias": nil, "rectify": G.Rectify, "sigmoid": G.Sigmoid, "tanh": G.Tanh} {
			list = append(list, one("bias, "+name, func(in ...*G.Node) (*G.Node, error) {
				y, err := G.BroadcastAdd(in[0], in[1], nil, []byte{0})
				if err != nil || f == nil {
					return y, err
				}
				return f(y)
			}, tensor.Shape{rows, 512}, tensor.Shape{512}))
		}
		for _, columns := range []int{10, 128, 512, 1000} {
			list = append(list, rowwise(rows, columns)...)
		}
	}
	for _, c := range []graphspec.Case{graphspec.MLP(128, 784, 512, 512, 10), graphspec.MLP(4096, 784, 512, 512, 10)} {
		list = append(list, graphOf(c))
		for name, solver := range solvers {
			list = append(list, step(c, name, solver))
		}
	}
	list = append(list, sizes()...)
	for _, s := range graphspec.Steps() {
		switch {
		case s.UpdateAlone, s.Precision != kernels.FullPrecision, s.FromHost: // the same kernels, or none
		default:
			list = append(list, step(s.Case, "a solver", s.Solver()))
		}
	}
	return list
}

// sizes returns programs that have all kernels of similar programs with other small numbers of samples and units: see TestDrawn.
func sizes() (list []graph) {
	for _, batch := range []int{1, 9, 23, 60, 100, 183, 200, 400, 615, 1000, 1086, 2926} { // each has another mean or sum of gradients
		for _, classes := range []int{3, 6, 8, 10, 12, 19, 20, 40, 100, 150} { // each has another softmax
			list = append(list, graphOf(graphspec.MLP(batch, 784, 512, 512, classes)))
		}
		list = append(list, graphOf(graphspec.MLP(batch, 784, 401, 401, 10)))
	}
	for name, solver := range solvers {
		list = append(list, step(graphspec.MLP(10, 10, 10, 10), name, solver))
	}
	for _, batch := range []int{10, 30, 100, 999} {
		list = append(list, regression(batch, 1), regression(batch, 4))
	}
	for _, c := range []graphspec.Case{graphspec.LSTM(1, 10, 64, 256, 10), graphspec.LSTM(32, 20, 64, 128, 10), graphspec.ConvnetExample(1)} {
		list = append(list, step(c, "SGD", solvers["SGD"]))
	}
	return list
}

// step returns the training step of a case.
func step(c graphspec.Case, name string, solver G.Solver) graph {
	g := graphOf(c)
	g.name, g.solver = g.name+", "+name, solver
	for i, in := range c.Inputs {
		if in.Whole {
			g.learns = append(g.learns, i)
		}
	}
	return g
}

// solvers are Gorgonia's solvers with usual options.
var solvers = map[string]G.Solver{
	"SGD": G.NewVanillaSolver(G.WithLearnRate(0.01)), "momentum": G.NewMomentum(G.WithLearnRate(0.01)), "Adam": G.NewAdamSolver(G.WithLearnRate(0.001)),
	"RMSProp": G.NewRMSPropSolver(G.WithLearnRate(0.001)), "AdaGrad": G.NewAdaGradSolver(G.WithLearnRate(0.01)),
}

// rowwise returns programs on the rows of a matrix.
func rowwise(rows, columns int) (list []graph) {
	shape := tensor.Shape{rows, columns}
	for _, name := range []string{"softmax", "log-softmax"} {
		list = append(list, graphOf(graphspec.Rowwise(name, rows, columns)))
	}
	list = append(list, graphOf(graphspec.CrossEntropy(rows, columns)))
	for _, along := range [][]int{{0}, {1}, {0, 1}} {
		list = append(list, one(fmt.Sprintf("sum over %v", along), func(in ...*G.Node) (*G.Node, error) { return G.Sum(in[0], along...) }, shape))
	}
	return list
}

// regression is a layer with the mean of squares as its loss, and its gradients.
func regression(batch, outputs int) graph {
	shapes := []tensor.Shape{{batch, 20}, {20, outputs}, {outputs}, {batch, outputs}}
	return graph{name: fmt.Sprintf("regression of %d by %d", batch, outputs), shapes: shapes, build: func(in G.Nodes) G.Nodes {
		y := G.Must(G.BroadcastAdd(G.Must(G.Mul(in[0], in[1])), in[2], nil, []byte{0}))
		loss := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(y, in[3]))))))
		derivatives, err := G.Grad(loss, in[1], in[2])
		if err != nil {
			panic(err) // as gorgonia.Must does: the graphs are fixed
		}
		return append(derivatives, loss)
	}}
}

// graphOf returns the graph of a case.
func graphOf(c graphspec.Case) graph {
	g := graph{name: c.Name + " " + c.Size, build: c.Build}
	for _, in := range c.Inputs {
		g.shapes = append(g.shapes, in.Shape)
	}
	return g
}

// devices returns typical devices that load the cubins of a target, one for each compute capability.
func devices(target string) []kernels.Device {
	list := map[string][]kernels.Device{
		"sm_70": {
			{Name: "V100", Major: 7, Minor: 0, SMs: 80, SharedOptin: 98304},
			{Name: "T4", Major: 7, Minor: 5, SMs: 40, SharedOptin: 65536},
		},
		"sm_80": {
			{Name: "A100", Major: 8, Minor: 0, SMs: 108, SharedOptin: 166912},
			{Name: "RTX 3090", Major: 8, Minor: 6, SMs: 82, SharedOptin: 101376},
			{Name: "RTX 4090", Major: 8, Minor: 9, SMs: 128, SharedOptin: 101376},
		},
		"sm_90a": {{Name: "H200", Major: 9, Minor: 0, SMs: 132, SharedOptin: 232448}},
		"sm_100": {{Name: "B200", Major: 10, Minor: 0, SMs: 148, SharedOptin: 232448}},
		"sm_120": {{Name: "RTX 5090", Major: 12, Minor: 0, SMs: 170, SharedOptin: 101376}},
	}[target]
	for i := range list {
		list[i].Cooperative = true
	}
	return list
}

// code is a generated kernel.
type code struct {
	name, graph string // of the image, and of a program that needs it
	ptx         []byte
}

// needed returns the kernels that all programs need on the devices of a target, keyed by the PTX.
func needed(target string) (map[string]code, error) {
	all := map[string]code{}
	for _, dev := range devices(target) {
		for _, n := range []int64{4, 3, exec.CopyLimit} {
			plan, err := exec.CopyPlan(dev, n)
			if err == nil {
				err = generated(all, "copy", dev, plan)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	list := graphs()
	if target == "sm_90a" { // the kernels of GPTs take 0.2 MB for a target
		list = append(list, models()...)
	}
	for _, g := range list {
		if err := g.generated(all, devices(target)...); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// building is held while an expression is built: Gorgonia numbers groups of nodes by a variable of its package.
var building sync.Mutex

// plans returns the plans of the program on each device.
func (g graph) plans(devices ...kernels.Device) (list [][]*kernels.Plan, err error) {
	expressions, wanted, err := g.expressions()
	for _, dev := range devices {
		var lowered *lower.Graph
		if err == nil {
			lowered, err = lower.New(expressions, wanted)
		}
		if err == nil {
			err = passes.Run(lowered.Program, passes.Target{Device: dev, Mixed: g.mixed}, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", g.name, err)
		}
		list = append(list, lowered.Program.Plans())
	}
	return list, nil
}

// expressions returns the graph and what a run of it returns.
func (g graph) expressions() (*G.ExprGraph, *lower.Wanted, error) {
	building.Lock()
	defer building.Unlock()
	if g.lowered != nil {
		return g.lowered()
	}
	expressions := G.NewGraph()
	in := make(G.Nodes, len(g.shapes))
	for i, s := range g.shapes {
		in[i] = G.NewTensor(expressions, tensor.Float32, len(s), G.WithShape(s...), G.WithName(fmt.Sprint("x", i)))
	}
	g.build(in)
	var wanted *lower.Wanted
	if g.solver != nil {
		options, _, err := internal.ReadSolver(g.solver)
		if err != nil {
			return nil, nil, err
		}
		set := lower.Set{Solver: options}
		for _, i := range g.learns {
			set.Learnables = append(set.Learnables, in[i])
		}
		wanted = &lower.Wanted{Train: &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{set}}}
	}
	return expressions, wanted, nil
}

// generated adds the generated kernels that the program launches on devices to all, keyed by their PTX.
func (g graph) generated(all map[string]code, devices ...kernels.Device) error {
	plans, err := g.plans(devices...)
	for i, dev := range devices {
		if err == nil {
			err = generated(all, g.name, dev, plans[i]...)
		}
	}
	return err
}

// generated adds the generated kernels that plans launch to all, keyed by their PTX.
func generated(all map[string]code, program string, dev kernels.Device, plans ...*kernels.Plan) error {
	for _, p := range plans {
		for _, l := range p.Launches {
			g, ok := l.Kernel.Image.(kernels.Generated)
			if !ok {
				continue
			}
			ptx, err := g.PTX(dev.Major)
			if err != nil {
				return fmt.Errorf("%s: %w", program, err)
			}
			if !bytes.Contains(ptx, []byte("redux.sync")) { // 4 KB each, packed: the driver compiles kernels that store splits
				all[manifest.Key(ptx)] = code{g.Name(), program, ptx}
			}
		}
	}
	return nil
}
