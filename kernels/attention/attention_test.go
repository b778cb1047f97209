package attention_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/test/compare"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// attended is a problem of attention with its operands and, by the definition in float64, its results.
type attended struct {
	attention.Problem
	q, k, v, grad, counts []float64
	out, lse, dq, dk, dv  []float64
	sizes                 []float64  // magnitudes of out
	gradientSizes         [3]float64 // the largest element or, where these cancel, term
}

// row returns where a row of an operand of so many heads and rows begins.
func (a *attended) row(b, h, t, heads, rows int64) int64 {
	if a.RowsFirst {
		return ((b*rows+t)*heads + h) * a.Dim
	}
	return ((b*heads+h)*rows + t) * a.Dim
}

// kind is a type of elements, to which precision operands of float32 are rounded, and the distance of numbers next to 1.
type kind struct {
	kernels.Dtype
	round   kernels.Precision
	epsilon float64
}

func (k kind) String() string {
	if k.round != kernels.FullPrecision {
		return k.round.String()
	}
	return k.Dtype.String()
}

var (
	f32  = kind{kernels.Float32, kernels.FullPrecision, 0x1p-23}
	tf32 = kind{kernels.Float32, kernels.TF32, 0x1p-10}
	f64  = kind{kernels.Float64, kernels.FullPrecision, 0x1p-52}
	bf16 = kind{expr.BF16, kernels.FullPrecision, 0x1p-8}
	f16  = kind{expr.F16, kernels.FullPrecision, 0x1p-11}
)

// drawAttention draws problem i of a kind with its results.
func drawAttention(seed uint64, of kind, decoding bool, i int) *attended {
	r := rand.New(rand.NewPCG(seed, 0))
	a := drawProblem(r, of, decoding, i)
	a.draw(r)
	a.compute()
	return a
}

// drawProblem draws the sizes of problem i of a kind, of few queries and many keys if it is one of decoding.
func drawProblem(r *rand.Rand, of kind, decoding bool, i int) *attended {
	n := func(most int) int64 { return 1 + r.Int64N(int64(most)) }
	a := &attended{Problem: attention.Problem{Dtype: of.Dtype, Round: of.round, Batch: n(2), KeyHeads: n(2), Queries: n(300), Keys: n(300), Dim: n(256), Causal: r.IntN(2) == 1, RowsFirst: r.IntN(2) == 1}}
	if r.IntN(3) > 0 { // rows that TMA copies
		a.Dim = 8 * n(32)
	}
	if decoding {
		a.Batch, a.KeyHeads, a.Queries, a.Keys = n(3), n(4), n(3), n([]int{40, 2000, 8000}[r.IntN(3)])
	} else if r.IntN(4) == 0 {
		a.Queries = n(3)
	}
	if r.IntN(3) == 0 {
		a.Keys, a.RowsFirst = a.Queries, true
	}
	a.Heads = a.KeyHeads * n(3)
	if decoding && i < 2 { // problems of rows in pieces and of spread rows whose keys are split among blocks
		a.Batch, a.Heads, a.KeyHeads, a.Queries, a.Keys, a.Dim = 1, 1, 1, 1, 2000+n(6000), 8*n(16)-int64(i)
	}
	if testing.Short() {
		a.shrink(r, decoding, i)
	}
	a.Scale = 1 / math.Sqrt(float64(a.Dim))
	if r.IntN(8) == 0 {
		a.Scale = -a.Scale
	}
	return a
}

// shrink makes a problem small enough for a sanitizer, which follows every access: one head of keys, two or three tiles of queries, unless it is one of decoding, and of keys, and rows
// that kernels of the i-th width take.
func (a *attended) shrink(r *rand.Rand, decoding bool, i int) {
	a.Batch, a.Heads, a.KeyHeads = 1, 1+r.Int64N(2), 1
	same := a.Queries == a.Keys
	if !decoding {
		a.Queries = 65 + r.Int64N(80)
	}
	if a.Keys = min(a.Keys, 2000); a.Keys < 300 {
		a.Keys = 65 + r.Int64N(80)
	}
	if same {
		a.Keys = a.Queries
	}
	a.Dim = []int64{0, 64, 128}[i%3] + 8*(1+r.Int64N(8))
}

// draw draws the operands, and for every other problem counts.
func (a *attended) draw(r *rand.Rand) {
	dt := a.Dtype
	numbers := func(rows int64) []float64 {
		x := make([]float64, rows*a.Dim)
		for i := range x {
			if x[i] = r.NormFloat64(); dt.IsFloat() {
				x[i] = float64(a.Round.Round(float32(x[i])))
			} else {
				x[i] = float64(expr.FromHalf(dt, expr.ToHalf(dt, float32(x[i]))))
			}
		}
		return x
	}
	queries, keys := a.Batch*a.Heads*a.Queries, a.Batch*a.KeyHeads*a.Keys
	a.q, a.k, a.v, a.grad = numbers(queries), numbers(keys), numbers(keys), numbers(queries)
	if r.IntN(2) == 0 {
		a.Counts = attention.Counts{Dtype: []kernels.Dtype{kernels.Int32, kernels.Int64}[r.IntN(2)], Elements: a.Batch * a.Queries, Batch: a.Queries, Row: 1}
		if r.IntN(2) == 0 {
			a.Counts.Elements, a.Counts.Batch, a.Counts.Row = a.Batch, 1, 0
		}
		for range a.Counts.Elements {
			a.counts = append(a.counts, float64(r.Int64N(a.Keys+1)*r.Int64N(4)/3))
		}
		for i := range a.counts {
			a.counts[i] = min(a.counts[i], float64(a.Keys))
		}
	}
}

// mask makes the scores of three quarters of the keys -Inf, the first ones or the last, by the first element of rows.
func (a *attended) mask(last int64) {
	a.q, a.k = slices.Clone(a.q), slices.Clone(a.k)
	for row := range slices.Chunk(a.q, int(a.Dim)) {
		row[0] = math.Copysign(1, a.Scale)
	}
	first := a.Keys / 4 * last
	for j := first; j < a.Keys-a.Keys/4+first; j++ {
		for b := range a.Batch {
			for h := range a.KeyHeads {
				a.k[a.row(b, h, j, a.KeyHeads, a.Keys)] = math.Inf(-1)
			}
		}
	}
	a.compute()
}

