package suite

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"github.com/stheno-ml/stheno/kernels/versions"
	"github.com/stheno-ml/stheno/kernels/window"
)

// ofIntegers are plans of kernels by element types that the cases of ops do not have.
func ofIntegers(t *testing.T) (plans []*kernels.Plan) {
	dev := opspec.Devices()[2]
	add := func(p *kernels.Plan, err error) {
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	for _, dt := range []kernels.Dtype{kernels.Uint8, kernels.Int32, kernels.Int64, expr.BF16} {
		add(basic.Pick(dev, dt, kernels.Int32, []int{5, 7}, 1, 3))
		add(basic.GatherBy(dev, dt, kernels.Int32, []int{5, 7}, 0, 3))
		if dt == kernels.Int32 || dt == kernels.Int64 {
			add(basic.CumSum(dev, dt, []int{100, 100}, 0, false))
			add(basic.CumSum(dev, dt, []int{100, 100}, 1, false))
			add(basic.CumSum(dev, dt, []int{1, 10_000}, 1, false))
			add(basic.CumSum(dev, dt, []int{1, 100_000}, 1, false))
		}
	}
	rows := basic.Rows{Dtype: kernels.Uint8, Shape: []int{5, 7}, Axis: 1, Count: 3, Positions: 1}
	add(rows.Update(dev, false))
	add(rows.Update(dev, true))
	add(rows.Read(dev))
	for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
		add(basic.PickAdjoint(dev, dt, kernels.Int64, []int{50, 700}, 1, 30))
		add(basic.ScatterBy(dev, dt, kernels.Int32, []int{50304, 768}, 0, 8192))
	}
	return plans
}

// shown are plans that are no ops': notebooks show them or graphs of Gorgonia's ops have
// them, and tests of package cudaops run them on a GPU.
func shown(t *testing.T) (plans []*kernels.Plan) {
	for _, variant := range versions.IncrementVariants() {
		p, err := versions.Increment(variant, 4, 256)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	plans = append(plans, ofIntegers(t)...)
	for _, by := range []kernels.Precision{kernels.BF16, kernels.F16} {
		operand := gemm.Operand{Form: gemm.Form(by), Trans: true}
		p, err := gemm.Product{Dtype: kernels.Float32, Batch: 1, M: 1, N: 50304, K: 768, A: gemm.Operand{Form: operand.Form}, B: operand, Round: by}.Plan(opspec.Devices()[2])
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
		for _, rows := range []int64{1, 3, 1000} {
			for _, n := range []int64{5, 3000, 200000} {
				p, err := basic.Categorical(opspec.Devices()[2], dt, basic.Draws{Rows: rows, N: n, Temperature: 1, K: 1, P: rows})
				if err != nil {
					t.Fatal(err)
				}
				k, err := basic.TopK(opspec.Devices()[2], dt, rows, n, min(n, 50))
				if err != nil {
					t.Fatal(err)
				}
				plans = append(plans, p, k)
			}
		}
		p, err := basic.CumSum(opspec.Devices()[2], dt, []int{1, 10_000}, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
		plans = append(plans, onWindows(t, dt)...)
		plans = append(plans, versions.Ripple(dt, 3, 2), versions.RippleRacy(dt, 3, 2), versions.DotPartials(dt, 1000))
		for _, barrier := range []versions.Barrier{versions.BarrierNone, versions.BarrierBlock} {
			plans = append(plans, versions.Iterate(opspec.Devices()[2], dt, 64, 2, false, versions.IterateBy{Barrier: barrier}))
		}
	}
	for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64, kernels.Bool} {
		for _, inner := range []int{5, 6, 8} {
			p, err := basic.Gather(opspec.Devices()[2], dt, []int{10, inner}, 0, 7)
			if err != nil {
				t.Fatal(err)
			}
			if plans = append(plans, p); !dt.IsFloat() {
				continue
			}
			for _, rows := range []int{2, 1000} { // parts of the indices; all of them
				if p, err = basic.Scatter(opspec.Devices()[2], dt, []int{rows, inner}, 0, 20_000); err != nil {
					t.Fatal(err)
				}
				plans = append(plans, p)
			}
		}
	}
	for transposes := range 4 { // forms that TestMatMulForms reaches otherwise
		for _, s := range [][4]int64{
			{1, 2000, 2000, 2000}, {1, 4096, 4096, 4096}, {1, 4096, 512, 10}, {1, 128, 10, 512}, {1, 512, 10, 4096}, {1, 512, 512, 512},
			{1, 4096, 4096, 1}, {1, 10000, 10, 10}, {1, 10000, 3, 3}, {1000, 5, 6, 7}, {1, 4000, 1, 4000}, {1, 1, 10, 10000}, {12, 1, 64, 1024},
		} {
			for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
				plans = append(plans, products(t, opspec.Devices()[2], kernels.FullPrecision, dt, s, transposes)...)
			}
		}
		plans = append(plans, products(t, opspec.Devices()[1], kernels.FullPrecision, kernels.Float32, [4]int64{1, 4096, 4096, 4096}, transposes)...)
	}
	return plans
}

