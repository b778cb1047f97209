package versions

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

const attentionTile = 64 // queries of a block of version 2

type attentionArgs struct {
	Q, K, V, Out    kernels.Ref
	Rows, Keys, Dim int64 `arg:"int32"`
	Scale           float32
	Causal          bool
}

var attentionTiled = library.Kernel("attention", "attention_tiled_bf16", attentionBody)

// Attention plans version v of attention: q and out (Batch, Heads, Queries, Dim), k and v (Batch, Heads, Keys, Dim), dense and in BF16. Versions 3 and 4 are the kernels with which the op
// runs on compute capability 7 and 8, version 5 that of the device. Dim is at most 128; version 1 is for full attention.
func Attention(dev kernels.Device, v int, a attention.Problem) (*kernels.Plan, error) {
	if err := check("attention", v, len(docs["Attention"])); err != nil {
		return nil, err
	}
	dense := attention.Problem{Dtype: expr.BF16, Batch: a.Batch, Heads: a.Heads, KeyHeads: a.Heads, Queries: a.Queries, Keys: a.Keys, Dim: a.Dim, Scale: a.Scale, Causal: a.Causal && v > 1}
	if a != dense || a.Dim > 128 {
		return nil, fmt.Errorf("versions: attention: got %+v, want %+v and rows of at most 128 elements for version %d", a, dense, v)
	}
	forward, err := attention.Forward{Problem: a, Out: true}.Plan(dev)
	switch {
	case err != nil || v == 5:
		return forward, err
	case v == 1:
		return unfused(dev, forward, a)
	case v == 2:
		p := &kernels.Plan{Op: forward.Op, Inputs: forward.Inputs, Out: forward.Out, Flops: forward.Flops}
		l := p.Launch(attentionTiled, int(kernels.CeilDiv(a.Queries, attentionTile)), 256, attentionArgs{in0, in1, kernels.In(2), out, a.Queries, a.Keys, a.Dim, float32(a.Scale), a.Causal})
		l.Grid[1] = int(a.Batch * a.Heads)
		return p, kernels.CheckGrid(a.Batch * a.Heads)
	}
	dev.Major, dev.Minor = min(dev.Major, 4+v), 0
	return attention.Forward{Problem: a, Out: true}.Plan(dev)
}

// unfused plans a product, a softmax and a product, with the matrix of scores in memory, in float32, and that of weights, in BF16.
func unfused(dev kernels.Device, like *kernels.Plan, a attention.Problem) (*kernels.Plan, error) {
	p := &kernels.Plan{Op: like.Op, Inputs: like.Inputs, Out: like.Out, Flops: like.Flops}
	half := gemm.Operand{Form: gemm.BF16}
	scores := gemm.Product{Dtype: kernels.Float32, Batch: a.Batch * a.Heads, M: a.Queries, N: a.Keys, K: a.Dim, A: half, B: gemm.Operand{Form: gemm.BF16, Trans: true}, Round: kernels.BF16}
	values := gemm.Product{Dtype: kernels.Float32, Batch: a.Batch * a.Heads, M: a.Queries, N: a.Dim, K: a.Keys, A: half, B: half, Round: kernels.BF16}
	values, ok := values.Stored(expr.BF16, nil, dev)
	if !ok {
		return nil, fmt.Errorf("versions: attention: got %+v on %s, want a product of it that stores BF16 for version 1", a, dev.Name)
	}
	softmax, err := expr.ParseRows(fmt.Sprintf("exp((a - rowmax(a)) * %[1]v) / rowsum(exp((a - rowmax(a)) * %[1]v))", a.Scale), kernels.Float32, "a")
	if err == nil {
		softmax, err = softmax.Stored([]kernels.Dtype{kernels.Float32}, []kernels.Dtype{expr.BF16})
	}
	if err != nil {
		return nil, err
	}
	shape := []int{int(a.Batch * a.Heads), int(a.Queries), int(a.Keys)}
	first, err := scores.Plan(dev)
	if err != nil {
		return nil, err
	}
	second, err := codegen.Rows(dev, softmax, shape, []int{2}, []bool{false}, codegen.Dense(shape))
	if err != nil {
		return nil, err
	}
	third, err := values.Plan(dev)
	if err != nil {
		return nil, err
	}
	matrix, weights := p.Workspace(first.Out), p.Workspace(second.Out)
	appendPlan(p, first, matrix, in0, in1)
	appendPlan(p, second, weights, matrix)
	appendPlan(p, third, out, weights, kernels.In(2))
	return p, nil
}

// attentionBody computes by the definition.
func attentionBody(c kernels.Call) {
	a := kernels.Args[attentionArgs](c)
	q, k, v, out := kernels.Slice[uint16](c, a.Q), kernels.Slice[uint16](c, a.K), kernels.Slice[uint16](c, a.V), kernels.Slice[uint16](c, a.Out)
	number := func(x []uint16, i int64) float32 { return expr.FromHalf(expr.BF16, x[i]) }
	kernels.Parallel(int64(c.Grid[1])*a.Rows, 1, func(lo, hi int64) {
		weights, sums := make([]float64, a.Keys), make([]float64, a.Dim)
		for row := lo; row < hi; row++ {
			seen, first := a.Keys, row/a.Rows*a.Keys
			if a.Causal {
				seen = min(max(row%a.Rows+a.Keys-a.Rows+1, 0), a.Keys)
			}
			most, total := math.Inf(-1), 0.0
			for j := range seen {
				var score float32
				for l := range a.Dim {
					score += number(q, row*a.Dim+l) * number(k, (first+j)*a.Dim+l)
				}
				weights[j] = float64(score * a.Scale)
				most = max(most, weights[j])
			}
			clear(sums)
			for j := range seen {
				w := math.Exp(weights[j] - most)
				total += w
				for l := range sums {
					sums[l] += w * float64(number(v, (first+j)*a.Dim+int64(l)))
				}
			}
			for l, sum := range sums {
				if total > 0 {
					sum /= total
				}
				out[row*a.Dim+int64(l)] = expr.ToHalf(expr.BF16, float32(sum))
			}
		}
	})
}
