package gemm

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// meets calls f for the indices of outputs, images and filters of all terms.
func (v Conv) meets(f func(y, x, w int64)) {
	channels, filters, oh, ow := v.Channels/v.Groups, v.Filters/v.Groups, v.Rows.Out(), v.Columns.Out()
	taps := v.Rows.Size * v.Columns.Size
	for y := range v.elements()[ConvOutput] {
		q, p, k, n := y%ow, y/ow%oh, y/ow/oh%v.Filters, y/ow/oh/v.Filters
		a0, b0 := p*v.Rows.Stride-v.Rows.Before, q*v.Columns.Stride-v.Columns.Before
		for c := range channels {
			plane, w := (n*v.Channels+k/filters*channels+c)*v.Rows.In, (k*channels+c)*taps
			for i := range v.Rows.Size {
				for j := range v.Columns.Size {
					if a, b := a0+i*v.Rows.Dilation, b0+j*v.Columns.Dilation; a >= 0 && a < v.Rows.In && b >= 0 && b < v.Columns.In {
						f(y, (plane+a)*v.Columns.In+b, w)
					}
					w++
				}
			}
		}
	}
}

// drawConv draws a convolution of at most about 2^20 multiply-adds.
func drawConv(r *rand.Rand) Conv {
	size := func(most int64) int64 { return int64(math.Pow(float64(most+1), r.Float64())) }
	for {
		groups := size(8)
		v := Conv{Dtype: kernels.Float64, Images: size(20), Groups: groups, Channels: groups * size(64), Filters: groups * size(64), Result: ConvResult(r.IntN(3))}
		for _, a := range []*ConvAxis{&v.Rows, &v.Columns} {
			*a = ConvAxis{Size: size(7), Stride: size(6), Dilation: size(4)}
			a.Before, a.After = r.Int64N(a.reach()), r.Int64N(a.reach())
			a.In = max(a.reach()-a.Before-a.After, 1) + size(30) - 1
		}
		if r.IntN(4) == 0 { // each channel has a filter of its own
			v.Channels, v.Filters = groups, groups
		}
		if v.elements()[ConvOutput]*v.Channels/v.Groups*v.Rows.Size*v.Columns.Size < 1<<20 {
			return v
		}
	}
}

// TestConv compares the Go bodies of plans for several devices with sums over all terms.
func TestConv(t *testing.T) {
	r := testutil.Random(t)
	devices := []kernels.Device{kernels.HostDevice(), {Name: "small", Major: 7, SMs: 3}, {Name: "large", Major: 9, SMs: 132, SharedOptin: 227 << 10}}
	for range 150 {
		v := drawConv(r)
		sizes := v.elements()
		var operands [3][]float64
		for i, n := range sizes {
			operands[i] = make([]float64, n)
			for k := range operands[i] {
				operands[i][k] = r.NormFloat64()
			}
		}
		want := make([]float64, sizes[v.Result])
		v.meets(func(y, x, w int64) {
			switch v.Result {
			case ConvOutput:
				want[y] += operands[ConvImages][x] * operands[ConvFilters][w]
			case ConvImages:
				want[x] += operands[ConvOutput][y] * operands[ConvFilters][w]
			case ConvFilters:
				want[w] += operands[ConvOutput][y] * operands[ConvImages][x]
			}
		})
		in := [][]byte{kernels.Bytes(operands[convOperands[v.Result][0]]), kernels.Bytes(operands[convOperands[v.Result][1]])}
		for _, dev := range devices {
			got := make([]float64, len(want))
			for i := range got {
				got[i] = math.NaN()
			}
			p, err := v.Plan(dev)
			if err == nil {
				err = p.Run(in, kernels.Bytes(got), nil)
			}
			if err != nil {
				t.Fatalf("%v on %s: %v", v, dev.Name, err)
			}
			for i := range want {
				if !(math.Abs(got[i]-want[i]) < 1e-10) {
					t.Fatalf("%v on %s: got %v at %d, want %v", v, dev.Name, got[i], i, want[i])
				}
			}
		}
	}
}

