package passes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// planned takes a graph through the passes up to the one that plans it, with or without
// the one that gives products epilogues, and returns what runs as launches.
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

// text prints instructions.
func text(list []*program.Instr) string { return (&program.Program{Instrs: list}).String() }

// Products with epilogues make no more launches than without, unless an instruction
// has as many inputs or outputs as it may have: then where groups end follows from the
// order in which they grow.
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
		if len(with) > len(without) && !slices.ContainsFunc(slices.Concat(with, without), full) {
			t.Fatalf("got %d launches, without epilogues %d:\n%s\n%s", len(with), len(without), text(with), text(without))
		}
	})
	if found == 0 {
		t.Error("no graph has a product with an epilogue")
	}
}

// special are numbers in which functions differ that agree elsewhere.
var special = []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1, -1, 0x1p-140, -0x1p-140, 0x1p-149, -0x1p-149,
	0x1p-1070, -0x1p-1070, math.MaxFloat32, -math.MaxFloat32, math.MaxFloat64, -math.MaxFloat64, 1.5, -3}

// The derivative of a rectifier by its result is the one by its argument, to the bit.
func TestRectifier(t *testing.T) {
	for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
		values := slices.Clone(special)
		for range expr.BlockSize - len(values) {
			values = append(values, math.Float64frombits(rand.Uint64()), float64(math.Float32frombits(rand.Uint32())))
		}
		values = values[:expr.BlockSize]
		apply := func(text string, x []byte) []byte {
			out := kernels.Bytes(make([]float64, len(values)))
			if err := expr.NewInterpreter(parsed(text, dt, "x")).Run(len(values), []unsafe.Pointer{unsafe.Pointer(&x[0])}, []unsafe.Pointer{unsafe.Pointer(&out[0])}); err != nil {
				t.Fatal(err)
			}
			return out[:int64(len(values))*dt.Size()]
		}
		x := kernels.Bytes(values)
		if dt == kernels.Float32 {
			single := make([]float32, len(values))
			for i, v := range values {
				single[i] = float32(v)
			}
			x = kernels.Bytes(single)
		}
		b := expr.NewInterpreter(rectifierOf(dt))
		result := kernels.Bytes(make([]float64, len(values)))
		if err := b.Run(len(values), []unsafe.Pointer{unsafe.Pointer(&x[0])}, []unsafe.Pointer{unsafe.Pointer(&result[0])}); err != nil {
			t.Fatal(err)
		}
		want, got := apply("0 <= x", x), apply("0 <= 1 / x", result)
		if stepOf(dt) != parsed("0 <= 1 / x", dt, "x") {
			t.Error("the derivative is another function than the one tested")
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%v: the derivative at %g is another one by the result", dt, values[int64(i)/dt.Size()])
			}
		}
	}
}

// net is a graph of products, with inputs of numbers of all kinds.
type net struct {
	*testing.T
	g  *G.ExprGraph
	r  *rand.Rand
	dt tensor.Dtype
	in G.Nodes
}

// input returns an input, one in so many of whose numbers is special.
func (n *net) input(rare int, shape ...int) *G.Node {
	v := tensor.New(tensor.Of(n.dt), tensor.WithShape(shape...))
	for i := range v.Size() {
		x := n.r.NormFloat64()
		if n.r.IntN(rare) == 0 {
			x = special[n.r.IntN(len(special))]
		}
		if s, single := v.Data().([]float32); single {
			s[i] = float32(x)
		} else {
			v.Data().([]float64)[i] = x
		}
	}
	in := G.NewTensor(n.g, n.dt, len(shape), G.WithName(fmt.Sprint("x", len(n.in))), G.WithShape(shape...), G.WithValue(v))
	n.in = append(n.in, in)
	return in
}

// layers are graphs with the epilogues that their products have.
var layers = map[string]struct {
	build func(n *net) *G.Node // with gradients by all inputs of its sum
	want  []string             // what stands behind "product", in order
	keep  bool                 // no gradients
}{
	"bias and rectifier": {func(n *net) *G.Node {
		return G.Must(G.Rectify(G.Must(G.BroadcastAdd(G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3))), n.input(4, 3), nil, []byte{0}))))
	}, []string{"(c + x0 + 0) * f(0 <= c + x0)"}, true},
}

var _ = ops.Add
var _ = strings.Cut
