package bench

import (
	"bytes"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// splitCases are functions of two matrices, of rows or of elements for no axes.
var splitCases = []struct {
	name        string
	f           func(b *expr.Builder, x []expr.Value) []expr.Value
	shape, axes []int
	perRow      []bool
}{
	{"map", gate, []int{2048, 768}, nil, []bool{false}},
	{"map of few", gate, []int{3, 72}, nil, []bool{false}},
	{"layer norm", normalized, []int{2048, 768}, []int{1}, []bool{false, true}},
	{"layer norm of an odd number of rows", normalized, []int{1003, 512}, []int{1}, []bool{false, true}},
	{"layer norm of short rows", normalized, []int{1003, 64}, []int{1}, []bool{false, true}},
	{"layer norm of long rows", normalized, []int{40, 50304}, []int{1}, []bool{false, true}},
	{"sums of columns", columnSums, []int{8192, 768}, []int{0}, []bool{false, true}},
	{"sums of few rows", columnSums, []int{64, 3072}, []int{0}, []bool{false, true}},
}

func normalized(b *expr.Builder, x []expr.Value) []expr.Value {
	mean := func(x expr.Value) expr.Value {
		return b.Apply(expr.Mul, b.Apply(expr.RowSum, x), b.Constant(expr.Float32, 1.0/768))
	}
	centered := b.Apply(expr.Sub, x[0], mean(x[0]))
	variance := mean(b.Apply(expr.Mul, centered, centered))
	return []expr.Value{b.Apply(expr.Mul, x[1], b.Apply(expr.Div, centered, b.Apply(expr.Sqrt, variance))), variance}
}

func columnSums(b *expr.Builder, x []expr.Value) []expr.Value {
	return []expr.Value{b.Apply(expr.Mul, x[0], x[1]), b.Apply(expr.RowSum, x[0])}
}

// Outputs that are stored as splits are those stored as elements, to the bit: splits and their ranges encode every element, and products of them have the bits of
// products of the elements.
func TestSplitsOnGPU(t *testing.T) {
	dev, r := device0(t), testutil.Random(t)
	if dev.Major < 8 {
		t.Skipf("%s stores no splits", dev.Name)
	}
	for _, c := range splitCases {
		b := expr.NewBuilder(expr.Float32, expr.Float32)
		f := testutil.Get[expr.Func](t)(b.Func(c.f(b, []expr.Value{b.Operand(0), b.Operand(1)})...))
		n, views := kernels.Count(c.shape), []codegen.View{codegen.Dense(c.shape), codegen.Dense(c.shape)}
		split := make([]codegen.Split, len(c.perRow))
		split[0] = codegen.SplitInOrder
		var plain, stored *kernels.Plan
		if c.axes == nil {
			plain = testutil.Get[*kernels.Plan](t)(codegen.Map(dev, f, c.shape, views...))
			stored = testutil.Get[*kernels.Plan](t)(codegen.MapSplit(dev, f, c.shape, split, views...))
		} else {
			plain = testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, f, c.shape, c.axes, c.perRow, views...))
			stored = testutil.Get[*kernels.Plan](t)(codegen.RowsSplits(dev, f, c.shape, c.axes, c.perRow, split, views...))
		}
		specials := []float64{1, 1e-37, 1e-44, math.MaxFloat32, math.Inf(-1), math.NaN()}
		if testing.Short() {
			specials = specials[r.IntN(len(specials)):][:1]
		}
		for _, special := range specials {
			in := make([][]byte, 2)
			for k := range in {
				x := make([]float64, n)
				for i := range x {
					x[i] = r.NormFloat64()
				}
				if k == 1 {
					x[r.IntN(len(x))] = special
				}
				in[k] = exprtest.Pack(expr.Float32, x)
			}
			want, got := make([]byte, plain.Out), make([]byte, stored.Out)
			testutil.Do(t, Run(0, plain, in, want))
			testutil.Do(t, Run(0, stored, in, got))
			if len(c.perRow) > 1 && !bytes.Equal(want[plain.Parts[1]:], got[stored.Parts[1]:]) {
				t.Errorf("%s, %v: other values of rows", c.name, special)
			}
			checkSplits(t, c.name, kernels.Elements[float32](want[:4*n]), kernels.Elements[uint16](got[:6*n]), kernels.Elements[uint32](got[6*n:])[:2*codegen.Ranges(stored)])
			if len(c.shape) == 2 && c.shape[1] < 1000 {
				productOfSplits(t, dev, c.name, c.shape, want[:4*n], got[:codegen.SplitBytes(n)], codegen.Ranges(stored))
			}
		}
	}
}