// TestConvSpread compares the Go bodies of plans by products of gradients w.r.t. images at a stride with those of float64.
func TestConvSpread(t *testing.T) {
	r, dev := testutil.Random(t), kernels.Device{Name: "GPU", Major: 9, SMs: 132, SharedOptin: 227 << 10}
	var plans []*kernels.Plan
	for len(plans) < 40 {
		axis := func() ConvAxis {
			return ConvAxis{In: 1 + r.Int64N(20), Size: 1, Stride: 1 + r.Int64N(4), Dilation: 1 + r.Int64N(2)}
		}
		v := Conv{Dtype: kernels.Float64, Images: 1 + r.Int64N(4), Channels: 1 + r.Int64N(40), Filters: 1 + r.Int64N(40), Groups: 1, Rows: axis(), Columns: axis(), Result: ConvImages}
		if !v.spread() {
			continue
		}
		candidates := testutil.Get[map[string]ConvCandidate](t)(ConvCandidates(v, dev))
		c, ok := candidates["product"]
		if v.Channels*v.Rows.Out()*v.Columns.Out() == 1 || v.Filters == 1 || !ok { // products of other packages
			continue
		}
		plans = append(plans, c.Plan)
		y, w := make([]float64, v.elements()[ConvOutput]), make([]float64, v.elements()[ConvFilters])
		for _, x := range [][]float64{y, w} {
			for i := range x {
				x[i] = r.NormFloat64()
			}
		}
		want, got := make([]float64, v.elements()[ConvImages]), slices.Repeat([]float64{math.NaN()}, int(v.elements()[ConvImages]))
		in := [][]byte{kernels.Bytes(y), kernels.Bytes(w)}
		testutil.Do(t, testutil.Get[*kernels.Plan](t)(v.Plan(kernels.HostDevice())).Run(in, kernels.Bytes(want), nil))
		testutil.Do(t, c.Plan.Run(in, kernels.Bytes(got), nil))
		for i := range want {
			if !(math.Abs(got[i]-want[i]) < 1e-12*(1+math.Abs(want[i]))*float64(v.Filters)) {
				t.Fatalf("%v: got %v at %d, want %v", v, got[i], i, want[i])
			}
		}
	}
	checkLaunches(t, plans...)
}