// onWindows are plans on windows of every kind, which ops of Gorgonia's become.
func onWindows(t *testing.T, dt kernels.Dtype) (plans []*kernels.Plan) {
	plan := testutil.Get[*kernels.Plan](t)
	for _, dev := range opspec.Devices() {
		for size := 1; size <= 5; size++ {
			a := window.WindowAxis{In: 9, Size: size, Stride: 2, Dilation: 1, Before: 1}
			w := window.Windows{Rows: a, Columns: a}
			plans = append(plans, plan(window.Im2Col(dev, dt, 2, 3, w)), plan(window.Col2Im(dev, dt, 2, 3, w)),
				plan(window.MaxPool(dev, dt, 6, w)), plan(window.MaxPoolDiff(dev, dt, 6, w)),
				plan(window.AveragePool(dev, dt, 6, w, 4)), plan(window.AveragePoolDiff(dev, dt, 6, w, 4)))
		}
		many := window.WindowAxis{In: 9, Size: 5, Stride: 1, Dilation: 1} // around an element
		w := window.Windows{Rows: many, Columns: many}
		plans = append(plans, plan(window.Col2Im(dev, dt, 2, 3, w)))
		near := window.WindowAxis{In: 9, Size: 3, Stride: 1, Dilation: 1}
		w = window.Windows{Rows: near, Columns: near}
		plans = append(plans, plan(window.MaxPool(dev, dt, 6, w)), plan(window.MaxPoolDiff(dev, dt, 6, w)),
			plan(window.AveragePool(dev, dt, 6, w, 4)), plan(window.AveragePoolDiff(dev, dt, 6, w, 4)))
		pair := window.WindowAxis{In: 9, Size: 2, Stride: 2, Dilation: 1}
		for i := range 4 {
			pooling := window.MaxPooling{Dtype: kernels.Float32, Images: 2, Channels: 4, Windows: window.Windows{Rows: pair, Columns: pair}, Gradient: i%2 > 0, ReLU: true, ChannelsLast: [2]bool{i > 1, i > 1}}
			plans = append(plans, plan(pooling.Plan(dev)))
		}
		wide := window.WindowAxis{In: 200, Size: 100, Stride: 1, Dilation: 1} // too many around an element for a tile
		w = window.Windows{Rows: wide, Columns: wide}
		plans = append(plans, plan(window.MaxPoolDiff(dev, dt, 1, w)), plan(window.Col2Im(dev, dt, 1, 1, w)))
	}
	return plans
}