// checkSplits checks that splits and ranges are those of elements.
func checkSplits(t *testing.T, name string, x []float32, splits []uint16, ranges []uint32) {
	number := func(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }
	most, least, others := uint32(0), uint32(0x7f800000), false
	for i, v := range x {
		a, b, c := splits[i], splits[len(x)+i], splits[2*len(x)+i]
		bits := math.Float32bits(v)
		size := bits &^ (1 << 31)
		is := false
		switch {
		case size >= 0x7f800000: // the first alone counts
			is, others = number(a) == v || v != v && number(a) != number(a), true
		case size >= 0x7f7f8000: // BF16 rounds it to infinity
			is = a == uint16(bits>>16)&0x8000|0x7f80 && b == uint16(bits)
		case size < 18<<23: // below 2^-109
			is = uint32(a)<<16|uint32(b) == bits
		default:
			is = number(a)+(number(b)+number(c)) == v && math.Abs(float64(v-number(a))) <= math.Abs(float64(v))/256
		}
		if !is {
			t.Fatalf("%s: element %d, %v, has splits %x, %x, %x", name, i, v, a, b, c)
		}
		if size > 0 && size < 0x7f800000 {
			most, least = max(most, size), min(least, size)
		}
	}
	gotMost, gotLeast, gotOthers := uint32(0), uint32(0x7f800000), false
	for i := 0; i < len(ranges); i += 2 {
		gotMost, gotLeast, gotOthers = max(gotMost, ranges[i]&^(1<<31)), min(gotLeast, ranges[i+1]), gotOthers || ranges[i]>>31 > 0
	}
	if gotMost != most || gotLeast != least || gotOthers != others {
		t.Errorf("%s: got a range of %x, %x, others %v, want %x, %x, %v", name, gotMost, gotLeast, gotOthers, most, least, others)
	}
}

// productOfSplits compares a product of a matrix of stored splits, and one of its transpose, with products of the splits that a launch makes of the elements.
func productOfSplits(t *testing.T, dev kernels.Device, name string, shape []int, x, splits []byte, ranges int64) {
	rows, cols := int64(shape[0]), int64(shape[1])
	const n = 136
	for _, p := range []gemm.Product{{Batch: 1, M: rows, K: cols, N: n}, {Batch: 1, M: cols, K: rows, N: n, A: gemm.Operand{Trans: true}}} {
		p.Dtype, p.A.Form, p.B.Form = kernels.Float32, gemm.BF16Split, gemm.BF16Split
		w := uniform(4*p.K*n, 1)
		var prepared [2][]byte
		for i, as := range p.Prepares(gemm.BF16Split) {
			by := testutil.Get[*kernels.Plan](t)(as.Plan(dev))
			prepared[i] = make([]byte, by.Out)
			testutil.Do(t, Run(0, by, [][]byte{[2][]byte{x, w}[i]}, prepared[i]))
		}
		want, got := make([]byte, 4*p.M*n), make([]byte, 4*p.M*n)
		testutil.Do(t, Run(0, testutil.Get[*kernels.Plan](t)(p.Plan(dev)), [][]byte{x, w, prepared[0], prepared[1]}, want))
		p.A.Ranges = ranges
		testutil.Do(t, Run(0, testutil.Get[*kernels.Plan](t)(p.Plan(dev)), [][]byte{splits, w, prepared[1]}, got))
		if !bytes.Equal(want, got) {
			t.Errorf("%s: %v of stored splits has other bits", name, p)
		}
	}
}