// sideBySide returns values of q, k and v in one operand, (Batch, Queries, Heads + 2 KeyHeads, Dim), as many queries as keys, and the strides of its parts.
func (a *attended) sideBySide(q, k, v []float64) (all []float64, in [3]attention.Strides) {
	heads := a.Heads + 2*a.KeyHeads
	all = make([]float64, a.Batch*a.Queries*heads*a.Dim)
	first := int64(0)
	for i, x := range [][]float64{q, k, v} {
		own := int64(len(x)) / (a.Batch * a.Queries * a.Dim)
		for row := range a.Batch * a.Queries {
			copy(all[(row*heads+first)*a.Dim:], x[row*own*a.Dim:][:own*a.Dim])
		}
		in[i] = attention.Strides{Batch: a.Queries * heads * a.Dim, Head: a.Dim, Row: heads * a.Dim}
		first += own
	}
	return all, in
}

// checkSideBySide checks q, k and v in one operand, and their gradients in one output if a device has kernels for it.
func (a *attended) checkSideBySide(dev kernels.Device, statistics, out []byte, sizes [][]float64, tolerance float64) error {
	p := a.Problem
	var all []float64
	all, p.In = a.sideBySide(a.q, a.k, a.v)
	row := (p.Heads + 2*p.KeyHeads) * p.Dim
	var in [][]byte
	first := int64(0)
	for _, width := range p.Widths() {
		in = append(in, bytesOfType(p.Dtype, all[first:][:int64(len(all))-row+width]))
		first += width
	}
	types := []kernels.Dtype{p.Dtype, p.Dtype, p.Dtype}
	if err := a.check(dev, attention.Forward{Problem: p, Out: true}, in, types[:1], [][]float64{a.out}, [][]float64{a.sizes}, tolerance); err != nil {
		return err
	}
	b := attention.Backward{Problem: p, Q: true, K: true, V: true}
	in = append(in, statistics, out, bytesOfType(p.Dtype, a.grad))
	if err := a.check(dev, b, in, types, [][]float64{a.dq, a.dk, a.dv}, sizes, tolerance); err != nil {
		return err
	}
	packed, ok := b.Packs(dev)
	if dev.Kind == kernels.CPU {
		packed, ok = b.Packs(kernels.Device{Kind: kernels.GPU, Major: 9})
	}
	if !ok {
		return nil
	}
	want, _ := a.sideBySide(a.dq, a.dk, a.dv)
	size, _ := a.sideBySide(sizes[0], sizes[1], sizes[2])
	return a.check(dev, packed, in, types[:1], [][]float64{want}, [][]float64{size}, tolerance)
}

// dot returns the sum of products.
func dot(x, y []float64) float64 {
	var s0, s1, s2, s3 float64 // which do not wait for one another
	for ; len(x) >= 4 && len(y) >= 4; x, y = x[4:], y[4:] {
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
	}
	for i := range x {
		s0 += x[i] * y[i]
	}
	return s0 + s1 + (s2 + s3)
}

// absolute returns absolute values.
func absolute(x []float64) []float64 {
	list := make([]float64, len(x))
	for i := range x {
		list[i] = math.Abs(x[i])
	}
	return list
}

// compute computes the results.
func (a *attended) compute() {
	a.out, a.sizes, a.dq = make([]float64, len(a.q)), make([]float64, len(a.q)), make([]float64, len(a.q))
	a.dk, a.dv, a.lse = make([]float64, len(a.k)), make([]float64, len(a.k)), make([]float64, a.Batch*a.Heads*a.Queries)
	absV, largestK := absolute(a.v), make([]float64, 0, int64(len(a.k))/a.Dim)
	for row := range slices.Chunk(a.k, int(a.Dim)) {
		largestK = append(largestK, slices.Max(absolute(row)))
	}
	for i := range a.lse {
		t, bh := int64(i)%a.Queries, int64(i)/a.Queries
		b, h := bh/a.Heads, bh%a.Heads
		at := a.row(b, h, t, a.Heads, a.Queries)
		q, g, out, sizes, dq := a.q[at:][:a.Dim], a.grad[at:][:a.Dim], a.out[at:][:a.Dim], a.sizes[at:][:a.Dim], a.dq[at:][:a.Dim]
		key := func(x []float64, j int64) []float64 {
			return x[a.row(b, h*a.KeyHeads/a.Heads, j, a.KeyHeads, a.Keys):][:a.Dim]
		}
		n := a.Keys
		if a.Causal {
			n = min(n, t+a.Keys-a.Queries+1)
		}
		if a.counts != nil {
			n = min(n, int64(a.counts[b*a.Counts.Batch+t*a.Counts.Row]))
		}
		a.lse[i] = math.Inf(-1)
		if n <= 0 {
			continue
		}
		p, most, sum := make([]float64, n), math.Inf(-1), 0.0
		for j := range n {
			p[j] = a.Scale * dot(q, key(a.k, j))
			most = max(most, p[j])
		}
		for j := range p {
			p[j] = math.Exp(p[j] - most)
			sum += p[j]
		}
		a.lse[i] = most + math.Log(sum)
		for j := range p {
			p[j] /= sum
			v, size := key(a.v, int64(j)), key(absV, int64(j))
			for c := range out {
				out[c] += p[j] * v[c]
				sizes[c] += p[j] * size[c]
			}
		}
		absG := absolute(g)
		delta, terms, largestQ := dot(g, out), dot(absG, absolute(out)), slices.Max(absolute(q))
		for j := range p {
			k, dk, dv := key(a.k, int64(j)), key(a.dk, int64(j)), key(a.dv, int64(j))
			largest := largestK[a.row(b, h*a.KeyHeads/a.Heads, int64(j), a.KeyHeads, a.Keys)/a.Dim]
			ds, size := p[j]*(dot(g, key(a.v, int64(j)))-delta)*a.Scale, p[j]*(dot(absG, key(absV, int64(j)))+terms)*math.Abs(a.Scale)
			a.gradientSizes[0], a.gradientSizes[1] = max(a.gradientSizes[0], size*largest), max(a.gradientSizes[1], size*largestQ)
			for c := range dq {
				dq[c] += ds * k[c]
				dk[c] += ds * q[c]
				dv[c] += p[j] * g[c]
			}
		}
	}
	var lse []float64
	for head := range slices.Chunk(a.lse, int(a.Queries)) {
		lse = append(lse, head[a.Queries-a.Seeing():]...)
	}
	a.lse = lse
	for i, x := range [][]float64{a.dq, a.dk, a.dv} {
		a.gradientSizes[i] = max(a.gradientSizes[i], 1e-3)
		for _, v := range x {
			a.gradientSizes[i] = max(a.gradientSizes[i], math.Abs(v))
		}
	}
}

// rounds reports whether tensor cores may round weights.
func (a *attended) rounds() bool { return !a.Dtype.IsFloat() || a.Round != kernels.FullPrecision }

