package passes_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/programs"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// trained returns the graph of a small GPT with tokens.
func trained(t testing.TB, m programs.GPT, batch, time int) *programs.Trained {
	tr := testutil.Get[*programs.Trained](t)(m.Train(batch, time))
	for _, n := range []*G.Node{tr.Tokens, tr.Labels} {
		list := make([]int32, batch*time)
		for i := range list {
			list[i] = rand.Int32N(int32(m.Vocabulary))
		}
		testutil.Do(t, G.Let(n, tensor.New(tensor.WithShape(batch, time), tensor.WithBacking(list))))
	}
	return tr
}

// A step of a GPT stores activations and their gradients in BF16.
func TestMixedGPT(t *testing.T) {
	tr := trained(t, programs.GPT{Layers: 2, Width: 32, Heads: 2, Vocabulary: 72, Context: 16, Dtype: tensor.Float32}, 2, 16)
	if n := len(passes.StoresRounded(t, tr.Graph, &lower.Wanted{Precision: kernels.BF16})); n < 60 {
		t.Errorf("%d values are stored in BF16, want 60 or more", n)
	}
}

// In a step with its update on an H200 no launch rounds, and states, gradients w.r.t. parameters, statistics and the loss are float32.
func TestMixedTypes(t *testing.T) {
	m := programs.GPT{Layers: 1, Width: 768, Heads: 12, Vocabulary: 512, Context: 256, Dtype: tensor.Float32}
	tr := trained(t, m, 8, 256)
	solver, _, err := internal.ReadSolver(G.NewAdamSolver())
	testutil.Do(t, err)
	l := testutil.Get[*lower.Graph](t)(lower.New(tr.Graph, &lower.Wanted{Precision: kernels.BF16, Train: &lower.Training{Sets: []lower.Set{{Solver: solver, Learnables: tr.Parameters}}}}))
	testutil.Do(t, passes.Run(l.Program, passes.Target{Device: passes.H200, Mixed: true}, nil))
	testutil.Do(t, l.Program.Verify())
	half, copies, attention := 0, 0, 0
	for _, in := range l.Program.Instrs {
		if in.Plan != nil {
			for _, x := range in.Plan.Launches {
				if strings.HasPrefix(x.Kernel.Entry, "attention_hopper") && strings.HasSuffix(x.Kernel.Entry, "64_bf16") {
					attention++
				}
			}
		}
		if _, ok := in.Op.(program.Kernel); ok && in.Plan.Launches[0].Kernel.Entry == "matmul_round_bf16" {
			t.Errorf("%v is a launch that rounds", in)
		}
		for k, v := range in.Out {
			op, rows := in.Op.(program.Rows)
			switch {
			case v.Dtype != expr.BF16:
			case slices.ContainsFunc(l.Program.Updates, func(u program.Update) bool { return u.Next == v }): // a copy of parameters
			case rows && op.PerRow[k], in.Op == program.ConcatInPlace{}:
				t.Errorf("%v stores statistics or gradients in BF16", in)
			default:
				half++
			}
		}
	}
	for _, u := range l.Program.Updates {
		copied := u.State.Def.Op.(program.State).Rounds != nil
		if copied {
			copies++
		}
		if (u.State.Dtype == expr.BF16) != copied || (u.Next.Dtype == expr.BF16) != copied {
			t.Errorf("state %v is stored in %v, want BF16 for a copy of parameters alone", u.State, u.State.Dtype)
		}
	}
	if attention != 3 {
		t.Errorf("%d launches are of attention in BF16 on the tensor cores, want the result, the gradient w.r.t. q, and those w.r.t. k and v", attention)
	}
	if copies != 1 {
		t.Errorf("%d states have a copy in BF16, want the parameters", copies)
	}
	if half < 40 {
		t.Errorf("%d values are stored in BF16, want 40 or more:\n%v", half, l.Program)
	}
}