// Maps store the splits that convolutions read: the splits, the ranges and the elements beside them are those of the same map without splits, and outputs, images and filters computed from them have the bits
// of those computed from splits that a launch makes.
func TestImageSplitsOnGPU(t *testing.T) {
	dev, r := device0(t), testutil.Random(t)
	if dev.Major != 9 || dev.Minor != 0 {
		t.Skipf("%s has no convolutions of splits", dev.Name)
	}
	b := expr.NewBuilder(expr.Float32, expr.Float32, expr.Float32)
	y := b.Apply(expr.Mul, b.Apply(expr.Sub, b.Operand(0), b.Operand(1)), b.Operand(2))
	f := testutil.Get[expr.Func](t)(b.Func(y, y))
	draws := 20
	if testing.Short() {
		draws = 3
	}
	for draw := 0; draw < draws; {
		side := gemm.ConvAxis{In: 2 * (2 + r.Int64N(16)), Size: 1 + 2*r.Int64N(2), Stride: 1, Dilation: 1}
		side.Before, side.After = side.Size/2, side.Size/2
		conv := gemm.Conv{Dtype: kernels.Float32, Images: 1 + r.Int64N(100), Channels: 8 * (1 + r.Int64N(24)), Filters: 8 * (1 + r.Int64N(24)), Groups: 1, Rows: side, Columns: side, Result: gemm.ConvResult(draw % 3)}
		plain := conv
		operand := 0 // images or gradients w.r.t. outputs
		if conv.Result == gemm.ConvFilters {
			operand = r.IntN(2)
		}
		split := conv.Splits(dev)[operand]
		if products := conv.Images * conv.Channels * conv.Filters * side.In * side.In * side.Size * side.Size; split == (gemm.ConvSplit{}) || testing.Short() && products > 3e8 { // checkers take minutes for more
			continue
		}
		draw++
		shape := []int{int(split.Count), int(split.Rows), int(split.Cols)}
		views := []codegen.View{codegen.Dense(shape), {Elements: split.Rows, Strides: []int{0, 1, 0}}, {Elements: split.Rows, Strides: []int{0, 1, 0}}}
		elements := testutil.Get[*kernels.Plan](t)(codegen.Map(dev, f, shape, views...))
		stored := testutil.Get[*kernels.Plan](t)(codegen.MapSplit(dev, f, shape, []codegen.Split{codegen.Unsplit, codegen.SplitChannelsLast}, views...))
		n := kernels.Count(shape)
		in := [][]byte{uniform(4*n, draw), uniform(4*split.Rows, draw+100), uniform(4*split.Rows, draw+200)}
		if special := []float32{math.MaxFloat32, 1e-37, 1e-44, float32(math.Inf(1)), float32(math.NaN())}; testing.Short() {
			kernels.Elements[float32](in[0])[r.Int64N(n)] = special[0] // in each of three results
		} else if r.IntN(2) == 0 {
			kernels.Elements[float32](in[0])[r.Int64N(n)] = special[r.IntN(len(special))]
		}
		want, got := make([]byte, elements.Out), make([]byte, stored.Out)
		testutil.Do(t, Run(0, elements, in, want))
		testutil.Do(t, Run(0, stored, in, got))
		if !bytes.Equal(want[:4*n], got[:4*n]) {
			t.Errorf("%v: other elements beside splits", shape)
		}
		splits := got[stored.Parts[1]:][:codegen.SplitBytes(n)]
		last := make([]float32, n)
		for i, x := range kernels.Elements[float32](want[:4*n]) {
			image, pixel := int64(i)/split.Cols/split.Rows, int64(i)%split.Cols
			last[(image*split.Cols+pixel)*split.Rows+int64(i)/split.Cols%split.Rows] = x
		}
		checkSplits(t, stored.Op, last, kernels.Elements[uint16](splits[:6*n]), kernels.Elements[uint32](splits[6*n:])[:2*codegen.Ranges(stored)])
		conv.Split[operand], plain.Split[operand], conv.Ranges[operand] = true, true, codegen.Ranges(stored)
		by, given := testutil.Get[*kernels.Plan](t)(plain.Plan(dev)), testutil.Get[*kernels.Plan](t)(conv.Plan(dev))
		made := make([]byte, split.Bytes())
		testutil.Do(t, Run(0, testutil.Get[*kernels.Plan](t)(split.Plan(dev)), [][]byte{want[:4*n]}, made))
		operands := [][]byte{nil, nil}
		operands[operand], operands[1-operand] = want[:4*n], uniform(by.Inputs[1-operand], draw+300)
		result, same := make([]byte, by.Out), make([]byte, given.Out)
		testutil.Do(t, Run(0, by, append(operands[:2:2], made), result))
		operands[operand] = splits
		testutil.Do(t, Run(0, given, operands, same))
		if !bytes.Equal(result, same) {
			t.Errorf("%v of splits that a map has stored has other bits", conv)
		}
	}
}