// tolerance is that of results, where epsilon is the distance of numbers next to 1.
func (a *attended) tolerance(epsilon float64) float64 {
	if a.rounds() {
		return 4 * epsilon
	}
	return 40 * epsilon
}

// statisticSizes are magnitudes of the statistics, by which their tolerance is that of float32.
func (a *attended) statisticSizes(epsilon float64) []float64 {
	size := 10.0
	if a.rounds() {
		size *= 0x1p-20 / epsilon
	}
	return slices.Repeat([]float64{size}, len(a.lse))
}

// operands are q, k and v in memory.
func (a *attended) operands() [][]byte {
	return [][]byte{bytesOfType(a.Dtype, a.q), bytesOfType(a.Dtype, a.k), bytesOfType(a.Dtype, a.v)}
}

// statistics is the type of the statistics.
func (a *attended) statistics() kernels.Dtype {
	if a.Dtype == kernels.Float64 {
		return kernels.Float64
	}
	return kernels.Float32
}

// bytesOfType returns numbers as memory of a type, and numbersOfType memory as numbers.
func bytesOfType(dt kernels.Dtype, x []float64) []byte {
	switch dt {
	case kernels.Float32:
		return bytesOf(x, func(v float64) float32 { return float32(v) })
	case kernels.Float64:
		return bytesOf(x, func(v float64) float64 { return v })
	case kernels.Int32:
		return bytesOf(x, func(v float64) int32 { return int32(v) })
	case kernels.Int64:
		return bytesOf(x, func(v float64) int64 { return int64(v) })
	}
	return bytesOf(x, func(v float64) uint16 { return expr.ToHalf(dt, float32(v)) })
}

func bytesOf[T kernels.Element](x []float64, of func(float64) T) []byte {
	list := make([]T, len(x))
	for i, v := range x {
		list[i] = of(v)
	}
	return kernels.Bytes(list)
}

func numbersOfType(dt kernels.Dtype, b []byte, n int) []float64 {
	list := make([]float64, 0, n)
	for i := range n {
		switch dt {
		case kernels.Float32:
			list = append(list, float64(kernels.Elements[float32](b)[i]))
		case kernels.Float64:
			list = append(list, kernels.Elements[float64](b)[i])
		default:
			list = append(list, float64(expr.FromHalf(dt, kernels.Elements[uint16](b)[i])))
		}
	}
	return list
}

// checkAttention runs a plan twice and compares its outputs with the results.
func (a *attended) check(dev kernels.Device, planner kernels.Planner, inputs [][]byte, types []kernels.Dtype, want, sizes [][]float64, tolerance float64) error {
	p, err := planner.Plan(dev)
	if err == nil {
		err = p.Check(dev)
	}
	if err != nil {
		return err
	}
	if a.counts != nil {
		inputs = append(inputs[:len(inputs):len(inputs)], bytesOfType(a.Counts.Dtype, a.counts))
	}
	var first []byte
	runs := 2
	if testing.Short() { // a sanitizer follows every access
		runs = 1
	}
	for range runs {
		out := bytes.Repeat([]byte{0xff}, int(p.Out)) // NaN
		if dev.Kind == kernels.CPU || dev.Memory == 0 {
			err = p.Run(inputs, out, bytes.Repeat([]byte{0xff}, int(p.Scratch)))
		} else {
			err = bench.Run(0, p, inputs, out)
		}
		if err != nil {
			return err
		}
		at := int64(0)
		for i, x := range want {
			if len(p.Parts) > 0 {
				at = p.Parts[i]
			}
			own := kernels.Bytes(append([]float64(nil), make([]float64, (int64(len(x))*types[i].Size()+7)/8)...))
			copy(own, out[at:])
			if err := compare.Close(numbersOfType(types[i], own, len(x)), x, sizes[i], tolerance*float64(int64(1)<<52), 0); err != nil {
				return fmt.Errorf("output %d: %w\n%v", i, err, p)
			}
			if first != nil && !bytes.Equal(out[at:at+int64(len(x))*types[i].Size()], first[at:at+int64(len(x))*types[i].Size()]) {
				return fmt.Errorf("output %d has other bits in the second run\n%v", i, p)
			}
		}
		first = out
	}
	return nil
}

// tested returns the devices of a GPU machine with the plans of older ones, whose kernels it has too; elsewhere some devices without memory, whose plans the host runs.
func tested(t *testing.T) []kernels.Device {
	list, err := cudaops.Devices()
	if len(list) == 0 {
		t.Logf("host alone: %v", err)
		return []kernels.Device{{Name: "7.x", Major: 7, SMs: 16, SharedOptin: 96 << 10}, {Name: "9.0", Major: 9, SMs: 132, SharedOptin: 227 << 10}}
	}
	mma, portable := list[0].Device, list[0].Device
	mma.Name, mma.Major, portable.Name, portable.Major = mma.Name+" as 8.x", 8, portable.Name+" as 7.x", 7
	return []kernels.Device{list[0].Device, mma, portable}
}

func TestDecodingF32(t *testing.T)  { testDecoding(t, f32) }
func TestDecodingTF32(t *testing.T) { testDecoding(t, tf32) }
func TestDecodingF64(t *testing.T)  { testDecoding(t, f64) }
func TestDecodingBF16(t *testing.T) { testDecoding(t, bf16) }
func TestDecodingF16(t *testing.T)  { testDecoding(t, f16) }

// Attention of few queries to many keys is that of the definition: the keys are split among blocks.
func testDecoding(t *testing.T, of kind) {
	dt, epsilon := of.Dtype, of.epsilon
	draws, launched := 12, map[string]bool{}
	if testing.Short() {
		draws = 3
	}
	seeds := testutil.Random(t)
	for i := range draws {
		seed := seeds.Uint64()
		a := drawAttention(seed, of, true, i)
		lse, tolerance, in := a.statisticSizes(epsilon), a.tolerance(epsilon), a.operands()
		for _, dev := range tested(t) {
			both, one := attention.Forward{Problem: a.Problem, Out: true, Statistics: true}, attention.Forward{Problem: a.Problem, Out: true}
			err := a.check(dev, both, in, []kernels.Dtype{dt, a.statistics()}, [][]float64{a.out, a.lse}, [][]float64{a.sizes, lse}, tolerance)
			if err == nil {
				err = a.check(dev, one, in, []kernels.Dtype{dt}, [][]float64{a.out}, [][]float64{a.sizes}, tolerance)
			}
			if err != nil {
				t.Errorf("seed %d on %s: %+v: %v", seed, dev.Name, a.Problem, err)
			}
			p, err := one.Plan(dev)
			for k := 0; err == nil && k < len(p.Launches); k++ {
				launched[p.Launches[k].Kernel.Entry] = true
			}
		}
	}
	for _, stem := range []string{"split", "spread", "merge"} {
		if entry := fmt.Sprintf("attention_%s_%v", stem, dt); dt != kernels.Float64 && !launched[entry] && !testing.Short() {
			t.Errorf("no draw launched %s", entry)
		}
	}
}