// ofHalves are plans of attention of 16-bit operands, of those rounded to TF32 and of rows whose keys warps share, and a version of convolution, which the tests of the packages attention and cudaops-bench run.
func ofHalves(t *testing.T) (plans []*kernels.Plan) {
	plan := testutil.Get[*kernels.Plan](t)
	for _, dev := range append(opspec.Devices(), kernels.HostDevice()) {
		tiled := attention.Problem{Dtype: expr.BF16, Batch: 2, Heads: 4, KeyHeads: 4, Queries: 100, Keys: 200, Dim: 64, Scale: 0.125}
		plans = append(plans, plan(versions.Attention(dev, 2, tiled)))
		a := gemm.ConvAxis{In: 14, Size: 3, Stride: 1, Dilation: 1}
		plans = append(plans, plan(versions.Conv(dev, 1, gemm.Conv{Dtype: kernels.Float32, Images: 2, Channels: 8, Filters: 8, Groups: 1, Rows: a, Columns: a})))
		for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
			for _, dim := range []int64{61, 125, 250} {
				p := attention.Problem{Dtype: dt, Batch: 2, Heads: 32, KeyHeads: 32, Queries: 20, Keys: 1000, Dim: dim, Scale: 0.125}
				plans = append(plans, plan(attention.Forward{Problem: p, Out: true}.Plan(dev)))
			}
		}
		for dt, round := range map[kernels.Dtype]kernels.Precision{expr.BF16: kernels.FullPrecision, expr.F16: kernels.FullPrecision, kernels.Float32: kernels.TF32} {
			for _, dim := range []int64{64, 128, 256} {
				p := attention.Problem{Dtype: dt, Round: round, Batch: 2, Heads: 4, KeyHeads: 2, Queries: 100, Keys: 200, Dim: dim, Scale: 0.125}
				plans = append(plans, plan(attention.Forward{Problem: p, Out: true, Statistics: true}.Plan(dev)), plan(attention.Backward{Problem: p, Q: true, K: true, V: true}.Plan(dev)))
			}
			many := attention.Problem{Dtype: dt, Batch: 2, Heads: 4, KeyHeads: 2, Queries: 2000, Keys: 200, Dim: 64, Scale: 0.125}
			plans = append(plans, plan(attention.Forward{Problem: many, Out: true}.Plan(dev)))
			odd := many
			odd.Dim = 63
			sections := odd
			sections.Queries, sections.Keys = 100, 4000
			many.Causal, many.Queries = true, 4000
			plans = append(plans, plan(attention.Forward{Problem: many, Out: true}.Plan(dev)), plan(attention.Forward{Problem: odd, Out: true}.Plan(dev)), plan(attention.Forward{Problem: sections, Out: true}.Plan(dev)))
			for _, keys := range []int64{2000, 8000} { // of one query
				for _, dim := range []int64{64, 63} {
					p := attention.Problem{Dtype: dt, Batch: 1, Heads: 4, KeyHeads: 2, Queries: 1, Keys: keys, Dim: dim, Scale: 0.125}
					plans = append(plans, plan(attention.Forward{Problem: p, Out: true}.Plan(dev)))
				}
			}
		}
	}
	return plans
}

// onWarpgroups are plans of the versions of MatMul for compute capability 9.0, which package cudaops-bench runs.
func onWarpgroups(t *testing.T) (plans []*kernels.Plan) {
	for _, dev := range []kernels.Device{opspec.Devices()[2], kernels.HostDevice()} {
		p, err := versions.WarpgroupCeiling(dev, 256)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
		for v := versions.TiledMatMuls + 1; v <= len(versions.Docs("MatMul")); v++ {
			p, err := versions.WarpgroupMatMul(dev, v, 256, kernels.FullPrecision)
			if err != nil {
				t.Fatal(err)
			}
			plans = append(plans, p)
		}
	}
	return plans
}

// products returns the plan of a product of batch, rows, columns and terms s, on a GPU the plans of all candidates; transposes counts the operands that are stored
// transposed in binary, A above B.
func products(t *testing.T, dev kernels.Device, by kernels.Precision, dt kernels.Dtype, s [4]int64, transposes int) []*kernels.Plan {
	p := gemm.Product{Dtype: dt, Batch: s[0], M: s[1], N: s[2], K: s[3], Round: by, A: gemm.Operand{Trans: transposes >= 2}, B: gemm.Operand{Trans: transposes%2 == 1}}
	if dev.Kind != kernels.GPU {
		return []*kernels.Plan{testutil.Get[*kernels.Plan](t)(p.Plan(dev))}
	}
	_, _, plans, err := gemm.Candidates(p, dev)
	testutil.Do(t, err)
	return plans
}

// inPrecisions are plans of products in reduced precision, in all forms: package cudaops-bench runs smaller ones.
func inPrecisions(t *testing.T) (plans []*kernels.Plan) {
	for _, dev := range append(opspec.Devices(), kernels.HostDevice()) {
		for _, by := range []kernels.Precision{kernels.TF32, kernels.BF16, kernels.F16} {
			for _, s := range [][2]int64{{1024, 1024}, {4096, 512}, {4095, 4095}, {4096, 4096}, {8192, 768}} {
				for i := range 4 {
					plans = append(plans, products(t, dev, by, kernels.Float32, [4]int64{1, s[0], s[1], s[0]}, i)...)
				}
			}
			for _, s := range [][4]int64{{1, 128, 512, 784}, {1, 512, 512, 512}, {1, 100, 128, 625}, {30, 130, 130, 200}} { // small ones
				plans = append(plans, products(t, dev, by, kernels.Float32, s, 0)...)
			}
		}
	}
	return plans
}

