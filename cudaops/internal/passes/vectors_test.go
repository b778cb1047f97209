package passes_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// decoder is one token of a GPT with caches: its graph, its states with values, and its output.
type decoder struct {
	*lower.Graph
	states []G.Value // by Updates
}

// sizes are those of a decoder.
type sizes struct{ layers, width, heads, hidden, vocabulary, context, position int }

// newDecoder builds a decoder of an element type, whose caches are stored in a type.
func newDecoder(t *testing.T, z sizes, of tensor.Dtype, by kernels.Precision, seed uint64) *decoder {
	s := nn.New(G.NewGraph(), nn.Evaluation(), nn.Cached(z.context), nn.Dtype(of), nn.Initial(func(string, tensor.Shape) nn.Init { return nn.Constant(0) }))
	x := nn.Positions(s.At("wpe"), nn.Embedding(s.At("wte"), s.Input("token", tensor.Int32, 1, 1), z.vocabulary, z.width), z.context)
	var shared []lower.Shared
	for l := range z.layers {
		s := s.At("h", l)
		heads := func(y *G.Node) *G.Node {
			return testutil.Get[*G.Node](t)(ops.Reshape(y, 1, 1, z.heads, z.width/z.heads))
		}
		cached := func(k, v *G.Node) (*G.Node, *G.Node) { // as nn has them
			rows := testutil.Get[*G.Node](t)(ops.Concat(2, heads(k), heads(v)))
			old := s.Input(fmt.Sprint("cache", l), of, 1, z.context, 2*z.heads, z.width/z.heads)
			next := testutil.Get[*G.Node](t)(ops.Update(old, rows, s.Position(), 1))
			d, _ := by.Half()
			shared = append(shared, lower.Shared{Node: old, Next: next, Stored: d})
			parts := testutil.Get[[]*G.Node](t)(ops.Split(next, 2, z.heads, z.heads))
			return parts[0], parts[1]
		}
		x = nn.Residual(s, x, func(s *nn.Scope, x *G.Node) *G.Node {
			q, k, v := nn.Split3(s, nn.Linear(s.At("qkv"), nn.LayerNorm(s.At("norm1"), x), 3*z.width))
			k, v = cached(k, v)
			counts := testutil.Get[*G.Node](t)(ops.Map("a + 1", s.Position()))
			y := testutil.Get[*G.Node](t)(ops.Attention(heads(q), k, v, ops.RowsFirst(), ops.KeyCounts(counts)))
			return nn.Linear(s.At("proj"), testutil.Get[*G.Node](t)(ops.Reshape(y, 1, 1, z.width)), z.width)
		})
		x = nn.Residual(s, x, func(s *nn.Scope, x *G.Node) *G.Node {
			return nn.Linear(s.At("out"), nn.GELUTanh(s, nn.Linear(s.At("in"), nn.RMSNorm(s.At("norm2"), x), z.hidden)), z.width)
		})
	}
	x = nn.Linear(s.At("wte").Tied(), nn.LayerNorm(s.At("norm"), x), z.vocabulary, nn.NoBias())
	testutil.Do(t, s.Err())
	shared = append(shared, lower.Shared{Node: s.Position()})
	for _, n := range s.Parameters() {
		shared = append(shared, lower.Shared{Node: n})
	}
	r := rand.New(rand.NewPCG(seed, 1))
	testutil.Do(t, G.Let(s.Graph().ByName("token")[0], tensor.New(tensor.WithShape(1, 1), tensor.WithBacking([]int32{int32(r.IntN(z.vocabulary))}))))
	d := &decoder{Graph: testutil.Get[*lower.Graph](t)(lower.New(s.Graph(), &lower.Wanted{Precision: by, Shared: shared, Forward: true, Evaluate: true, Only: []*G.Node{x}}))}
	for _, u := range d.Program.Updates {
		v, m := values.New(u.State.Dtype, u.State.Shape)
		elements := make([]float32, u.State.Elements())
		for i := range elements { // both in BF16, so that rounding changes none
			elements[i] = float32(r.IntN(257)-128) / 256
		}
		switch u.State.Dtype {
		case kernels.Float32:
			copy(m, kernels.Bytes(elements))
		case kernels.Float64:
			for i, e := range elements {
				kernels.Elements[float64](m)[i] = float64(e)
			}
		case kernels.Int:
			kernels.Elements[int64](m)[0] = int64(z.position)
		default:
			copy(m, exec.Rounded(kernels.Bytes(elements), u.State.Dtype))
		}
		d.states = append(d.states, v)
	}
	return d
}