// checkAll checks attention, its statistics and its gradients on a device.
func (a *attended) checkAll(dev kernels.Device, epsilon float64) error {
	dt := a.Dtype
	half := func(x []float64) []byte { return bytesOfType(dt, x) }
	rounded := numbersOfType(dt, half(a.out), len(a.out))
	single := bytesOfType(a.statistics(), a.lse)
	sizes := make([][]float64, 3)
	for k, x := range [][]float64{a.dq, a.dk, a.dv} {
		sizes[k] = slices.Repeat([]float64{a.gradientSizes[k]}, len(x))
	}
	lse, tolerance, in := a.statisticSizes(epsilon), a.tolerance(epsilon), a.operands()
	err := a.check(dev, attention.Forward{Problem: a.Problem, Out: true, Statistics: true}, in, []kernels.Dtype{dt, a.statistics()}, [][]float64{a.out, a.lse}, [][]float64{a.sizes, lse}, tolerance)
	if err == nil && !testing.Short() {
		err = a.check(dev, attention.Forward{Problem: a.Problem, Out: true}, in, []kernels.Dtype{dt}, [][]float64{a.out}, [][]float64{a.sizes}, tolerance)
	}
	in = append(in, single, half(rounded), half(a.grad))
	if err == nil {
		err = a.check(dev, attention.Backward{Problem: a.Problem, Q: true, K: true, V: true}, in, []kernels.Dtype{dt, dt, dt}, [][]float64{a.dq, a.dk, a.dv}, sizes, tolerance)
	}
	for k, wanted := range [][]float64{a.dq, a.dk, a.dv} {
		if err == nil && !testing.Short() {
			err = a.check(dev, attention.Backward{Problem: a.Problem, Q: k == 0, K: k == 1, V: k == 2}, in, []kernels.Dtype{dt}, [][]float64{wanted}, sizes[k:k+1], tolerance)
		}
	}
	if err == nil && a.RowsFirst && a.Queries == a.Keys {
		err = a.checkSideBySide(dev, single, half(rounded), sizes, tolerance)
	}
	return err
}

// A type has a test of its own: racecheck takes minutes for all of them.
func TestAttentionF32(t *testing.T)  { testAttention(t, f32) }
func TestAttentionTF32(t *testing.T) { testAttention(t, tf32) }
func TestAttentionF64(t *testing.T)  { testAttention(t, f64) }
func TestAttentionBF16(t *testing.T) { testAttention(t, bf16) }
func TestAttentionF16(t *testing.T)  { testAttention(t, f16) }

// Attention, its statistics and its gradients are those of the definition, of drawn sizes, on the host and on a GPU: of types of 16 bits too, whose weights are rounded to them on tensor
// cores.
func testAttention(t *testing.T, of kind) {
	devices := []kernels.Device{kernels.HostDevice()}
	if list := tested(t); list[0].Memory > 0 && testing.Short() {
		devices = list
	} else if list[0].Memory > 0 {
		devices = append(devices, list...)
	}
	draws := 12
	if len(devices) == 1 {
		draws = 8
	}
	if testing.Short() {
		draws = 3
	}
	seeds := testutil.Random(t)
	for i := range draws {
		seed := seeds.Uint64()
		a := drawAttention(seed, of, false, i)
		for _, dev := range devices {
			if testing.Short() && i > 0 && (dev.Major < 8 || of.Dtype == kernels.Float64) {
				continue // these kernels take rows of any width, and a sanitizer takes seconds for each
			}
			if err := a.checkAll(dev, of.epsilon); err != nil {
				t.Errorf("seed %d, draw %d on %s: %+v: %v", seed, i, dev.Name, a.Problem, err)
			}
		}
	}
}

// Attention to few keys is as defined, with counts and causal, in rows of any size.
func TestFewKeys(t *testing.T) {
	r, draws, launched := testutil.Random(t), 6, map[string]bool{}
	if tested(t)[0].Memory == 0 { // one Go body for all kernels
		draws = 3
	}
	if testing.Short() {
		draws = 2
	}
	for _, of := range []kind{f32, tf32, f64, bf16, f16} {
		for i := range draws {
			a := drawProblem(r, of, false, i)
			a.Batch, a.Queries, a.Keys = 7, min(a.Queries, 150), 1+r.Int64N([]int64{32, 8}[i%2])
			if i == 1 { // each thread has a query
				a.Queries = max(a.Queries, 24)
			}
			if a.RowsFirst = i%2 == 0; i%3 == 0 {
				a.Dim = 1 + r.Int64N(256)
				a.Scale = 1 / math.Sqrt(float64(a.Dim)) // of other rows it would make weights that errors of float32 change by more than the tolerance
			}
			a.draw(r)
			a.compute()
			for _, dev := range tested(t) {
				dev.SMs = 1
				if err := a.checkAll(dev, max(1, float64(a.Dim)/128)*of.epsilon); err != nil { // longer sums
					t.Errorf("draw %d on %s: %+v: %v", i, dev.Name, a.Problem, err)
				}
				p := testutil.Get[*kernels.Plan](t)(attention.Forward{Problem: a.Problem, Out: true}.Plan(dev))
				launched[p.Launches[0].Kernel.Entry] = true
			}
		}
	}
	for _, want := range []string{"attention_few_f32", "attention_few_f64"} {
		if !launched[want] {
			t.Errorf("no draw launched %s", want)
		}
	}
}