// ofFewTerms are plans of products of few terms and of products of few rows, which package cudaops-bench runs.
func ofFewTerms(t *testing.T) (plans []*kernels.Plan) {
	for _, dev := range opspec.Devices() {
		for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
			for _, s := range [][3]int64{{4096, 4097, 7}, {4096, 4097, 24}, {24, 4096, 4097}, {600_000, 25, 3}} {
				plans = append(plans, products(t, dev, kernels.FullPrecision, dt, [4]int64{1, s[0], s[1], s[2]}, 0)...)
			}
			for transposes := range 4 {
				plans = append(plans, products(t, dev, kernels.FullPrecision, dt, [4]int64{1, 4096, 4097, 64}, transposes)...)
				plans = append(plans, products(t, dev, kernels.FullPrecision, dt, [4]int64{1, 1001, 1, 1001}, transposes)...) // rows that begin anywhere, times a vector
			}
			plans = append(plans, products(t, dev, kernels.FullPrecision, dt, [4]int64{1, 160717, 1, 19}, 0)...) // short rows, times a vector
			// of many matrices
			for _, s := range [][3]int64{{2, 3, 709}, {6, 10, 1235}} {
				plans = append(plans, products(t, dev, kernels.FullPrecision, dt, [4]int64{2400, s[0], s[1], s[2]}, 1)...)
			}
			for _, rows := range []int64{4, 8, 12, 16, 90, 120} {
				for transposes := range 2 {
					plans = append(plans, products(t, dev, kernels.FullPrecision, dt, [4]int64{1, rows, 400_000, 100}, transposes)...)
				}
			}
		}
	}
	return plans
}

// convolved returns plans of convolutions of each precision on tensor cores, and of channels with a filter each: channels, side, filters, and the side, the stride and the padding of a filter.
func convolved(t *testing.T) (plans []*kernels.Plan) {
	t.Helper()
	dev := kernels.Device{Name: "H100", Major: 9, SMs: 132, SharedOptin: 227 << 10, Memory: 80 << 30}
	for _, c := range [][6]int64{{64, 56, 64, 3, 1}, {256, 14, 256, 3, 1}, {512, 7, 512, 3, 1}, {200, 30, 100, 2, 1}, {256, 56, 512, 1, 2}, {64, 56, 64, 1, 1}, {512, 56, 512, 3, 1}, {256, 56, 64, 1, 1}, {64, 28, 16, 3, 1}, {1, 28, 32, 3, 1}, {3, 32, 64, 3, 1}, {1, 28, 32, 3, 2}, {3, 32, 64, 3, 2}, {3, 64, 64, 7, 2, 3}, {8, 37, 64, 5, 2}} {
		a := gemm.ConvAxis{In: c[1], Size: c[3], Stride: c[4], Dilation: 1, Before: c[5], After: c[5]}
		for i := range 12 {
			v := gemm.Conv{Dtype: kernels.Float32, Images: 64, Channels: c[0], Filters: c[2], Groups: 1, Rows: a, Columns: a, Result: gemm.ConvResult(i / 4), Round: []kernels.Precision{kernels.FullPrecision, kernels.TF32, kernels.BF16, kernels.F16}[i%4]}
			for _, c := range testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(v, dev)) {
				plans = append(plans, c.Plan)
			}
		}
	}
	for i := range 9 { // tiles with a halo, and images of one channel whose outputs have their channels last
		a := gemm.ConvAxis{In: 32, Size: 3, Stride: 1, Dilation: 1, Before: 1, After: 1}
		v := gemm.Conv{Dtype: kernels.Float32, Images: 64, Channels: 64, Filters: 64, Groups: 1, Rows: a, Columns: a, Result: gemm.ConvResult(i / 3)}
		switch i % 3 {
		case 1:
			v.Round, v.ChannelsLast = kernels.TF32, [2]bool{true, true}
		case 2:
			v.Channels, v.Round, v.ChannelsLast = 1, kernels.TF32, [2]bool{gemm.ConvOutput: true}
		}
		for _, c := range testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(v, dev)) {
			plans = append(plans, c.Plan)
		}
	}
	same := gemm.ConvAxis{In: 14, Size: 3, Stride: 1, Dilation: 1, Before: 1, After: 1} // images that a generated kernel has stored as splits
	stored := gemm.Conv{Dtype: kernels.Float32, Images: 64, Channels: 64, Filters: 64, Groups: 1, Rows: same, Columns: same, Split: [2]bool{true}, Ranges: [2]int64{100}}
	plans = append(plans, testutil.Get[*kernels.Plan](t)(stored.Plan(dev)))
	for i := range 6 { // few filters and few channels in float64
		a := gemm.ConvAxis{In: 56, Size: 3, Stride: 1, Dilation: 1}
		v := gemm.Conv{Dtype: kernels.Float64, Images: 1, Channels: 1 + int64(i/3)*31, Filters: 8, Groups: 1, Rows: a, Columns: a, Result: gemm.ConvResult(i % 3)}
		plans = append(plans, testutil.Get[*kernels.Plan](t)(v.Plan(dev)))
	}
	tap := gemm.ConvAxis{In: 56, Size: 1, Stride: 2, Dilation: 1} // a product among zeros in float64
	for _, c := range testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(gemm.Conv{Dtype: kernels.Float64, Images: 2, Channels: 8, Filters: 8, Groups: 1, Rows: tap, Columns: tap, Result: gemm.ConvImages}, dev)) {
		plans = append(plans, c.Plan)
	}
	for i := range 12 {
		a := gemm.ConvAxis{In: 28, Size: 3, Stride: 1 + int64(i/6), Dilation: 1}
		v := gemm.Conv{Dtype: []kernels.Dtype{kernels.Float32, kernels.Float64}[i%2], Images: 64, Channels: 256, Filters: 256, Groups: 256, Rows: a, Columns: a, Result: gemm.ConvResult(i / 2 % 3)}
		plans = append(plans, testutil.Get[*kernels.Plan](t)(v.Plan(dev)))
	}
	return plans
}