// TestConvFew: plans of convolutions of few channels compute on the host what plans for the host do, and are chosen for layers of networks.
func TestConvFew(t *testing.T) {
	r, dev := testutil.Random(t), kernels.Device{Name: "large", Major: 9, SMs: 132, Memory: 80 << 30, SharedOptin: 227 << 10}
	layer := func(images, channels, filters, side int64, result ConvResult) Conv {
		a := ConvAxis{In: side, Size: 3, Stride: 1, Dilation: 1, Before: 1, After: 1}
		return Conv{Dtype: kernels.Float32, Images: images, Channels: channels, Filters: filters, Groups: 1, Rows: a, Columns: a, Result: result}
	}
	stem := func(images, filters, side int64, result ConvResult) Conv {
		v := layer(images, 3, filters, side, result)
		v.Rows = ConvAxis{In: side, Size: 7, Stride: 2, Dilation: 1, Before: 3, After: 3}
		v.Columns = v.Rows
		return v
	}
	var plans []*kernels.Plan
	for i := range 48 {
		v := layer(1+r.Int64N(9), 1+2*r.Int64N(2), 8+r.Int64N(90), 1+r.Int64N(12), []ConvResult{ConvOutput, ConvFilters}[i%2])
		v.Rows.Stride, v.Columns.Dilation = 1+r.Int64N(2), 1+r.Int64N(2)
		v.Columns.In += 2
		last := i%3 == 0
		if i%6 == 5 {
			v = stem(1+r.Int64N(5), 8+r.Int64N(20), 1+r.Int64N(40), ConvResult(i/6%3))
			v.Rows.In, v.Columns.After = 1+r.Int64N(40), 3+r.Int64N(3)
		}
		if v.Round = kernels.TF32; last {
			v.Filters = arith.RoundUp(v.Filters, fewFilters)
			v.ChannelsLast[ConvOutput] = true
		}
		plain := v
		plain.Round, plain.ChannelsLast = kernels.FullPrecision, [2]bool{}
		host := testutil.Get[*kernels.Plan](t)(plain.Plan(kernels.HostDevice()))
		var in, exact [][]byte
		for i, bytes := range host.Inputs {
			x := make([]float32, bytes/4)
			for k := range x {
				x[k] = float32(r.IntN(9) - 4) // sums are exact
			}
			exact = append(exact, kernels.Bytes(x))
			if i == 1 && last && v.Result == ConvFilters {
				x = transposedPixels(x, v.Filters, v.Rows.Out()*v.Columns.Out())
			}
			in = append(in, kernels.Bytes(x))
		}
		want := make([]byte, host.Out)
		testutil.Do(t, host.Run(exact, want, nil))
		if last && v.Result == ConvOutput {
			want = kernels.Bytes(transposedPixels(kernels.Elements[float32](want), v.Filters, v.Rows.Out()*v.Columns.Out()))
		}
		count := len(plans)
		for m := range v.methods(dev) {
			if !strings.HasPrefix(m.name, "few channels") {
				continue
			}
			p := testutil.Get[*kernels.Plan](t)(v.planBy(m))
			got := make([]byte, p.Out)
			testutil.Do(t, p.Run(in, got, nil))
			if !slices.Equal(kernels.Elements[float32](got), kernels.Elements[float32](want)) {
				t.Fatalf("%v: the plan of %s computes something else on the host", v, m.name)
			}
			plans = append(plans, p)
		}
		if len(plans) == count {
			t.Fatalf("%v: got no kernels for few channels", v)
		}
	}
	checkLaunches(t, plans...)
	for _, v := range []Conv{layer(100, 1, 32, 28, ConvOutput), layer(2048, 1, 32, 28, ConvFilters), layer(512, 3, 64, 32, ConvOutput), layer(512, 3, 64, 32, ConvFilters), stem(64, 64, 224, ConvOutput), stem(64, 64, 224, ConvImages), stem(64, 64, 224, ConvFilters)} {
		if m := v.choose(dev); !strings.HasPrefix(m.name, "few channels") {
			t.Errorf("%v: got %s, want few channels", v, m.name)
		}
	}
	for _, v := range []Conv{layer(100, 2, 32, 28, ConvOutput), layer(100, 1, 7, 28, ConvOutput), layer(100, 1, 32, 28, ConvImages)} {
		if _, _, ok := v.few(dev); ok {
			t.Errorf("%v: got kernels for few channels, want none", v)
		}
	}
}

// TestConvProducts compares the Go bodies of products that compute convolutions with sums over all terms, of whole numbers, whose sums are exact.
func TestConvProducts(t *testing.T) {
	r, took := testutil.Random(t), map[string]int{}
	for range 60 {
		v := drawConv(r)
		v.Dtype, v.Groups, v.Round = []kernels.Dtype{kernels.Float32, kernels.Float32, kernels.Float64}[r.IntN(3)], 1, kernels.Precision(r.IntN(4))
		for _, a := range []*ConvAxis{&v.Rows, &v.Columns} {
			*a = ConvAxis{In: a.In, Size: 1, Stride: 1, Dilation: a.Dilation}
		}
		for _, dev := range []kernels.Device{{Name: "V100", Major: 7, SMs: 80, SharedOptin: 96 << 10}, {Name: "H100", Major: 9, SMs: 132, SharedOptin: 227 << 10}} {
			x, ok := v.product(dev)
			if !ok {
				continue
			}
			options := x.options()
			for _, o := range []option{options[0], options[r.IntN(len(options))]} { // the chosen one, and any
				if took[o.name]++; v.Dtype == kernels.Float32 {
					checkProduct[float32](t, r, v, o)
				} else {
					checkProduct[float64](t, r, v, o)
				}
			}
		}
	}
	if t.Log(took); len(took) < 8 {
		t.Errorf("got %d kernels, want 8 or more", len(took))
	}
}