// Attention by kernels whose warps share keys is as defined, in rows of any size, also where blocks share the keys of a tile.
func TestSharedKeys(t *testing.T) {
	r, draws, launched, parts := testutil.Random(t), 10, map[string]bool{}, 0
	if testing.Short() {
		draws = 6
	}
	for _, of := range []kind{f32, f64} {
		for i := range draws {
			a := drawProblem(r, of, false, i)
			a.KeyHeads, a.Heads, a.Scale = 2, 2*(1+r.Int64N(2)), 0.1
			a.Queries, a.Keys, a.Dim = []int64{33, 65, 17, 5}[i%4]+r.Int64N(12), 64+r.Int64N(200), 64*(int64(i)%3+1)-1-2*r.Int64N(14)
			sms := 1
			if testing.Short() {
				a.Keys = 64 + r.Int64N(60)
			}
			if i%2 == 1 { // blocks share the keys of a tile
				a.Batch, a.Keys, sms = 1, 256+r.Int64N(50), 16
			}
			if i%3 == 2 {
				a.Dim += 2 * r.Int64N(32)
			}
			if i%6 == 5 { // rows of whole 16-byte pieces
				a.Dim = (a.Dim + 3) / 4 * 4
			}
			a.draw(r)
			a.compute()
			in := a.operands()
			sizes := make([]float64, len(a.lse))
			for k := range sizes {
				sizes[k] = 10
			}
			for _, dev := range tested(t) {
				dev.SMs = sms
				f := attention.Forward{Problem: a.Problem, Out: true, Statistics: true}
				if err := a.check(dev, f, in, []kernels.Dtype{a.Dtype, a.Dtype}, [][]float64{a.out, a.lse}, [][]float64{a.sizes, sizes}, 40*of.epsilon); err != nil {
					t.Errorf("draw %d on %s: %+v: %v", i, dev.Name, a.Problem, err)
				}
				p := testutil.Get[*kernels.Plan](t)(f.Plan(dev))
				entry := p.Launches[0].Kernel.Entry
				if launched[entry] = true; len(p.Launches) > 1 && strings.Contains(entry, "any") {
					parts++
				}
			}
		}
	}
	for _, want := range []string{"attention_any_64_f32", "attention_any_128_f32", "attention_any_256_f32", "attention_double_128_f64", "attention_double_256_f64"} {
		if !launched[want] {
			t.Errorf("no draw launched %s", want)
		}
	}
	if parts == 0 {
		t.Error("in no draw do blocks share the keys of a tile")
	}
}

// Attention by blocks of three warpgroups, of which each computes several tiles of queries, is as defined.
func TestThreeWarpgroups(t *testing.T) {
	dev, r := tested(t)[0], testutil.Random(t)
	dev.SMs = 2
	for _, of := range []kind{bf16, f16} {
		a := &attended{Problem: attention.Problem{Dtype: of.Dtype, Batch: 1, Heads: 1, KeyHeads: 1, Queries: 512 + r.Int64N(100), Keys: 65 + r.Int64N(80), Dim: 8 * (1 + r.Int64N(8)), Scale: 0.2}}
		a.draw(r)
		a.compute()
		f := attention.Forward{Problem: a.Problem, Out: true}
		in := a.operands()
		if err := a.check(dev, f, in, []kernels.Dtype{a.Dtype}, [][]float64{a.out}, [][]float64{a.sizes}, 4*of.epsilon); err != nil {
			t.Errorf("%v on %s: %+v: %v", of, dev.Name, a.Problem, err)
		}
		p := testutil.Get[*kernels.Plan](t)(f.Plan(dev))
		if want := fmt.Sprintf("attention_hopper_three_64_%v", of.Dtype); dev.Major == 9 && p.Launches[0].Kernel.Entry != want {
			t.Errorf("%v: got %s, want %s", p, p.Launches[0].Kernel.Entry, want)
		}
	}
}

// In float32 infinities, NaN and huge scores are treated as the definition treats them, and have no effect where a query does not see the key: of drawn sizes, causal or with counts. (Tensor
// cores multiply what 16-bit operands hold there by 0.)
func TestNonFinite(t *testing.T) {
	seeds := testutil.Random(t)
	draws := 10
	if tested(t)[0].Memory == 0 {
		draws = 6
	}
	if testing.Short() {
		draws = 2
	}
	for _, of := range []kind{f32, tf32, f64} {
		for range draws {
			seed := seeds.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			a := &attended{Problem: attention.Problem{Dtype: of.Dtype, Round: of.round, Batch: 1, Heads: 2, KeyHeads: 1, Queries: 1 + r.Int64N(200), Keys: 1 + r.Int64N(200), Dim: 4 * (1 + r.Int64N(32)), Scale: 0.1, Causal: r.IntN(2) == 1}}
			sms := 132
			if r.IntN(2) == 0 { // for kernels whose warps share keys
				a.Dim, sms = 1+r.Int64N(256), 1+r.IntN(4)
			}
			a.draw(r)
			for _, x := range [][]float64{a.q, a.k, a.v} {
				for range r.IntN(4) {
					x[r.IntN(len(x))] = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[r.IntN(3)]
				}
			}
			if r.IntN(2) == 0 { // scores of about 2^90, equal in a row
				for i := range a.q {
					a.q[i] = 0x1p45
				}
				for i := range a.k {
					a.k[i] = 0x1p45
				}
			}
			a.compute()
			in := a.operands()
			tolerance := a.tolerance(of.epsilon)
			for _, dev := range append(tested(t), kernels.HostDevice()) {
				dev.SMs = min(dev.SMs, sms)
				if err := a.check(dev, attention.Forward{Problem: a.Problem, Out: true}, in, []kernels.Dtype{a.Dtype}, [][]float64{a.out}, [][]float64{a.sizes}, tolerance); err != nil {
					t.Errorf("seed %d, %v on %s: %+v: %v", seed, of, dev.Name, a.Problem, err)
				}
			}
		}
	}
}

// NaN in keys that no query sees has no effect on gradients in float32.
func TestGradientsOfUnseen(t *testing.T) {
	seeds := testutil.Random(t)
	for _, of := range []kind{f32, tf32, f64} {
		seed := seeds.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		a := &attended{Problem: attention.Problem{Dtype: of.Dtype, Round: of.round, Batch: 1, Heads: 2, KeyHeads: 1, Queries: 100 + r.Int64N(100), Keys: 70 + r.Int64N(20), Dim: 64 << r.IntN(2), Scale: 0.1, Causal: true}}
		a.draw(r)
		a.Counts = attention.Counts{Dtype: kernels.Int32, Elements: 1}
		seen := a.Keys - 1 - r.Int64N(60)
		a.counts = []float64{float64(seen)}
		clean := *a
		clean.compute()
		for j := seen; j < a.Keys; j++ {
			at := a.row(0, 0, j, a.KeyHeads, a.Keys)
			for c := range a.Dim {
				a.k[at+c] = math.NaN()
			}
		}
		a.compute()
		for i, x := range [][]float64{a.dq, a.dk, a.dv} { // the definition agrees
			for k, v := range [][]float64{clean.dq, clean.dk, clean.dv}[i] {
				if x[k] != v {
					t.Fatalf("seed %d, %v: gradient %d, element %d: got %v, want %v", seed, of, i, k, x[k], v)
				}
			}
		}
		for _, dev := range append(tested(t), kernels.HostDevice()) {
			if err := a.checkAll(dev, of.epsilon); err != nil {
				t.Errorf("seed %d, %v on %s: %+v: %v", seed, of, dev.Name, a.Problem, err)
			}
		}
	}
}

