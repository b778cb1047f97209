package passes_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/cudaops/internal/solver"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/ptxas"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
	"github.com/stheno-ml/stheno/nn"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// trained returns the graph of a small GPT's loss with its gradients, of drawn tokens, and its parameters.
func trained(t testing.TB, layers, width, heads, vocabulary, batch, time int) (*G.ExprGraph, G.Nodes) {
	s := nn.New(G.NewGraph(), nn.Seed(1), nn.Initial(func(_ string, shape tensor.Shape) nn.Init {
		if shape.TotalSize() > 1<<18 { // of programs that are compiled and not run
			return nn.Constant(0)
		}
		return nil
	}))
	input := func(name string) *G.Node {
		list := make([]int32, batch*time)
		for i := range list {
			list[i] = rand.Int32N(int32(vocabulary))
		}
		n := s.Input(name, tensor.Int32, batch, time)
		testutil.Do(t, G.Let(n, tensor.New(tensor.WithShape(batch, time), tensor.WithBacking(list))))
		return n
	}
	x := nn.Positions(s.At("wpe"), nn.Embedding(s.At("wte"), input("tokens"), vocabulary, width), time)
	for l := range layers {
		s := s.At("h", l)
		x = nn.Residual(s, x, func(s *nn.Scope, x *G.Node) *G.Node {
			q, k, v := nn.Split3(s, nn.Linear(s.At("attn.c_attn"), nn.LayerNorm(s.At("ln_1"), x), 3*width))
			return nn.Linear(s.At("attn.c_proj"), nn.Attention(s.At("attn"), q, k, v, heads, nn.Causal()), width)
		})
		x = nn.Residual(s, x, func(s *nn.Scope, x *G.Node) *G.Node {
			x = nn.GELUTanh(s, nn.Linear(s.At("mlp.c_fc"), nn.LayerNorm(s.At("ln_2"), x), 4*width))
			return nn.Linear(s.At("mlp.c_proj"), x, width)
		})
	}
	x = nn.Linear(s.At("wte").Tied(), nn.LayerNorm(s.At("ln_f"), x), vocabulary, nn.NoBias())
	testutil.Do(t, s.Grad(nn.CrossEntropy(s, x, input("labels"))))
	return s.Graph(), s.Parameters()
}

// A step of a GPT stores activations and their gradients in 16 bits.
func TestMixedGPT(t *testing.T) {
	g, _ := trained(t, 2, 32, 2, 72, 2, 16)
	for _, by := range []kernels.Precision{kernels.BF16, kernels.F16} {
		if n := len(passes.StoresRounded(t, g, &lower.Wanted{Precision: by})); n < 60 {
			t.Errorf("%d values are stored in %v, want 60 or more", n, by)
		}
	}
}

// In a step with its update on an H200 no launch rounds, and states, gradients w.r.t. parameters, statistics and the loss are float32.
func TestMixedTypes(t *testing.T) {
	for _, by := range []kernels.Precision{kernels.BF16, kernels.F16} {
		t.Run(by.String(), func(t *testing.T) { mixedTypes(t, by) })
	}
}

func mixedTypes(t *testing.T, by kernels.Precision) {
	d, _ := by.Half()
	g, parameters := trained(t, 1, 768, 12, 512, 8, 256)
	solver, _, err := internal.ReadSolver(G.NewAdamSolver())
	testutil.Do(t, err)
	l := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Precision: by, Train: &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: solver, Learnables: parameters}}}}))
	testutil.Do(t, passes.Run(l.Program, passes.Target{Device: passes.H200, Mixed: by}, nil))
	testutil.Do(t, program.Verify(l.Program))
	half, copies, launches := 0, 0, 0
	for _, in := range l.Program.Instrs {
		if in.Plan != nil {
			for _, x := range in.Plan.Launches {
				if strings.HasPrefix(x.Kernel.Entry, "attention_hopper") && strings.HasSuffix(x.Kernel.Entry, "64_"+d.String()) {
					launches++
				}
			}
		}
		k, _ := in.Op.(program.Kernel)
		_, forward := k.Planner.(attention.Forward)
		back, backward := k.Planner.(attention.Backward)
		if (forward || backward) && (in.In[0].Base != in.In[1].Base || in.In[0].Base != in.In[2].Base || backward != back.Packed) {
			t.Errorf("%v: want q, k and v in the result of one matmul, and their gradients in one value", in)
		}
		if _, ok := in.Op.(program.Kernel); ok && in.Plan.Launches[0].Kernel.Entry == "matmul_round_"+d.String() {
			t.Errorf("%v is a launch that rounds", in)
		}
		for k, v := range in.Out {
			op, _ := in.Op.(program.Map)
			switch {
			case v.Dtype != d:
			case slices.ContainsFunc(l.Program.Updates, func(u program.Update) bool { return u.Next == v }): // a copy of parameters
			case op.PerRow != nil && op.PerRow[k], in.Op == program.ConcatInPlace{}:
				t.Errorf("%v stores statistics or gradients in 16 bits", in)
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
		if (u.State.Dtype == d) != copied || (u.Next.Dtype == d) != copied {
			t.Errorf("state %v is stored in %v, want %v for a copy of parameters alone", u.State, u.State.Dtype, d)
		}
	}
	if launches != 2 {
		t.Errorf("%d launches are of attention in 16 bits on the tensor cores, want the result and the gradients", launches)
	}
	if copies != 1 {
		t.Errorf("%d states have a copy in %v, want the parameters", copies, d)
	}
	if half < 40 {
		t.Errorf("%d values are stored in %v, want 40 or more:\n%v", half, d, l.Program)
	}
}

// NVIDIA's assembler takes every generated kernel of a step in F16 with dynamic loss scaling, and spills nothing.
func TestScaledStepAssembles(t *testing.T) {
	ptxas.Find(t)
	g, parameters := trained(t, 1, 768, 12, 512, 8, 256)
	s, _, err := internal.ReadSolver(G.NewAdamW())
	testutil.Do(t, err)
	training := &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: s, Learnables: parameters}}, ClipNorm: true, EMA: 0.9, Scaler: &solver.Scaler{Growth: 2, Backoff: 0.5, Interval: 2000}}
	l := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Precision: kernels.F16, Train: training}))
	testutil.Do(t, passes.Run(l.Program, passes.Target{Device: passes.H200, Mixed: kernels.F16}, nil))
	known, halves := map[string]bool{}, 0
	for _, p := range l.Program.Plans() {
		for _, launch := range p.Launches {
			image, generated := launch.Kernel.Image.(kernels.Generated)
			if !generated || known[image.Name()] {
				continue
			}
			known[image.Name()] = true
			ptx := testutil.Get[[]byte](t)(image.PTX(9))
			if bytes.Contains(ptx, []byte("cvt.rn.f16.f32")) {
				halves++
			}
			if _, registers, spills := ptxas.Assemble(t, image.Name(), ptx, "sm_90"); spills > 0 {
				t.Errorf("%s spills %d bytes of %d registers", image.Name(), spills, registers)
			}
		}
	}
	if t.Logf("%d kernels, %d of which store F16", len(known), halves); halves < 5 {
		t.Errorf("%d kernels store F16, want 5 or more", halves)
	}
}