func checkProduct[T kernels.Float](t *testing.T, r *rand.Rand, v Conv, o option) {
	t.Helper()
	var operands [3][]T
	for i, n := range v.elements() {
		for range n {
			operands[i] = append(operands[i], T(r.IntN(7)-3))
		}
	}
	want, got := make([]T, len(operands[v.Result])), slices.Repeat([]T{T(math.NaN())}, len(operands[v.Result]))
	v.meets(func(y, x, w int64) {
		at := [3]int64{y, x, w}
		from := convOperands[v.Result]
		want[at[v.Result]] += operands[from[0]][at[from[0]]] * operands[from[1]][at[from[1]]]
	})
	in := [][]byte{kernels.Bytes(operands[convOperands[v.Result][0]]), kernels.Bytes(operands[convOperands[v.Result][1]])}
	testutil.Do(t, testutil.Get[*kernels.Plan](t)(v.planBy(v.byProduct(o, 0))).Run(in, kernels.Bytes(got), nil))
	if !slices.Equal(got, want) {
		t.Errorf("%v by %v: got %v, want %v", v, o, got, want)
	}
}

// drawHalo draws a convolution that a kernel of conv_halo.cu computes.
func drawHalo(r *rand.Rand, c convCandidate) Conv {
	for {
		pad := func() ConvAxis {
			return ConvAxis{Size: 3, Stride: 1, Dilation: 1, Before: r.Int64N(3), After: r.Int64N(3)}
		}
		v := Conv{Dtype: kernels.Float32, Round: kernels.TF32, Images: 1 + r.Int64N(3), Channels: 8 * (1 + r.Int64N(10)), Filters: 8 * (1 + r.Int64N(10)), Groups: 1, Rows: pad(), Columns: pad(), Result: ConvResult(r.IntN(2)), ChannelsLast: [2]bool{true, true}}
		v.Rows.In, v.Columns.In = 3+r.Int64N(10), 3+r.Int64N(20)
		if c.filters {
			v.Result = ConvFilters
		}
		if c.form == BF16Split {
			v.Round, v.ChannelsLast = kernels.FullPrecision, [2]bool{}
		}
		w, ok := v.windows(c.form)
		if _, fits := c.haloTiles(w, v, 132); ok && fits {
			return v
		}
	}
}