// Weights in gradients are at most 1, however wrong the statistics are: those of huge scores have rounding errors that would overflow. They are NaN where a score is, or where all of a row
// are -Inf.
func TestGreatestWeights(t *testing.T) {
	seeds, draws := testutil.Random(t), 6
	if testing.Short() || tested(t)[0].Memory == 0 {
		draws = 3
	}
	for _, of := range []kind{f32, tf32, f64, bf16, f16} {
		for i := range draws {
			seed := seeds.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			a := drawProblem(r, of, false, i)
			a.Causal = false
			a.draw(r)
			a.Counts, a.counts = attention.Counts{}, nil
			clear(a.q) // weights are all 1 / Keys
			for row := range slices.Chunk(a.k, int(a.Dim)) {
				row[0] = 1
			}
			a.compute()
			var sizes [3][]float64
			for k, x := range [][]float64{a.dq, a.dk, a.dv} {
				sizes[k] = slices.Repeat([]float64{float64(a.Keys) * a.gradientSizes[k]}, len(x))
			}
			out, lse := bytesOfType(a.Dtype, a.out), slices.Repeat([]float64{-200}, len(a.lse))
			switch i % 3 {
			case 1:
				a.q[r.IntN(len(a.q))] = math.NaN()
				a.compute()
			case 2: // scores of a row that are all -Inf, and so is their statistic
				at := a.row(a.Batch-1, a.Heads-1, a.Queries-1, a.Heads, a.Queries)
				a.q[at], lse[len(lse)-1] = math.Copysign(math.Inf(1), -a.Scale), math.Inf(-1)
				a.compute()
			}
			for _, x := range [][]float64{a.dq, a.dv} { // weights that are all 1
				for k := range x {
					x[k] *= float64(a.Keys)
				}
			}
			in := append(a.operands(), bytesOfType(a.statistics(), lse), out, bytesOfType(a.Dtype, a.grad))
			tolerance := a.tolerance(of.epsilon)
			for _, dev := range append(tested(t), kernels.HostDevice()) {
				if err := a.check(dev, attention.Backward{Problem: a.Problem, Q: true, K: true, V: true}, in, []kernels.Dtype{a.Dtype, a.Dtype, a.Dtype}, [][]float64{a.dq, a.dk, a.dv}, sizes[:], tolerance); err != nil {
					t.Errorf("seed %d, draw %d on %s: %+v: %v", seed, i, dev.Name, a.Problem, err)
				}
			}
		}
	}
}

// Keys whose scores are all -Inf have gradients of 0, beside tiles of queries that are not whole.
func TestGradientsOfMasked(t *testing.T) {
	seeds := testutil.Random(t)
	for _, of := range []kind{f32, tf32, f64, bf16, f16} {
		seed := seeds.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		a := &attended{Problem: attention.Problem{Dtype: of.Dtype, Round: of.round, Batch: 1, Heads: 2, KeyHeads: 1, Queries: 65 + r.Int64N(63), Keys: 128, Dim: 64 << r.IntN(2), Scale: 0.1}}
		a.draw(r)
		a.Counts, a.counts = attention.Counts{}, nil
		a.mask(int64(r.IntN(2)))
		var sizes [2][]float64
		for k, x := range [][]float64{a.dk, a.dv} {
			sizes[k] = slices.Repeat([]float64{a.gradientSizes[1+k]}, len(x))
		}
		in := append(a.operands(), bytesOfType(a.statistics(), a.lse), bytesOfType(a.Dtype, a.out), bytesOfType(a.Dtype, a.grad))
		tolerance := a.tolerance(of.epsilon)
		for _, dev := range append(tested(t), kernels.HostDevice()) {
			if err := a.check(dev, attention.Backward{Problem: a.Problem, K: true, V: true}, in, []kernels.Dtype{a.Dtype, a.Dtype}, [][]float64{a.dk, a.dv}, sizes[:], tolerance); err != nil {
				t.Errorf("seed %d, %v on %s: %+v: %v", seed, of, dev.Name, a.Problem, err)
			}
		}
	}
}

// NaN in queries that see no key, and Inf in their gradients, have no effect on gradients of the others, but on tensor cores.
func TestGradientsOfUnseeing(t *testing.T) {
	seeds := testutil.Random(t)
	for _, of := range []kind{f32, f64} {
		seed := seeds.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		a := &attended{Problem: attention.Problem{Dtype: of.Dtype, Batch: 1, Heads: 2, KeyHeads: 1, Queries: 65 + r.Int64N(80), Keys: 65 + r.Int64N(80), Dim: 1 + r.Int64N(100), Scale: 0.1, Causal: r.IntN(2) == 0}}
		a.draw(r)
		a.Counts, a.counts = attention.Counts{Dtype: kernels.Int32, Elements: a.Queries, Row: 1}, make([]float64, a.Queries)
		for t := range a.counts {
			if t%3 > 0 {
				a.counts[t] = float64(1 + r.Int64N(a.Keys))
				continue
			}
			for h := range a.Heads {
				at := a.row(0, h, int64(t), a.Heads, a.Queries)
				a.q[at], a.grad[at] = math.NaN(), math.Inf(1)
			}
		}
		a.compute()
		for _, dev := range append(tested(t), kernels.HostDevice()) {
			if dev.Kind == kernels.GPU && dev.Major > 7 && of == f32 {
				continue
			}
			if err := a.checkAll(dev, of.epsilon); err != nil {
				t.Errorf("seed %d, %v on %s: %+v: %v", seed, of, dev.Name, a.Problem, err)
			}
		}
	}
}

