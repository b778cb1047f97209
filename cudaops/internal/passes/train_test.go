package passes

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/cudaops/internal/solver"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// training is a drawn graph with a solver for some of its inputs.
type training struct {
	*builder
	graph *lower.Graph
	limit float64 // of the gradients' norm
}

// drawTraining draws a graph and how it is trained on ranks.
func drawTraining(t *rapid.T, ranks int) *training {
	b := drawForward(t, 10)
	cost := G.Must(ops.Mean(b.pool[len(b.pool)-1]))
	for _, x := range b.x { // each has a gradient: of the graph, or a view of a constant, or one that others have too
		part := []func(*G.Node) *G.Node{
			func(x *G.Node) *G.Node { return G.Must(G.Sum(G.Must(G.Square(x)))) },
			func(x *G.Node) *G.Node { return G.Must(G.Sum(x)) },
			func(x *G.Node) *G.Node { return G.Must(ops.Mean(G.Must(G.Tanh(turned(x))))) },
		}[rapid.IntRange(0, 2).Draw(t, "penalty")]
		cost = G.Must(G.Add(cost, part(x)))
	}
	all := append(G.Nodes{}, b.x...)
	if _, err := G.Grad(cost, all...); err != nil {
		t.Skip("no gradient: ", err)
	}
	learnables := rapid.SampledFrom([]G.Nodes{all, all[:1], all[len(all)-1:]}).Draw(t, "learnables")
	list := []G.Solver{
		G.NewVanillaSolver(G.WithLearnRate(0.1)), G.NewMomentum(G.WithL2Reg(0.1)), G.NewRMSPropSolver(), G.NewAdamSolver(G.WithClip(0.5), G.WithBatchSize(3)),
		G.NewAdamW(), G.NewAdaGradSolver(), G.NewBarzilaiBorweinSolver(G.WithClip(0.1)),
	}
	scaled := rapid.Bool().Draw(t, "scaled")
	if scaled {
		list = list[:len(list)-1]
	}
	kinds := rapid.SampledFrom(list)
	out := &training{b, nil, 0.01}
	training := &lower.Training{Solvers: lower.Gorgonia, ClipNorm: rapid.Bool().Draw(t, "clip norm"), Adds: rapid.Bool().Draw(t, "adds"), EMA: rapid.SampledFrom([]float64{0, 0.75}).Draw(t, "EMA")}
	if scaled {
		training.Scaler = &solver.Scaler{Growth: 2, Backoff: 0.5, Interval: rapid.IntRange(1, 2).Draw(t, "interval")}
	}
	first := rapid.IntRange(1, len(learnables)).Draw(t, "first set")
	for _, set := range []G.Nodes{learnables[:first], learnables[first:]} {
		s, _, err := internal.ReadSolver(kinds.Draw(t, "solver"))
		if err != nil {
			t.Fatal(err)
		}
		if len(set) > 0 {
			training.Sets = append(training.Sets, lower.Set{Solver: s, Learnables: set})
		}
	}
	home := func(nodes ...*G.Node) program.Memory {
		bytes := int64(0)
		for _, n := range nodes {
			bytes += 8*int64(n.Shape().TotalSize()) + program.Alignment
		}
		m, err := new(exec.HostBackend).NewMemory(bytes)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if rapid.Bool().Draw(t, "homes") {
		for _, set := range training.Sets {
			of := map[tensor.Dtype]program.Memory{tensor.Float32: home(all...), tensor.Float64: home(all...)}
			for _, x := range set.Learnables {
				training.Homes = append(training.Homes, of[x.Dtype()])
			}
		}
	}
	wanted := &lower.Wanted{Keep: b.keep, Train: training, Ranks: ranks}
	if ranks > 1 {
		training.Sharded, wanted.SumRanks = rapid.Bool().Draw(t, "sharded"), rapid.Bool().Draw(t, "sum")
	}
	for _, x := range all { // those that no step changes
		if slices.Contains(learnables, x) {
			continue
		}
		switch rapid.IntRange(0, 2).Draw(t, "resident") {
		case 1:
			wanted.Resident = append(wanted.Resident, x)
		case 2:
			wanted.Shared = append(wanted.Shared, lower.Shared{Node: x, Home: home(x), Offset: program.Alignment * rapid.Int64Range(0, 1).Draw(t, "offset")})
		}
	}
	var err error
	if out.graph, err = lower.New(b.g, wanted); err != nil {
		t.Fatal(err)
	}
	return out
}

// inputs returns those of a step.
func (t *training) inputs(solvers []internal.Solver, step int) []G.Value {
	return append(inputsOf(t.graph), t.graph.Trained.Numbers(solvers, step, t.limit)...)
}

// parts returns the parts of states, but sharded ones, that learnables lie in, between which there is anything,
// and resident inputs.
func (t *training) parts(tb *rapid.T, states []G.Value) (list []G.Value) {
	for _, l := range t.graph.Trained.Learned {
		for _, s := range l.States {
			if s.Def.Op.(program.State).Sharded {
				continue
			}
			for i, u := range t.graph.Program.Updates {
				if u.State == s {
					m, err := values.Bytes(states[i])
					if err != nil {
						tb.Fatal(err)
					}
					v, to := values.New(s.Dtype, tensor.Shape{int(l.Value.Elements())})
					copy(to, m[l.Value.View.Offset*s.Dtype.Size():])
					list = append(list, v)
				}
			}
		}
	}
	if s := t.graph.Trained.Scaling; s != nil {
		for _, v := range s.States() {
			list = append(list, states[slices.IndexFunc(t.graph.Program.Updates, func(u program.Update) bool { return u.State == v })])
		}
	}
	for _, r := range slices.Concat(t.graph.Residents, t.graph.Shared) {
		list = append(list, states[slices.Index(t.graph.Program.Updates, program.Update{State: r.Value, Next: r.Value})])
	}
	return list
}

// drawHost draws the device of the host's kernels, with memory for all values, or for so few that what can be computed twice is.
func drawHost(t *rapid.T) kernels.Device {
	dev := kernels.HostDevice()
	if rapid.Bool().Draw(t, "little memory") {
		dev.Memory = 1
	}
	return dev
}

// Every pass leaves a program that makes the same steps, bit for bit, and the backend
// makes them again and again.
func TestPassesKeepSteps(t *testing.T) {
	testutil.CheckProperty(t, func(t *rapid.T) {
		b := drawTraining(t, 1)
		p, solvers, states := b.graph.Program, b.graph.Trained.Solvers(), b.states(t)
		var want, next []G.Value
		ahead := rapid.Int64Range(0, 100).Draw(t, "ahead") // inputs of more bytes have two places
		changed := changes()
		err := Run(p, Target{Device: drawHost(t), DoubleBufferMin: ahead}, func(pass string, p *program.Program) error {
			if err := program.Verify(p); err != nil {
				t.Fatalf("after %s: %v\n%v", pass, err, p)
			}
			if !changed(pass, p) {
				return nil
			}
			out, after, err := p.Step(b.inputs(solvers, 2), states)
			if err != nil {
				t.Fatalf("after %s: %v\n%v", pass, err, p)
			}
			if want == nil {
				want, next = out, after
			}
			if !equal(t, out, want) || !equal(t, b.parts(t, after), b.parts(t, next)) {
				t.Fatalf("after %s the program computes something else:\n%v", pass, p)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b.backend(t, p, solvers, states)
	})
}

// states draws the states before a step.
func (b *training) states(t *rapid.T) (list []G.Value) {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "states"), 0))
	for _, u := range b.graph.Program.Updates {
		v, m := values.New(u.State.Dtype, u.State.Shape)
		for k := range u.State.Elements() {
			if u.State.Dtype == kernels.Float32 {
				kernels.Elements[float32](m)[k] = r.Float32()
			} else {
				kernels.Elements[float64](m)[k] = r.Float64()
			}
		}
		list = append(list, v)
	}
	return list
}

// Every pass leaves a program that makes the same steps on several ranks, with the solver's state divided among them or not. Ranks have
// moments of their own, so that they differ.
func TestPassesKeepStepsOnRanks(t *testing.T) {
	testutil.CheckProperty(t, func(t *rapid.T) {
		ranks := rapid.IntRange(2, 3).Draw(t, "ranks")
		b := drawTraining(t, ranks)
		p := b.graph.Program
		inputs, states := make([][]G.Value, ranks), make([][]G.Value, ranks)
		for r := range ranks {
			inputs[r], states[r] = b.inputs(b.graph.Trained.Solvers(), 2), b.states(t)
		}
		var want, next [][]G.Value
		changed := changes()
		err := Run(p, Target{Device: drawHost(t)}, func(pass string, p *program.Program) error {
			if err := program.Verify(p); err != nil {
				t.Fatalf("after %s: %v\n%v", pass, err, p)
			}
			if !changed(pass, p) {
				return nil
			}
			out, after, err := p.StepRanks(inputs, states)
			if err != nil {
				t.Fatalf("after %s: %v\n%v", pass, err, p)
			}
			if want == nil {
				want, next = out, after
			}
			for r := range ranks {
				if !equal(t, out[r], want[r]) || !equal(t, b.parts(t, after[r]), b.parts(t, next[r])) {
					t.Fatalf("after %s rank %d computes something else:\n%v", pass, r, p)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// backend compares steps of the backend with those of Eval.
func (b *training) backend(t *rapid.T, p *program.Program, solvers []internal.Solver, states []G.Value) {
	e, err := exec.New(p, new(exec.HostBackend), false)
	if err != nil {
		t.Fatal(err)
	}
	for i, u := range p.Updates {
		m, _ := values.Bytes(states[i])
		if err := e.SetState(u.State, m); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []int{1, 2, 0, 3} { // 0 stands for none
		in := b.inputs(solvers, step)
		want, next, err := p.Step(in, states)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Run(in)
		if err != nil {
			t.Fatal(err)
		}
		states = make([]G.Value, len(next))
		for i, u := range p.Updates {
			var m []byte
			states[i], m = values.New(u.State.Dtype, u.State.Shape)
			if err := e.State(u.State, m); err != nil {
				t.Fatal(err)
			}
		}
		if !equal(t, got, want) || !equal(t, b.parts(t, states), b.parts(t, next)) {
			t.Fatalf("in step %d the backend computes something else than Eval:\n%v", step, p)
		}
	}
}

// An update stays a separate Map even if the norm of its gradient is a sum over the same elements: Rows cannot overwrite their
// operands.
func TestUpdatesAreNotInRows(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(3, 32), G.WithInit(G.Gaussian(0, 1)))
	w := G.NewMatrix(g, tensor.Float64, G.WithName("w"), G.WithShape(32, 3), G.WithInit(G.Gaussian(0, 1)))
	cost := testutil.Get[*G.Node](t)(G.Sum(testutil.Get[*G.Node](t)(G.Square(testutil.Get[*G.Node](t)(G.Mul(x, w))))))
	testutil.Get[G.Nodes](t)(G.Grad(cost, x))
	s, _, err := internal.ReadSolver(G.NewVanillaSolver())
	testutil.Do(t, err)
	training := &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: s, Learnables: G.Nodes{x}}}, ClipNorm: true}
	p := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Train: training})).Program
	testutil.Do(t, Run(p, Target{Device: kernels.HostDevice()}, func(pass string, p *program.Program) error { return program.Verify(p) }))
	for _, u := range p.Updates {
		if !program.Elementwise(u.Next.Def.Op) {
			t.Errorf("%v updates %v, want a map:\n%v", u.Next.Def.Op, u.State, p)
		}
	}
}

// The launch that computes the moments of a BatchNorm writes the running ones over their states, also where rows are split among blocks.
func TestRunningMoments(t *testing.T) {
	for _, side := range []int{5, 64} {
		g := G.NewGraph()
		vector := func(name string) *G.Node {
			return G.NewVector(g, tensor.Float32, G.WithName(name), G.WithShape(8), G.WithInit(G.Uniform(1, 2)))
		}
		x := G.NewTensor(g, tensor.Float32, 4, G.WithName("x"), G.WithShape(32, 8, side, side), G.WithInit(G.Gaussian(0, 1)))
		mean, variance := vector("mean"), vector("variance")
		_, nextMean, nextVariance, err := ops.BatchNorm(x, vector("scale"), vector("bias"), mean, variance, 0.1, 1e-3)
		testutil.Do(t, err)
		p := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Shared: []lower.Shared{{Node: mean, Next: nextMean}, {Node: variance, Next: nextVariance}}})).Program
		testutil.Do(t, Run(p, Target{Device: H200}, func(pass string, p *program.Program) error { return program.Verify(p) }))
		for _, u := range p.Updates {
			if op, ok := u.Next.Def.Op.(program.Map); !ok || len(op.Axes) == 0 {
				t.Errorf("side %d: %v updates %v, want the launch of the moments:\n%v", side, u.Next.Def.Op, u.State, p)
			}
		}
	}
}