// TestConvTensor compares the Go bodies of the kernels for tensor cores with those of float64. Some operands have NaN, and those of splits numbers that would need scaling, or infinities.
func TestConvTensor(t *testing.T) {
	r := testutil.Random(t)
	dev := kernels.Device{Name: "H100", Major: 9, SMs: 132}
	took, groups, prepared := map[Form]int{}, [3]int{}, 0
	ways := map[string]int{"several phases": 0, "filters without sums": 0, "folded taps": 0, "folded taps, channels last": 0,
		"tiles with a halo, of conv_halo_f32": 0, "tiles with a halo, of conv_halo_tf32": 0, "tiles with a halo, of conv_halo_kept_tf32": 0, "tiles with a halo, of conv_halo_filters_f32": 0}
	var plans []*kernels.Plan
	for draw := range 400 {
		v := drawConv(r)
		if v.Dtype = kernels.Float32; r.IntN(2) == 0 {
			v.Channels, v.Filters, v.Groups = v.Channels/v.Groups, v.Filters/v.Groups, 1
		} else if r.IntN(2) == 0 { // pixels of a group are multiples of 16 bytes
			v.Filters = v.Groups * arith.RoundUp(v.Filters/v.Groups, 8)
		}
		if r.IntN(2) == 0 {
			v.Rows.Stride, v.Columns.Stride = 1, 1
		}
		c := convTable[r.IntN(len(convTable))]
		if c.halo != haloNone {
			v = drawHalo(r, c)
			ways["tiles with a halo, of "+c.kernel.Entry]++
		}
		if _, ok := v.windows(c.form); !ok || c.filters != (v.Result == ConvFilters) {
			continue
		}
		if last := v; c.halo == haloNone && c.form != BF16Split && r.IntN(2) == 0 {
			last.Round = kernels.Precision(c.form)
			last.Channels, last.Filters, last.ChannelsLast = arith.RoundUp(v.Channels, 8), arith.RoundUp(v.Filters, 8), [2]bool{r.IntN(2) == 0, r.IntN(2) == 0}
			if r.IntN(2) == 0 { // rows that need no zeros between them
				last.Columns.Dilation, last.Columns.Before, last.Columns.After = 1, 0, 0
				if r.IntN(2) == 0 { // taps that fit in a K slice together
					last.Channels, last.Columns.Size, last.Columns.In = 8, 3, max(last.Columns.In, 3)
				}
			}
			if last.TakesChannelsLast(dev) {
				v = last
			}
		}
		if given := v; c.form == TF32 || c.form == BF16 || c.form == F16 {
			if given.Round = kernels.Precision(c.form); r.IntN(2) == 0 && given.takesPrepared(dev) {
				v = given
				v.Prepared = true
				prepared++
			}
		}
		if took[c.form]++; v.Groups > 1 {
			groups[v.Result]++
		}
		w, _ := v.windows(c.form)
		for way, ok := range map[string]bool{"several phases": w.phased(), "filters without sums": c.halo == haloNone && c.cut(w, int64(dev.SMs)).direct, "folded taps": w.inner > 1 && !w.last[1], "folded taps, channels last": w.inner > 1 && w.last[1]} {
			if ok {
				ways[way]++
			}
		}
		wide := v
		wide.Round, wide.ChannelsLast, wide.Prepared = kernels.FullPrecision, [2]bool{}, false
		wide.Dtype = kernels.Float64
		sizes := v.elements()
		in, exact := make([][]byte, 2), make([][]byte, 2)
		for i, of := range convOperands[v.Result] {
			x, y := make([]float32, sizes[of]), make([]float64, sizes[of])
			for k := range x {
				x[k] = float32(r.NormFloat64())
				if draw%4 == 0 && i == 0 && k == 0 {
					if x[k] = float32(math.NaN()); c.form == BF16Split {
						x[k] = []float32{0x1p-130, 0x1p115, float32(math.Inf(1)), x[k]}[r.IntN(4)]
					}
				}
				y[k] = float64(x[k])
			}
			in[i], exact[i] = kernels.Bytes(x), kernels.Bytes(y)
			if v.last(of) {
				halves, moved := make([]uint16, len(x)), make([]float32, len(x))
				half, ok := v.Round.Half()
				for k, x := range x {
					halves[lastAt(v, of, int64(k))], moved[lastAt(v, of, int64(k))] = expr.ToHalf(half, x), x
				}
				if in[i] = kernels.Bytes(moved); ok {
					in[i] = kernels.Bytes(halves)
				}
			}
		}
		got, want := make([]float32, sizes[v.Result]), make([]float64, sizes[v.Result])
		halves := make([]uint16, len(got))
		for i := range got {
			got[i] = float32(math.NaN())
		}
		if v.Prepared {
			p := testutil.Get[*kernels.Plan](t)(v.prepares().Plan(dev))
			filters := make([]byte, p.Out)
			testutil.Do(t, p.Run(in[1:], filters, nil))
			in[1], plans = filters, append(plans, p)
		}
		p, err := v.planBy(convMethod{emit: func(p *kernels.Plan, args convArgs) error { return c.emit(p, v, args, dev) }})
		if err == nil {
			plans = append(plans, p)
			if err = p.Run(in, kernels.Bytes(got)[:p.Out], nil); v.last(v.Result) {
				moved := slices.Clone(got)
				half, ok := v.Round.Half()
				copy(kernels.Bytes(halves), kernels.Bytes(got))
				for k := range got {
					if got[k] = moved[lastAt(v, v.Result, int64(k))]; ok {
						got[k] = expr.FromHalf(half, halves[lastAt(v, v.Result, int64(k))])
					}
				}
			}
		}
		if err == nil {
			p, err = wide.Plan(kernels.HostDevice())
		}
		if err == nil {
			err = p.Run(exact, kernels.Bytes(want), nil)
		}
		if err != nil {
			t.Fatalf("%v: %v", v, err)
		}
		tolerance := map[Form]float64{BF16Split: 1e-4, TF32: 0.1, BF16: 1, F16: 0.1}[c.form]
		for i := range want {
			if math.IsNaN(want[i]) != math.IsNaN(float64(got[i])) || math.Abs(float64(got[i])-want[i]) > tolerance*max(1, math.Abs(want[i])) {
				t.Fatalf("%v by %s: got %v at %d, want %v", v, c.kernel.Entry, got[i], i, want[i])
			}
		}
	}
	checkLaunches(t, plans...)
	for _, f := range []Form{BF16Split, TF32, BF16, F16} {
		if took[f] == 0 {
			t.Errorf("no convolution of operands in the form %v was drawn", f)
		}
	}
	for way, n := range ways {
		if n == 0 {
			t.Errorf("no convolution with %s was drawn: %v", way, ways)
		}
	}
	if t.Log(ways); prepared < 10 {
		t.Errorf("%d convolutions had prepared filters, want 10 or more", prepared)
	}
	for result, n := range groups {
		if n == 0 {
			t.Errorf("no %v of groups was drawn", ConvResult(result))
		}
	}
}