// A row without keys is 0, whatever keys and values hold, in tiles without keys and in others.
func TestRowsWithoutKeys(t *testing.T) {
	seeds := testutil.Random(t)
	for i, of := range []kind{f32, tf32, f64, bf16, f16, f32, f32, f64} { // the last three in rows of any size
		seed := seeds.Uint64()
		a := &attended{Problem: attention.Problem{Dtype: of.Dtype, Round: of.round, Batch: 2, Heads: 4, KeyHeads: 2, Queries: 200, Keys: 150, Dim: 64 << (seed % 2), Scale: 0.1}}
		if i > 4 {
			a.Dim, a.Causal, a.RowsFirst = 1+int64(seed%256), true, i%2 == 1
		}
		if testing.Short() { // two tiles of queries
			a.Queries, a.Keys = 130, 70
		}
		a.draw(rand.New(rand.NewPCG(seed, 0)))
		a.Counts = attention.Counts{Dtype: kernels.Int32, Elements: 2 * a.Queries, Batch: a.Queries, Row: 1}
		a.counts = make([]float64, a.Counts.Elements)
		for i := a.Queries; i < 2*a.Queries; i += 3 { // of the second sequence alone
			a.counts[i] = float64(a.Keys)
		}
		for b := range a.Batch {
			at := a.row(b, 1, 0, a.KeyHeads, a.Keys)
			a.v[at], a.v[at+1] = math.NaN(), math.Inf(1)
		}
		a.compute()
		lse, tolerance := make([]float64, len(a.lse)), 40*of.epsilon
		for i := range lse {
			lse[i] = 10
		}
		in := a.operands()
		for _, dev := range append(tested(t), kernels.HostDevice()) {
			err := a.check(dev, attention.Forward{Problem: a.Problem, Out: true, Statistics: true}, in, []kernels.Dtype{a.Dtype, a.statistics()}, [][]float64{a.out, a.lse}, [][]float64{a.sizes, lse}, tolerance)
			if err != nil {
				t.Errorf("seed %d, %v on %s: %v", seed, of, dev.Name, err)
			}
		}
	}
}

// With more queries than keys, the first queries of a causal problem see no key. A launch stores zeros for their results and gradients, whatever they hold. The draws reach every kernel that
// computes the other queries.
func TestQueriesWithoutKeys(t *testing.T) {
	defer attention.AllUnseen()()
	seeds, launched := testutil.Random(t), map[string]bool{}
	for _, of := range []kind{f32, tf32, f64, bf16, f16} {
		for i := range 8 {
			if testing.Short() && i%4 > 1 {
				continue
			}
			seed := seeds.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			a := drawProblem(r, of, false, i)
			a.Causal, a.Dim, a.Keys = true, []int64{8, 64, 128, 256}[i%4]-8*r.Int64N(2)*(int64(i)%4), 1+r.Int64N(150)
			if a.Scale = 0.1; i > 3 { // rows of any size
				a.Dim = max(1, a.Dim-1-r.Int64N(3))
			}
			switch i {
			case 3, 4:
				a.Batch, a.Keys = 8, 1+r.Int64N(4)
			default:
				a.Keys += 70
			}
			unseen := 1 + r.Int64N(200)
			a.Queries = a.Keys + unseen
			a.draw(r)
			for b := range a.Batch {
				for h := range a.Heads {
					for t := range unseen {
						at := a.row(b, h, t, a.Heads, a.Queries)
						a.q[at+r.Int64N(a.Dim)], a.grad[at+r.Int64N(a.Dim)] = math.NaN(), math.Inf(1)
					}
				}
			}
			a.compute()
			for _, dev := range append(tested(t), kernels.HostDevice()) {
				if dev.Kind == kernels.GPU {
					dev.SMs = min(dev.SMs, 1<<(i%4))
				}
				if err := a.checkAll(dev, of.epsilon); err != nil {
					t.Errorf("seed %d, %v on %s: %+v: %v", seed, of, dev.Name, a.Problem, err)
				}
				for _, planner := range []kernels.Planner{attention.Forward{Problem: a.Problem, Out: true}, attention.Backward{Problem: a.Problem, Q: true, K: true, V: true}} {
					p := testutil.Get[*kernels.Plan](t)(planner.Plan(dev))
					if p.Launches[0].Kernel.Entry != "attention_zeros" {
						t.Errorf("seed %d, %v on %s: no launch of zeros\n%v", seed, of, dev.Name, p)
					}
					for _, l := range p.Launches {
						launched[l.Kernel.Entry] = true
					}
				}
			}
		}
	}
	for _, want := range []string{"any_64_f32", "any_128_f32", "any_256_f32", "few_f32", "double_128_f64", "double_256_f64", "f64", "wgmma_f32", "wgmma_dq_tf32", "mma_128_tf32", "mma_dq_256_bf16", "split_bf16",
		"hopper_64_bf16", "hopper_128_f16", "hopper_gradients_64_f16", "hopper_gradients_128_bf16", "dq_f32", "dq_f64"} {
		if !testing.Short() && !launched["attention_"+want] {
			t.Errorf("no draw launched attention_%s", want)
		}
	}
}

// Attention of 16-bit rows that are not whole pieces of 16 bytes, and its gradients, are as defined where kernels of tensor cores compute them in padded rows, and keys are in sections.
//
// Then the scores of most keys are -Inf, for some queries of all that they see.
func TestPaddedRows(t *testing.T) {
	defer attention.PadGain(0)()
	defer attention.AllUnseen()()
	seeds, launched := testutil.Random(t), map[string]bool{}
	for _, of := range []kind{bf16, f16} {
		for i, dim := range []int64{3, 5, 17, 103, 135, 167, 250, 64} {
			if testing.Short() && i%3 > 0 {
				continue
			}
			seed := seeds.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			a := drawProblem(r, of, false, i)
			a.Dim, a.Scale, a.Queries = dim, 0.1, 17+r.Int64N(284)
			if a.RowsFirst = r.IntN(2) == 0; i%3 == 0 { // q, k and v in one operand
				a.Keys, a.RowsFirst = a.Queries, true
			}
			if testing.Short() {
				a.Queries, a.Keys = min(a.Queries, 70), min(a.Keys, 70)
			}
			sections := i == 2 || i > 5
			if sections { // of keys
				a.Batch, a.Keys, a.RowsFirst = int64(i+2)/4, 260+r.Int64N(150), i == 2
				if i == 6 { // of which some queries see masked ones alone
					a.Causal, a.Queries = true, a.Keys/2+r.Int64N(50)
				}
			}
			a.draw(r)
			if sections {
				a.Counts, a.counts = attention.Counts{}, nil
			}
			a.compute()
			masked := *a
			masked.mask(int64(i % 2))
			for _, dev := range tested(t) {
				if err := a.checkAll(dev, of.epsilon); err != nil {
					t.Errorf("seed %d, %v on %s: %+v: %v", seed, of, dev.Name, a.Problem, err)
				}
				if err := masked.check(dev, attention.Forward{Problem: a.Problem, Out: true}, masked.operands(), []kernels.Dtype{a.Dtype}, [][]float64{masked.out}, [][]float64{masked.sizes}, 4*of.epsilon); err != nil {
					t.Errorf("seed %d, masked, %v on %s: %+v: %v", seed, of, dev.Name, a.Problem, err)
				}
				for _, planner := range []kernels.Planner{attention.Forward{Problem: a.Problem, Out: true}, attention.Backward{Problem: a.Problem, Q: true, K: true, V: true}} {
					for _, l := range testutil.Get[*kernels.Plan](t)(planner.Plan(dev)).Launches {
						launched[l.Kernel.Entry] = true
					}
				}
			}
		}
	}
	for _, want := range []string{"pad", "join", "hopper_64_bf16", "hopper_128_f16", "mma_256_bf16", "mma_dq_256_f16", "mma_dkv_256_bf16", "hopper_gradients_64_f16", "hopper_gradients_128_bf16"} {
		if !launched["attention_"+want] {
			t.Errorf("no draw launched attention_%s", want)
		}
	}
}