// step returns the output of the program, whose copies of states it sets.
func (d *decoder) step(t *testing.T, p *program.Program) []float64 {
	for i := len(d.states); i < len(p.Updates); i++ {
		of := p.Updates[i].State.Def.Op.(program.State).Rounds
		for k, u := range p.Updates[:i] {
			if u.State == of {
				v, m := values.New(p.Updates[i].State.Dtype, of.Shape)
				from, err := values.Bytes(d.states[k])
				testutil.Do(t, err)
				copy(m, exec.Rounded(from, p.Updates[i].State.Dtype))
				d.states = append(d.states, v)
			}
		}
	}
	out, _, err := p.Step([]G.Value{d.Inputs[0].Value()}, d.states)
	testutil.Do(t, err)
	var list []float64
	switch x := out[0].Data().(type) {
	case []float32:
		for _, v := range x {
			list = append(list, float64(v))
		}
	case []float64:
		list = x
	}
	return list
}

// On a GPU, the products of a token's step are Maps with the normalization before and with all functions of elements after them. After each pass the result is that of the graph in
// float64. Under Mixed the caches, and the matrices that the Maps read, are in 16 bits.
func TestVectors(t *testing.T) {
	seeds := testutil.Random(t)
	for _, by := range []kernels.Precision{kernels.FullPrecision, kernels.BF16, kernels.F16} {
		for range 4 {
			seed := seeds.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			heads := 1 + r.IntN(3)
			z := sizes{layers: 2, width: heads * 8 * (1 + r.IntN(4)), heads: heads, hidden: 8 + r.IntN(150), vocabulary: 20 + r.IntN(100), context: 3 + r.IntN(40)}
			z.position = r.IntN(z.context)
			exact := newDecoder(t, z, tensor.Float64, kernels.FullPrecision, seed)
			want, d := exact.step(t, exact.Program), newDecoder(t, z, tensor.Float32, by, seed)
			tolerance, large := map[kernels.Precision]float64{kernels.FullPrecision: 1e-5, kernels.BF16: 0.05, kernels.F16: 0.006}[by], 0.0
			for _, v := range want {
				large = max(large, math.Abs(v))
			}
			testutil.Do(t, passes.Run(d.Program, passes.Target{Device: passes.H200, Mixed: by}, func(pass string, p *program.Program) error {
				testutil.Do(t, program.Verify(p))
				for i, got := range d.step(t, p) {
					if !(math.Abs(got-want[i]) <= tolerance*large) {
						t.Fatalf("seed %d, %v, %+v: after %s output %d is %v, want %v:\n%v", seed, by, z, pass, i, got, want[i], p)
					}
				}
				return nil
			}))
			launches, half, matmuls := 0, 0, 0
			for _, in := range d.Program.Instrs {
				for _, v := range in.In {
					if program.Is[program.Map](in.Op) && v.View.Matmul {
						matmuls++
					}
				}
				launches += len(in.Kernels())
				for _, k := range in.Kernels() {
					if strings.HasPrefix(k, "matmul") {
						t.Errorf("seed %d, %+v: %v is a product, want a Map", seed, z, in)
					}
				}
			}
			for _, u := range d.Program.Updates {
				if u.State.Dtype.Size() == 2 {
					half++
				}
			}
			if want := 4*z.layers + 1; matmuls != want {
				t.Errorf("seed %d, %v, %+v: got %d matrices of matmuls in Maps, want %d:\n%v", seed, by, z, matmuls, want, d.Program)
			}
			if want := 8*z.layers + 5; launches > want {
				t.Errorf("seed %d, %v, %+v: got %d launches, want at most %d:\n%v", seed, by, z, launches, want, d.Program)
			}
			if want := 5*z.layers + 1; by != kernels.FullPrecision && half != want {
				t.Errorf("seed %d, %v, %+v: got %d states in 16 bits, want %d: a cache and four matrices a layer, and the embedding", seed, by, z, half, want)
			}
		}
	}
}
