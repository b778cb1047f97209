package gemm

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// biased returns a product with a row or an element added for each matrix, or for all.
func biased(t *testing.T, r *rand.Rand, p Product) Product {
	shape := []int{int(p.Batch), int(p.M), int(p.N)}
	v := []codegen.View{
		{Elements: p.N, Strides: []int{0, 0, 1}},
		{Elements: p.Batch * p.N, Strides: []int{shape[2], 0, 1}},
		codegen.Dense(shape),
	}[r.IntN(3)]
	p, ok := p.With(testutil.Get[expr.Func](t)(expr.Parse("c + x", p.Dtype, "c", "x")), v)
	if !ok && !p.dot() {
		t.Fatalf("%+v: the bias %v is no epilogue", p, v)
	}
	return p
}

// Every product of operands of up to 2^36 elements has launches that a GPU can make; a larger one has them or is an error.
func TestHugeProducts(t *testing.T) {
	r := testutil.Random(t)
	size := func(most float64) int64 { return int64(math.Exp(r.Float64() * math.Log(most+1))) }
	const cases = 4000
	counts := map[string]int{}
	for range cases {
		p := Product{Dtype: []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)]}
		extents := []*int64{&p.Batch, &p.M, &p.N, &p.K}
		r.Shuffle(len(extents), func(i, k int) { extents[i], extents[k] = extents[k], extents[i] })
		for i, most := range [4]float64{1 << 44, []float64{1, 40, 1 << 20}[r.IntN(3)], []float64{1, 40}[r.IntN(2)], []float64{1, 40}[r.IntN(2)]} {
			*extents[i] = size(most)
		}
		p.A.Shared = r.IntN(4) == 0
		if p.A.Trans, p.B.Trans = r.IntN(2) == 0, r.IntN(2) == 0; p.Dtype == kernels.Float32 {
			p.Round = kernels.Precision(r.IntN(4))
		}
		if batch, m, n, k := float64(p.Batch), float64(p.M), float64(p.N), float64(p.K); batch*max(m*n, m*k, k*n) > 1<<58 {
			continue
		}
		most := max(p.Batch*p.M*p.N, p.Batch*p.M*p.K, p.Batch*p.K*p.N)
		if r.IntN(3) == 0 {
			p = biased(t, r, p)
		}
		for _, dev := range productDevices {
			plan, err := p.Plan(dev)
			if err == nil {
				err = plan.Check(dev)
			}
			switch {
			case err == nil && len(plan.Launches) > 1 && p.Batch > 1<<31:
				counts["parts"]++
			case err == nil && most > 1<<31:
				counts["one launch"]++
			case err != nil && most <= 1<<36:
				t.Errorf("%s, %d x %d x %d x %d: %v", dev.Name, p.Batch, p.M, p.K, p.N, err)
			case err != nil:
				if counts["errors"]++; !strings.Contains(err.Error(), "in launches of at most 2147483647 blocks") {
					t.Errorf("%s, %d x %d x %d x %d: got the error %v", dev.Name, p.Batch, p.M, p.K, p.N, err)
				}
			}
		}
	}
	for _, what := range []string{"parts", "one launch", "errors"} {
		if counts[what] < 40 {
			t.Errorf("got %v, want 40 or more of each kind", counts)
		}
	}
}

// Convolutions of up to 2^32 elements of a tensor have launches that a GPU can make; larger ones, and those of very many phases, have them or are errors.
func TestHugeConvs(t *testing.T) {
	r := testutil.Random(t)
	size := func(most ...float64) int64 {
		return int64(math.Exp(r.Float64() * math.Log(most[r.IntN(len(most))]+1)))
	}
	axis := func() ConvAxis {
		a := ConvAxis{In: size(3, 300, 1<<20), Size: size(1, 9, 1000), Stride: size(1, 3, 1000), Dilation: size(1, 2, 1000)}
		if reach := (a.Size - 1) * a.Dilation; r.IntN(2) == 0 {
			a.Before, a.After = r.Int64N(reach+1), r.Int64N(reach+1)
		}
		return a
	}
	const cases, most, want = 20000, 1 << 32, 300
	counts := map[string]int{}
	for range cases {
		v := Conv{Dtype: kernels.Float32, Images: size(1, 256, 1<<30), Channels: size(1, 256, 1<<25), Filters: size(1, 256, 1<<25), Groups: 1, Rows: axis(), Columns: axis(), Result: ConvResult(r.IntN(3))}
		if r.IntN(4) == 0 {
			v.Groups = size(1 << 20)
			v.Channels, v.Filters = v.Groups*size(1, 1, 20), v.Groups*size(1, 1, 20)
		}
		if v.Round = kernels.Precision(r.IntN(4)); r.IntN(3) == 0 {
			v.Dtype, v.Round = kernels.Float64, kernels.FullPrecision
		}
		dev := append(productDevices, kernels.HostDevice())[r.IntN(len(productDevices)+1)]
		if v.check(dev) != nil {
			continue
		}
		start := time.Now()
		plan, err := v.Plan(dev)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%v on %s: took %v to plan", v, dev.Name, took)
		}
		sizes := v.elements()
		largest := max(sizes[ConvOutput], sizes[ConvImages], sizes[ConvFilters])
		switch {
		case err != nil && (largest <= most && v.Rows.Stride*v.Columns.Stride <= 9 || !strings.Contains(err.Error(), "want") && !strings.Contains(err.Error(), "at most")):
			t.Errorf("%s: got the error %v", dev.Name, err)
		case err != nil:
			counts["errors"]++
		case plan.Check(dev) != nil:
			t.Errorf("%v on %s: %v", v, dev.Name, plan.Check(dev))
		case largest > 1<<31:
			counts["huge"]++
		default:
			counts["others"]++
		}
	}
	if counts["huge"] < want || counts["others"] < want || counts["errors"] < want/30 {
		t.Errorf("got %v, want %d or more that are huge and others, and %d errors", counts, want, want/30)
	}
}

// The launches of parts of a batch write the bits of one launch.
func TestParts(t *testing.T) {
	r := testutil.Random(t)
	for range 300 {
		p := Product{Dtype: []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)], Batch: 2 + r.Int64N(20), M: 1 + r.Int64N(5), N: 2 + r.Int64N(5), K: 1 + r.Int64N(9)}
		p.A.Trans, p.B.Trans, p.A.Shared = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(4) == 0
		if r.IntN(3) == 0 {
			p.B.Matrix = p.K*p.N + r.Int64N(3)
		}
		if r.IntN(2) == 0 {
			p = biased(t, r, p)
		}
		dev := productDevices[r.IntN(len(productDevices))]
		whole, parts := testutil.Get[*kernels.Plan](t)(p.Plan(dev)), newPlan(p)
		p.problem(dev).emitParts(parts, 1+r.Int64N(p.Batch))
		p.finish(parts)
		var in [][]byte
		for _, n := range whole.Inputs {
			b := make([]byte, n)
			for i := range n / p.Dtype.Size() { // integers, so that sums are exact
				if v := float64(r.IntN(9)); p.Dtype == kernels.Float32 {
					kernels.Elements[float32](b)[i] = float32(v)
				} else {
					kernels.Elements[float64](b)[i] = v
				}
			}
			in = append(in, b)
		}
		got, want := make([]byte, whole.Out), make([]byte, whole.Out)
		testutil.Do(t, whole.Run(in, want, nil))
		testutil.Do(t, parts.Run(in, got, nil))
		testutil.Do(t, parts.Check(dev))
		if !bytes.Equal(got, want) {
			t.Errorf("%+v on %s: %v differs from %v", p, dev.Name, parts, whole)
		}
	}
}