// Gradients whose terms many blocks add are those of the definition, twice the same bits: of many tiles of keys, on a device with many SMs and on ones with so few that the keys are in several
// launches.
func TestManyBlocks(t *testing.T) {
	dev := tested(t)[0]
	if testing.Short() || dev.Memory == 0 {
		t.Skip("SKIPPED, NOT TESTED: there is no GPU, or it is a short test")
	}
	seeds := testutil.Random(t)
	for i := range 8 {
		seed := seeds.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		a := &attended{Problem: attention.Problem{Dtype: expr.BF16, Batch: 1, KeyHeads: 1 + r.Int64N(3), Queries: 1 + r.Int64N(1000), Keys: 500 + r.Int64N(700), Dim: 64 << r.Int64N(2), Causal: i%2 == 1}}
		if a.Heads, a.Scale = a.KeyHeads*(1+r.Int64N(2)), 0.1; i%4 > 1 {
			a.Queries = a.Keys
		} else if i%2 == 0 { // for three warpgroups
			a.Queries, a.Dim = 1024+r.Int64N(300), 64
		}
		a.draw(r)
		a.compute()
		dev.SMs = tested(t)[0].SMs
		if i > 3 {
			dev.SMs = 1 + r.IntN(9)
		}
		if err := a.checkAll(dev, 0x1p-8); err != nil {
			t.Errorf("seed %d on %d SMs: %+v: %v", seed, dev.SMs, a.Problem, err)
		}
	}
}

// Strides that are not positive, and one output for gradients that no kernels write there, are errors.
func TestAttentionErrors(t *testing.T) {
	p := attention.Problem{Dtype: expr.BF16, Batch: 1, Heads: 2, KeyHeads: 2, Queries: 8, Keys: 8, Dim: 16, Scale: 1, RowsFirst: true}
	strided, keys := p, p
	strided.In[1] = attention.Strides{Batch: 256, Head: -16, Row: 32}
	keys.Keys = 9
	old := kernels.HostDevice()
	old.Kind, old.Major = kernels.GPU, 8
	for _, c := range []struct {
		dev kernels.Device
		kernels.Planner
	}{
		{kernels.HostDevice(), attention.Forward{Problem: strided, Out: true}},
		{kernels.HostDevice(), attention.Backward{Problem: keys, Q: true, K: true, V: true, Packed: true}},
		{kernels.HostDevice(), attention.Backward{Problem: p, Q: true, K: true, Packed: true}},
		{old, attention.Backward{Problem: p, Q: true, K: true, V: true, Packed: true}},
	} {
		if _, err := c.Plan(c.dev); err == nil {
			t.Errorf("%+v on %s: no error", c.Planner, c.dev.Name)
		}
	}
}

// The stride of an axis of one element does not matter; that of another axis is larger than 0.
func TestStridesOfOne(t *testing.T) {
	r := testutil.Random(t)
	for range 200 {
		extents := [3]int64{1 + r.Int64N(2), 1 + r.Int64N(2), 1 + r.Int64N(2)} // batches, heads, rows
		p := attention.Problem{Batch: extents[0], Heads: extents[1], KeyHeads: extents[1], Queries: extents[2], Keys: extents[2], Dim: 8, Dtype: kernels.Float32, Scale: 1, RowsFirst: r.IntN(2) == 0}
		want, axes := true, [3]int64{256, 64, 16}
		for i, n := range extents {
			if r.IntN(2) == 0 {
				axes[i] = 0
				want = want && n == 1
			}
		}
		if p.RowsFirst {
			axes[1], axes[2] = axes[2], axes[1]
		}
		got, ok := p.Strided(r.IntN(3), []int64{axes[0], axes[1], axes[2], 1})
		if ok != want {
			t.Fatalf("%+v: strides %v are accepted: %v, want %v", p, axes, ok, want)
		}
		if _, err := (attention.Forward{Problem: got, Out: true}).Plan(kernels.HostDevice()); ok && err != nil {
			t.Fatalf("%+v: strides %v: %v", p, axes, err)
		}
	}
}

// The scratch memory for split keys is at most proportional to the SMs, for any number of tiles.
func TestSplitScratch(t *testing.T) {
	r := testutil.Random(t)
	size := func(most float64) int64 { return int64(math.Exp(r.Float64() * math.Log(most+1))) }
	const most = 16 * 4 * (256 + 2) * 4 // for each SM: eight blocks of two tiles, of four rows each
	split := 0
	for range 3000 {
		dev := kernels.Device{Major: 7 + r.IntN(4), SMs: 1 + r.IntN(170), SharedOptin: 96 << 10}
		p := attention.Problem{Dtype: []kernels.Dtype{kernels.Float32, expr.BF16, expr.F16}[r.IntN(3)], Batch: size(1e6), KeyHeads: 1 + r.Int64N(8), Queries: size(16), Keys: size(1e4), Dim: 1 + r.Int64N(256), Scale: 1}
		p.Heads = p.KeyHeads * (1 + r.Int64N(3))
		plan := testutil.Get[*kernels.Plan](t)(attention.Forward{Problem: p, Out: true}.Plan(dev))
		if entry := plan.Launches[0].Kernel.Entry; !strings.HasPrefix(entry, "attention_split") && !strings.HasPrefix(entry, "attention_spread") {
			continue
		}
		if split++; plan.Scratch > most*int64(dev.SMs) {
			t.Errorf("%+v on %d.x of %d SMs: got %d bytes of partial results, want at most %d", p, dev.Major, dev.SMs, plan.Scratch, most*int64(dev.SMs))
		}
	}
	if want := 300; split < want {
		t.Errorf("got %d problems whose keys are split, want %d or more", split, want)
	}
}
