package program_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	. "github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// trained returns the program of a graph with two learnables and Adam, placed.
func trained(t *testing.T) *Program {
	t.Helper()
	node, g := testutil.Get[*G.Node](t), G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(4, 5))
	w := G.NewMatrix(g, tensor.Float32, G.WithName("w"), G.WithShape(5, 3))
	b := G.NewVector(g, tensor.Float32, G.WithName("b"), G.WithShape(3))
	cost := node(G.Sum(node(G.Tanh(node(G.BroadcastAdd(node(G.Mul(x, w)), b, nil, []byte{0}))))))
	testutil.Get[G.Nodes](t)(G.Grad(cost, w, b))
	solver, _, err := internal.ReadSolver(G.NewAdamSolver())
	testutil.Do(t, err)
	l := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Train: &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: solver, Learnables: G.Nodes{w, b}}}}}))
	testutil.Do(t, passes.Run(l.Program, passes.Target{Device: kernels.HostDevice()}, nil))
	return l.Program
}

func isJoin(in *Instr) bool { _, ok := in.Op.(ConcatInPlace); return ok }

// stateFaults are faults of a pass with states and joined values.
var stateFaults = map[string]struct {
	want  string
	plant func(t *testing.T, p *Program)
}{
	"update elsewhere": {"want one place", func(t *testing.T, p *Program) {
		own := *p.Updates[0].Next.Buffer
		p.Updates[0].Next.Buffer = &own
	}},
	"update of no state": {"want a state of Setup", func(t *testing.T, p *Program) { p.Updates[0].State = p.Updates[0].Next }},
	"update of a constant": {"which is constant", func(t *testing.T, p *Program) {
		op := p.Updates[0].State.Def.Op.(State)
		op.Constant = true
		p.Updates[0].State.Def.Op = op
	}},
	"update that is lost":    {"is defined nowhere", func(t *testing.T, p *Program) { p.Updates[0].Next = &Value{ID: 99, Def: p.Instrs[0]} }},
	"update of another size": {"want the same type", func(t *testing.T, p *Program) { p.Updates[0].Next.Shape = tensor.Shape{1} }},
	"update too early": {"has written over", func(t *testing.T, p *Program) {
		i := slices.Index(p.Instrs, p.Updates[0].Next.Def)
		_, reader := find(t, p, func(in *Instr) bool {
			return isKernel(in) && slices.ContainsFunc(in.In, func(v *Value) bool { return v.Base == p.Updates[0].State })
		})
		p.Instrs = append(p.Instrs[:i:i], p.Instrs[i], reader)
	}},
	"update that reads other elements": {"of which it reads other elements", func(t *testing.T, p *Program) {
		in := p.Updates[0].Next.Def
		k := slices.Index(in.In, p.Updates[0].State)
		turned := *in.In[k]
		turned.View.Strides = []int64{0}
		in.In[k] = &turned
	}},
	"state that dies": {"is alive from", func(t *testing.T, p *Program) { p.Updates[1].State.Buffer.Death = 0 }},
	"joined elsewhere": {"is not joined at", func(t *testing.T, p *Program) {
		_, in := find(t, p, isJoin)
		in.In[1].Buffer.Offset += Alignment
	}},
	"joined to nothing": {"is not joined at", func(t *testing.T, p *Program) {
		_, in := find(t, p, isJoin)
		in.In[0].Buffer.Parent = nil
	}},
	"join of another size": {"a join of", func(t *testing.T, p *Program) {
		_, in := find(t, p, isJoin)
		in.In = in.In[:1]
	}},
	"join of another type": {"a join of", func(t *testing.T, p *Program) {
		_, in := find(t, p, isJoin)
		in.In[0].Dtype = kernels.Float64
	}},
}

func TestVerifyFindsFaultsOfStates(t *testing.T) {
	for name, f := range stateFaults {
		t.Run(name, func(t *testing.T) {
			p := trained(t)
			if err := Verify(p); err != nil {
				t.Fatalf("before the fault: %v\n%v", err, p)
			}
			f.plant(t, p)
			if err := Verify(p); err == nil || !strings.Contains(err.Error(), f.want) {
				t.Errorf("got %v, want an error with %q", err, f.want)
			}
		})
	}
}