// lastAt returns where element k of a tensor is if it has channels last.
func lastAt(v Conv, of ConvResult, k int64) int64 {
	channels := v.Channels
	if of == ConvOutput {
		channels = v.Filters
	}
	image := v.elements()[of] / v.Images
	plane := image / channels
	return k/image*image + k%plane*channels + k%image/plane
}

// TestConvTiles compares the Go bodies of all plans of conv_mma.cu with those of float64.
func TestConvTiles(t *testing.T) {
	r := testutil.Random(t)
	var plans []*kernels.Plan
	took := map[string]int{}
	for n := 0; n < 80 || len(took) < 8 && n < 2000; n++ { // until each of the eight kernels was taken
		v, dev := drawConv(r), productDevices[r.IntN(len(productDevices))]
		if !hasConvTiles(dev) {
			continue
		}
		v.Dtype, v.Round = kernels.Float32, kernels.Precision(1+r.IntN(3))
		wide := v
		wide.Dtype, wide.Round = kernels.Float64, kernels.FullPrecision
		sizes := v.elements()
		in, exact := make([][]byte, 2), make([][]byte, 2)
		for i, of := range convOperands[v.Result] {
			x, y := make([]float32, sizes[of]), make([]float64, sizes[of])
			for k := range x {
				x[k] = float32(r.NormFloat64())
				y[k] = float64(v.Round.Round(x[k]))
			}
			in[i], exact[i] = kernels.Bytes(x), kernels.Bytes(y)
		}
		want := make([]float64, sizes[v.Result])
		p := testutil.Get[*kernels.Plan](t)(wide.Plan(kernels.HostDevice()))
		testutil.Do(t, p.Run(exact, kernels.Bytes(want), nil))
		for c := range v.tilings(dev) {
			p := testutil.Get[*kernels.Plan](t)(v.planBy(convMethod{emit: func(p *kernels.Plan, args convArgs) error { return c.emit(p, v, args) }}))
			plans = append(plans, p)
			took[c.kernels[v.Result/ConvFilters].Entry]++
			if got := p.Launches[0].Shared; got > dev.SharedOptin {
				t.Errorf("%v by %s on %s: got %d bytes of shared memory for a block, want %d at most", v, c.entry(v), dev.Name, got, dev.SharedOptin)
			}
			got := slices.Repeat([]float32{float32(math.NaN())}, len(want))
			testutil.Do(t, p.Run(in, kernels.Bytes(got), nil))
			for i := range want {
				if !(math.Abs(float64(got[i])-want[i]) <= 1e-4*max(1, math.Abs(want[i]))) {
					t.Fatalf("%v by %s: got %v at %d, want %v", v, c.entry(v), got[i], i, want[i])
				}
			}
		}
	}
	checkLaunches(t, plans...)
	if len(took) != 8 {
		t.Errorf("got plans of %v, want each of 8 kernels", took)
	}
}