// summed returns all plans that sums of some shapes, outer x r x inner, choose among.
func summed() (plans []*kernels.Plan) {
	dev := kernels.Device{Name: "H100", Major: 9, SMs: 132, L2: 50 << 20, Memory: 80 << 30}
	for _, s := range [][3]int64{{1, 1 << 20, 1}, {1, 1 << 16, 100}, {1, 1 << 13, 1 << 12}, {40, 1 << 12, 10}, {3, 1000, 1000}, {3, 1000, 1001}, {1, 1 << 22, 2}} {
		for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
			_, _, list := reduce.Candidates(dev, dt, s[0], s[1], s[2])
			plans = append(plans, list...)
		}
	}
	for _, s := range [][]int{{784, 2, 1000, 2, 1000, 10}, {784, 2, 1000, 2, 1000, 100}, {64, 2, 64, 2, 64, 1000}} { // passes over sums in float64
		plans = append(plans, reduce.Sum(dev, kernels.Float32, s, []int{0, 2, 4}, false))
	}
	return plans
}

// Every entry point of the images is launched by a case or its derivative, which [Launches] checks, or by a plan of this file: none
// escapes the tests.
func TestEntryPoints(t *testing.T) {
	others := slices.Concat(shown(t), ofHalves(t), onWarpgroups(t), inPrecisions(t), ofFewTerms(t), convolved(t), summed())
	if err := kernels.Check(versions.Library(), others...); err != nil {
		t.Error(err)
	}
	launched := map[string]bool{}
	for _, p := range append(plansOf(t, everyKind()), others...) {
		for _, l := range p.Launches {
			launched[l.Kernel.Image.Name()+": "+l.Kernel.Entry] = true
		}
	}
	for _, library := range []*kernels.Library{kernels.Builtin(), versions.Library()} {
		m := testutil.Get[*manifest.Manifest](t)(library.Manifest())
		for _, source := range m.Sources {
			// Kernels of Gorgonia's own machine; parts of generated ones.
			if maintain.OnTag[source.Stem] != "" || source.Stem == "math" {
				continue
			}
			for _, e := range testutil.Get[[]string](t)(library.Entries(source.Stem)) {
				if name := library.Image(source.Stem).Name() + ": " + e; !launched[name] {
					t.Errorf("%s is launched by no case", name)
				}
			}
		}
	}
}
