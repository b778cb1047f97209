package exectest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	scaling "github.com/stheno-ml/stheno/cudaops/internal/solver"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// graphOf returns a program's graph without values.
func graphOf(c graphspec.Case) (g *G.ExprGraph, in G.Nodes) {
	g = G.NewGraph()
	for _, i := range c.Inputs {
		in = append(in, G.NewTensor(g, tensor.Float32, len(i.Shape), G.WithShape(i.Shape...), G.WithName(i.Name)))
	}
	c.Build(in)
	return g, in
}

// compiled returns a graph's program for an H200.
func compiled(t *testing.T, g *G.ExprGraph, w *lower.Wanted, replay bool) *program.Program {
	t.Helper()
	lowered := testutil.Get[*lower.Graph](t)(lower.New(g, w))
	target := passes.Target{Device: H200, Replay: replay}
	if w != nil && w.Train != nil && !replay {
		target.DoubleBufferMin = exec.CopyLimit
	}
	testutil.Do(t, passes.Run(lowered.Program, target, nil))
	return lowered.Program
}

// variants are the values that are wanted of a graph, by name; in are a net's inputs, weights
// from the third on.
func variants(t *testing.T, net bool, g *G.ExprGraph, in G.Nodes) map[string]*lower.Wanted {
	moving := &lower.Wanted{}
	for _, n := range g.AllNodes() {
		if _, _, ok := internal.Slice(n.Op()); ok {
			moving.Moving = append(moving.Moving, n.Op())
		}
	}
	list := map[string]*lower.Wanted{"results": nil, "all": {All: true}, "watched": {Watch: true}, "forward": {Forward: true}}
	if len(moving.Moving) > 0 {
		list["moving slices"] = moving
	}
	if !net {
		return list
	}
	for name, s := range map[string]G.Solver{"Adam": G.NewAdamSolver(), "momentum": G.NewMomentum(G.WithL2Reg(0.1), G.WithClip(0.5))} {
		for _, clip := range []bool{false, true} {
			solver, _, err := internal.ReadSolver(s)
			testutil.Do(t, err)
			for _, adds := range []bool{false, true} {
				list[fmt.Sprintf("%s, norm limited %v, gradients added %v", name, clip, adds)] =
					&lower.Wanted{Train: &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: solver, Learnables: in[2:]}}, ClipNorm: clip, Adds: adds}}
			}
			list[fmt.Sprintf("%s, norm limited %v, loss scaled", name, clip)] =
				&lower.Wanted{Train: &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: solver, Learnables: in[2:]}}, ClipNorm: clip, EMA: 0.9, Scaler: &scaling.Scaler{Growth: 2, Backoff: 0.5, Interval: 2000}}}
		}
	}
	solver, _, err := internal.ReadSolver(G.NewAdamSolver())
	testutil.Do(t, err)
	for _, sharded := range []bool{false, true} {
		list[fmt.Sprintf("2 ranks, state divided %v", sharded)] =
			&lower.Wanted{Ranks: 2, Train: &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: solver, Learnables: in[2:]}}, ClipNorm: true, Sharded: sharded}}
	}
	return list
}

// Whole graphs run on an H200 as if their instructions ran consecutively: with results
// alone, with every node's value, watched, with steps of a solver, and made to be repeated.
// Their launches are such as the kernels take, and little memory lies between values.
func TestGraphs(t *testing.T) {
	var plans []*kernels.Plan
	for _, c := range graphspec.All() {
		g, in := graphOf(c)
		net := strings.HasPrefix(c.Name, "MLP") || strings.HasPrefix(c.Name, "convnet")
		for name, w := range variants(t, net, g, in) {
			for _, replay := range []bool{false, true} {
				p := compiled(t, g, w, replay)
				nodes, err := Check(p, H200)
				if err != nil || nodes == 0 {
					t.Errorf("%s %s, %s, to be repeated %v: %d nodes, %v", c.Name, c.Size, name, replay, nodes, err)
				}
				if 20*p.Arena > 21*p.Peak {
					t.Errorf("%s %s, %s, to be repeated %v: %d bytes are reserved, want at most 1.05 of the %d alive at once", c.Name, c.Size, name, replay, p.Arena, p.Peak)
				}
				for _, in := range p.Instrs {
					if in.Plan != nil && (name == "results" || w.Moving != nil) {
						plans = append(plans, in.Plan)
					}
				}
			}
		}
	}
	var c kernels.Checker
	for _, p := range plans {
		testutil.Do(t, c.Check(p))
	}
}

// perceptron is a program with several launches at a time.
func perceptron(t *testing.T) *program.Program {
	g, _ := graphOf(graphspec.MLP(128, 784, 512, 512, 10))
	return compiled(t, g, nil, false)
}

// Check reports each missing edge of a graph that no other path implies.
func TestMissingEdges(t *testing.T) {
	b := &Recorder{For: H200}
	testutil.Get[*exec.Executable](t)(exec.New(perceptron(t), b, false))
	g, missed := b.Graphs[0], 0
	for i, n := range g {
		for k, before := range n.After {
			g[i].After = slices.Delete(slices.Clone(n.After), k, k+1)
			found := len(Races(g)) > 0
			if again := ancestors(g, i)[before]; found == again {
				t.Errorf("node %d, %s, not waiting for %d, %s: reported %v, though by way of others it waits: %v", i, n.What, before, g[before].What, found, again)
			}
			if g[i].After = n.After; found {
				missed++
			}
		}
	}
	if missed < len(g)/2 {
		t.Errorf("of %d nodes %d wait in vain", len(g), len(g)-missed)
	}
	if faults := Races(g); len(faults) > 0 {
		t.Error(faults)
	}
}

// A buffer that lies where another one does, while both are in use, is seen.
func TestMisplacedBuffers(t *testing.T) {
	p := perceptron(t)
	tried := 0
	for i, b := range p.Buffers {
		for _, a := range p.Buffers[:i] {
			if !a.Overlaps(b) || a.Size == 0 || b.Size == 0 {
				continue
			}
			was := b.Offset
			b.Offset = a.Offset
			if err := dataflow(p); err == nil {
				t.Errorf("%+v in place of %+v is not seen", *b, *a)
			}
			b.Offset = was
			tried++
		}
	}
	if err := dataflow(p); err != nil || tried < len(p.Buffers) {
		t.Errorf("%d pairs of %d buffers were tried, %v", tried, len(p.Buffers), err)
	}
}