// TestConvTilesDevices: a layer of many multiply-adds is computed by conv_mma.cu on each device that kernels for tensor cores are compiled for, except on 9.0, where conv_hopper.cu takes it.
func TestConvTilesDevices(t *testing.T) {
	axis := ConvAxis{In: 28, Size: 3, Stride: 1, Dilation: 1, Before: 1, After: 1}
	for _, dev := range productDevices {
		for round := kernels.FullPrecision; round <= kernels.F16; round++ {
			v := Conv{Dtype: kernels.Float32, Round: round, Images: 16, Channels: 60, Filters: 70, Groups: 1, Rows: axis, Columns: axis, Result: ConvOutput}
			want := hasMMA(dev) && round != kernels.FullPrecision
			if got := strings.HasPrefix(v.choose(dev).name, "conv_mma"); got != want && !isHopper(dev) {
				t.Errorf("%s, %v: got %s, want conv_mma.cu: %v", dev.Name, round, v.choose(dev).name, want)
			}
		}
	}
}

// TestConvErrors: a problem that kernels do not compute is an error that says why.
func TestConvErrors(t *testing.T) {
	axis := ConvAxis{In: 8, Size: 3, Stride: 1, Dilation: 1}
	good := Conv{Dtype: kernels.Float32, Images: 2, Channels: 4, Filters: 6, Groups: 2, Rows: axis, Columns: axis}
	host := kernels.HostDevice()
	if _, err := good.Plan(host); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(v *Conv){
		"want float32 or float64":                                     func(v *Conv) { v.Dtype = kernels.Int32 },
		"got 0 images, 4 channels, 6 filters and 2 groups, want 1 to": func(v *Conv) { v.Images = 0 },
		"channels and filters that the groups":                        func(v *Conv) { v.Groups = 4 },
		"got a filter over 9 elements of 8":                           func(v *Conv) { v.Rows.Size = 9 },
		"outputs would see padding alone":                             func(v *Conv) { v.Columns.After = 3 },
		"got ConvResult(9)":                                           func(v *Conv) { v.Result = 9 },
		"stride 0":                                                    func(v *Conv) { v.Rows.Stride = 0 },
		"padding of -1":                                               func(v *Conv) { v.Rows.Before = -1 },
		"got [33554432 8 8] pixels of all images, want":               func(v *Conv) { v.Images = 1 << 25 },
		"elements of filters, want a product of at most 1073741824":   func(v *Conv) { v.Filters, v.Channels, v.Groups = 1<<16, 1<<16, 1 },
		"got prepared filters":                                        func(v *Conv) { v.Prepared = true },
		"got tensors with channels last":                              func(v *Conv) { v.ChannelsLast[ConvImages] = true },
		"a filter over 2147483647 elements of ":                       func(v *Conv) { v.Rows.Dilation = 1<<30 - 1 },
	} {
		v := good
		change(&v)
		if _, err := v.Plan(host); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := good.Plan(kernels.Device{}); err == nil || !strings.Contains(err.Error(), "got a device of 0 SMs") {
		t.Errorf("got %v, want an error about the SMs", err)
	}
}

// TestConvLayersInTF32: the model expects layers of few channels in TF32, whose outputs have their channels last, to take no longer than in float32.
func TestConvLayersInTF32(t *testing.T) {
	r, dev := testutil.Random(t), kernels.Device{Name: "large", Major: 9, SMs: 132, Memory: 80 << 30, SharedOptin: 227 << 10}
	for range 300 {
		a := ConvAxis{In: 7 + r.Int64N(60), Size: 3, Stride: 1 + r.Int64N(2), Dilation: 1, Before: 1, After: 1}
		v := Conv{Dtype: kernels.Float32, Images: 64 + r.Int64N(200), Channels: 1 + 2*r.Int64N(2), Filters: 16 << r.IntN(6), Groups: 1, Rows: a, Columns: a, Result: ConvResult(2 * r.IntN(2))}
		last := v
		last.Round, last.ChannelsLast[ConvOutput] = kernels.TF32, true
		if !last.TakesChannelsLast(dev) {
			t.Fatalf("%v takes no channels last", v)
		}
		if x, y := v.choose(dev), last.choose(dev); y.us > 1.1*x.us {
			t.Errorf("%v: TF32 %s takes %.1f us, float32 %s %.1f us", v, y.name, y.us, x.name, x.us)
		}
	}
}

// TestConvPixels compares the Go bodies of plans of conv_pixels.cu with those of float64. A block's shared memory and the grid fit the device.
func TestConvPixels(t *testing.T) {
	r, dev := testutil.Random(t), kernels.Device{Name: "GPU", Major: 9, SMs: 132, SharedOptin: 227 << 10}
	var plans []*kernels.Plan
	took := map[string]int{}
	for n := 0; n < 60 || len(took) < len(pixelsKernels) && n < 2000; n++ { // until each kernel was taken
		v := drawConv(r)
		v.Dtype, v.Round = kernels.Float32, kernels.FullPrecision
		wide := v
		wide.Dtype = kernels.Float64
		c, ok := v.pixels(dev)
		if !ok {
			continue
		}
		sizes := v.elements()
		in, exact := make([][]byte, 2), make([][]byte, 2)
		for i, of := range convOperands[v.Result] {
			x, y := make([]float32, sizes[of]), make([]float64, sizes[of])
			for k := range x {
				x[k] = float32(r.NormFloat64())
				y[k] = float64(x[k])
			}
			in[i], exact[i] = kernels.Bytes(x), kernels.Bytes(y)
		}
		want, got := make([]float64, sizes[v.Result]), slices.Repeat([]float32{float32(math.NaN())}, int(sizes[v.Result]))
		testutil.Do(t, testutil.Get[*kernels.Plan](t)(wide.Plan(kernels.HostDevice())).Run(exact, kernels.Bytes(want), nil))
		p := testutil.Get[*kernels.Plan](t)(v.planBy(convMethod{emit: func(p *kernels.Plan, args convArgs) error { return c.emit(p, v, args) }}))
		plans = append(plans, p)
		took[p.Launches[0].Kernel.Entry]++
		if got := p.Launches[0].Shared; got > dev.SharedOptin {
			t.Errorf("%v: got %d bytes of shared memory for a block, want %d at most", v, got, dev.SharedOptin)
		}
		testutil.Do(t, p.Run(in, kernels.Bytes(got), nil))
		for i := range want {
			if !(math.Abs(float64(got[i])-want[i]) <= 1e-4*max(1, math.Abs(want[i]))) {
				t.Fatalf("%v: got %v at %d, want %v", v, got[i], i, want[i])
			}
		}
	}
	checkLaunches(t, plans...)
	if len(took) != len(pixelsKernels) {
		t.Errorf("got plans of %v, want each of %d kernels", took, len(pixelsKernels))
	}
}
