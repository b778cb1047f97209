package passes

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// launching returns the instructions that run as launches once a graph is fused, with or
// without the pass that gives products epilogues.
func launching(t interface{ Fatal(...any) }, graph *G.ExprGraph, keep G.Nodes, with bool) (list []*program.Instr) {
	g, err := lower.New(graph, keep)
	if err != nil {
		t.Fatal(err)
	}
	for _, pass := range All[:slices.IndexFunc(All, func(p Pass) bool { return p.Name == "plan" })] {
		if pass.Name == "epilogue" && !with {
			continue
		}
		if err := pass.Run(g.Program, Target{Device: kernels.HostDevice()}); err != nil {
			t.Fatal(err)
		}
	}
	for _, in := range g.Program.Instrs {
		if program.Launches(in.Op) {
			list = append(list, in)
		}
	}
	return list
}

func text(list []*program.Instr) string {
	return (&program.Program{Instrs: list}).String()
}

// Products with epilogues never make more launches.
func TestEpiloguesSaveLaunches(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		b := drawGraph(t)
		with, without := launching(t, b.g, b.keep, true), launching(t, b.g, b.keep, false)
		full := func(in *program.Instr) bool { return len(in.Out) == mostOutputs || len(in.In) == mostOperands }
		for _, in := range with {
			if hasEpilogue(in.Op) {
				found++
			}
		}
		if slices.ContainsFunc(slices.Concat(with, without), full) {
			return // where groups end follows from the order in which they grow
		}
		if len(with) > len(without) {
			t.Fatalf("got %d launches, without epilogues %d:\n%s\n%s", len(with), len(without), text(with), text(without))
		}
	})
	if found == 0 {
		t.Error("no graph has a product with an epilogue")
	}
	t.Log(found)
}

var _ = tensor.Float32