// Clusters store elements while they read the operands of their sums: elements are those of a map, also as splits, and sums those of a launch without elements, to the bit.
func TestStreamedOnGPU(t *testing.T) {
	dev, r := device0(t), testutil.Random(t)
	b := expr.NewBuilder(expr.Float32, expr.Float32)
	x, y := b.Operand(0), b.Operand(1)
	z := b.Apply(expr.Mul, x, y)
	sums := []expr.Value{b.Apply(expr.RowSum, z), b.Apply(expr.RowMax, x)}
	f, alone, elements := testutil.Get[expr.Func](t)(b.Func(append([]expr.Value{z}, sums...)...)), testutil.Get[expr.Func](t)(b.Func(sums...)), testutil.Get[expr.Func](t)(b.Func(z))
	for _, c := range []struct {
		images, channels, pixels int
	}{{8, 4, 9000}, {3, 24, 16000 + 4*r.IntN(100)}, {16, 130, 2500 + r.IntN(100)}, {40, 200, 1000 + 4*r.IntN(100)}, {64, 300, 512}, {2, 140, 70000 + r.IntN(100)}} {
		shape := []int{c.images, c.channels, c.pixels}
		n, axes, views := kernels.Count(shape), []int{0, 2}, []codegen.View{codegen.Dense(shape), codegen.Dense(shape)}
		in := [][]byte{uniform(4*n, 1), uniform(4*n, 2)}
		run := func(p *kernels.Plan, err error) (*kernels.Plan, []byte) {
			t.Helper()
			testutil.Do(t, err)
			out := make([]byte, p.Out)
			testutil.Do(t, Run(0, p, in, out))
			return p, out
		}
		_, want := run(codegen.Map(dev, elements, shape, views...))
		reduced, ofRows := run(codegen.Rows(dev, alone, shape, axes, []bool{true, true}, views...))
		for _, split := range []codegen.Split{codegen.Unsplit, codegen.SplitInOrder} {
			p, err := codegen.RowsSplits(dev, f, shape, axes, []bool{false, true, true}, []codegen.Split{split, codegen.Unsplit, codegen.Unsplit}, views...)
			if err != nil && split != codegen.Unsplit { // not in vectors, or before compute capability 8.0
				continue
			}
			p, got := run(p, err)
			for k := range 2 {
				if size := 4 * int64(c.channels); !bytes.Equal(got[p.Parts[1+k]:][:size], ofRows[reduced.Parts[k]:][:size]) {
					t.Errorf("%v: other reductions %d beside elements", shape, k)
				}
			}
			if split != codegen.Unsplit {
				checkSplits(t, p.Op, kernels.Elements[float32](want[:4*n]), kernels.Elements[uint16](got[:6*n]), kernels.Elements[uint32](got[6*n:])[:2*codegen.Ranges(p)])
			} else if !bytes.Equal(got[:4*n], want[:4*n]) {
				t.Errorf("%v: other elements beside reductions", shape)
			}
		}
	}
}
