package bench

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// drawConv draws a convolution of at most that many multiply-adds and groups; sizes are log-uniform.
func drawConv(r *rand.Rand, most float64, groups int64) gemm.Conv {
	size := func(most int64) int64 { return int64(math.Pow(float64(most+1), r.Float64())) }
	for {
		groups := size(groups)
		v := gemm.Conv{Images: size(64), Groups: groups, Channels: groups * size(300), Filters: groups * size(300), Result: gemm.ConvResult(r.IntN(3))}
		for _, a := range []*gemm.ConvAxis{&v.Rows, &v.Columns} {
			*a = gemm.ConvAxis{Size: size(9), Stride: size(5), Dilation: size(3)}
			reach := (a.Size-1)*a.Dilation + 1
			a.Before, a.After = r.Int64N(reach), r.Int64N(reach)
			a.In = max(reach-a.Before-a.After, 1) + size(80) - 1
		}
		if r.IntN(8) == 0 { // one tap
			v.Channels, v.Filters, v.Groups, v.Rows.Size, v.Columns.Size, v.Rows.Before, v.Rows.After, v.Columns.Before, v.Columns.After = v.Channels/v.Groups, v.Filters/v.Groups, 1, 1, 1, 0, 0, 0, 0
		}
		images, outs := v.Images*v.Channels*v.Rows.In*v.Columns.In, v.Images*v.Filters*v.Rows.Out()*v.Columns.Out()
		filters := v.Channels / v.Groups * v.Rows.Size * v.Columns.Size
		if max(images, outs, v.Filters*filters) < 1<<22 && float64(outs)*float64(filters) < most {
			return v
		}
	}
}

// Convolutions on a GPU are those of float64, within the rounding of operands and sums, and twice the same bits. Some operands have NaN, or infinities.
func TestConvOnGPU(t *testing.T) {
	dev, r := device0(t), random(t)
	draws, most := 400, 0x1p28
	if testing.Short() {
		draws, most = 40, 0x1p22
	}
	for range draws {
		v := drawConv(r, most, 40)
		if r.IntN(4) == 0 { // each channel has a filter of its own
			v.Channels, v.Filters = v.Groups, v.Groups
		}
		v.Dtype = []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)]
		plans := testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(v, dev))
		names := slices.Sorted(maps.Keys(plans))
		p := plans[names[r.IntN(len(names))]].Plan
		if v.Dtype == kernels.Float32 {
			checkConv[float32](t, p, v, r)
		} else {
			checkConv[float64](t, p, v, r)
		}
	}
}

// Convolutions large enough for tensor cores agree with float64 in each precision.
func TestConvTensorOnGPU(t *testing.T) {
	dev, r := device0(t), random(t)
	if dev.Major < 8 {
		t.Skip("SKIPPED: no kernels for tensor cores are for this device")
	}
	draws, most, counts := 80, 0x1p30, []int64{2, 12, 36}
	if testing.Short() {
		draws, most, counts = 24, 0x1p24, counts[:1]
	}
	took, older := map[string]int{}, olderGPUs(t)
	for _, channels := range counts { // few rows of a matrix whose terms are not contiguous: a thread has four terms
		for round := kernels.TF32; round <= kernels.F16; round++ {
			for _, stride := range []int64{1, 4} {
				axis := gemm.ConvAxis{In: 30, Size: 1, Stride: stride, Dilation: 1}
				one := gemm.Conv{Dtype: kernels.Float32, Round: round, Images: 3, Channels: channels, Filters: 188, Groups: 2, Rows: axis, Columns: axis, Result: gemm.ConvImages}
				few := one // outputs of an image
				few.Images, few.Result, few.Rows, few.Columns = 37, gemm.ConvFilters, gemm.ConvAxis{In: 4, Size: 3, Stride: stride, Dilation: 1}, gemm.ConvAxis{In: 5, Size: 4, Stride: stride, Dilation: 1}
				for _, v := range []gemm.Conv{one, few} {
					for _, c := range testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(v, dev)) {
						checkConv[float32](t, c.Plan, v, r)
					}
				}
			}
		}
	}
	for n := 0; n < draws; {
		v := drawConv(r, most, 12)
		if r.IntN(4) == 0 {
			v.Rows.Size, v.Rows.Before, v.Rows.After, v.Columns.Size, v.Columns.Before, v.Columns.After = 1, 0, 0, 1, 0, 0
		}
		if v.Result == gemm.ConvImages && r.IntN(2) == 0 {
			v.Rows.Stride, v.Columns.Stride = 1, 1
		}
		v.Dtype, v.Round = kernels.Float32, kernels.Precision(r.IntN(4))
		if last := v; r.IntN(2) == 0 {
			last.Channels, last.Filters, last.ChannelsLast = (v.Channels+7)/8*8, (v.Filters+7)/8*8, [2]bool{r.IntN(2) == 0, r.IntN(2) == 0}
			last.Groups = 1
			if last.TakesChannelsLast(dev) {
				v = last
			}
		}
		if _, ok := v.Prepares(dev); ok && r.IntN(2) == 0 {
			v.Prepared = true
			took["prepared"]++
		}
		target := dev
		if !v.Prepared && v.ChannelsLast == [2]bool{} && r.IntN(4) == 0 {
			target = older[r.IntN(len(older))]
		}
		plans := testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(v, target))
		maps.DeleteFunc(plans, func(name string, _ gemm.ConvCandidate) bool { return strings.HasPrefix(name, "FMA") })
		if len(plans) == 0 {
			continue
		}
		names := slices.Sorted(maps.Keys(plans))
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		kernel := func(name string) string { name, _, _ = strings.Cut(name, "["); return name }
		name := slices.MinFunc(names, func(a, b string) int { return cmp.Compare(took[kernel(a)], took[kernel(b)]) }) // so that each kernel has its turn
		checkConv[float32](t, plans[name].Plan, v, r)
		took[kernel(name)]++
		took[target.Name]++
		n++
	}
	t.Log(took)
}

// Gradients w.r.t. filters of few elements agree with float64 where they are sums of up to about 100 splits, with one tap and with nine, in all kernels for tensor cores.
func TestConvSumOnGPU(t *testing.T) {
	dev, r := device0(t), random(t)
	if dev.Major < 8 {
		t.Skip("SKIPPED: no kernels for tensor cores are for this device")
	}
	draws := 24
	if testing.Short() {
		draws = 8
	}
	for range draws {
		axis := gemm.ConvAxis{In: 8 + r.Int64N(90), Size: 1, Stride: 1, Dilation: 1}
		if r.IntN(2) == 0 {
			axis.Size, axis.Before, axis.After = 3, 1, 1
		}
		v := gemm.Conv{Dtype: kernels.Float32, Round: kernels.Precision(r.IntN(4)), Result: gemm.ConvFilters, Images: 1 + r.Int64N(3), Channels: 8 * (1 + r.Int64N(9)), Filters: 1 + r.Int64N(20), Groups: 1, Rows: axis, Columns: axis}
		if last := v; r.IntN(2) == 0 {
			last.Filters, last.ChannelsLast = (v.Filters+7)/8*8, [2]bool{true, true}
			if last.TakesChannelsLast(dev) {
				v = last
			}
		}
		plans := testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(v, dev))
		for _, name := range slices.Sorted(maps.Keys(plans)) {
			if strings.HasPrefix(name, "conv_h") {
				checkConv[float32](t, plans[name].Plan, v, r)
			}
		}
	}
}

// checkConv compares a plan of a convolution with its host plan in float64.
func checkConv[T kernels.Float](t *testing.T, p *kernels.Plan, v gemm.Conv, r *rand.Rand) {
	t.Helper()
	reference := v
	reference.Dtype, reference.Round, reference.ChannelsLast, reference.Prepared = kernels.Float64, kernels.FullPrecision, [2]bool{}, false
	host := testutil.Get[*kernels.Plan](t)(reference.Plan(kernels.HostDevice()))
	in, exact, unit := drawOperands[T](t, p, host, v, r)
	want := make([]float64, host.Out/8)
	testutil.Do(t, host.Run(exact, kernels.Bytes(want), nil))
	got := convOnGPU[T](t, p, v, in, len(want))
	again := got
	if !testing.Short() {
		again = convOnGPU[T](t, p, v, in, len(want))
	}
	terms := mostTerms(v)
	finite := true
	tolerance := 16 * math.Sqrt(terms+1) * map[kernels.Dtype]float64{kernels.Float32: 0x1p-23, kernels.Float64: 0x1p-52}[v.Dtype] * (1 + math.Sqrt(terms))
	rounding := 0.0 // of a product of two operands, each by half a unit of its last place
	if p.Precision != kernels.FullPrecision {
		tolerance = 16 * (1 + math.Sqrt(terms)) * map[kernels.Precision]float64{kernels.BF16: 0x1p-9, kernels.TF32: 0x1p-11, kernels.F16: 0x1p-11}[p.Precision]
		rounding = map[kernels.Precision]float64{kernels.BF16: 0x1p-7, kernels.TF32: 0x1p-10, kernels.F16: 0x1p-10}[p.Precision]
	}
	tolerance *= unit
	var squares float64
	for i := range want {
		if math.IsNaN(want[i]) && math.IsNaN(got[i]) && math.IsNaN(again[i]) || math.IsInf(want[i], 0) && want[i] == got[i] && got[i] == again[i] {
			finite = false
			continue
		}
		if allowed := tolerance + rounding*math.Abs(want[i]); got[i] != again[i] || !(math.Abs(got[i]-want[i]) <= allowed) {
			t.Errorf("element %d is %v, then %v, want %v within %g: %v of %+v", i, got[i], again[i], want[i], allowed, p, v)
			break
		}
		squares += (got[i] - want[i]) / unit * (got[i] - want[i]) / unit
	}
	// Without the third matrix of a split the mean error is 6 times the first term, with operands of BF16 in the place of TF32 4 times. A sum of float32, term after
	// term, has twice the second. The mean of few elements differs from draw to draw.
	mean := map[kernels.Precision]float64{kernels.FullPrecision: 0x1p-21, kernels.TF32: 0x1p-11, kernels.F16: 0x1p-11, kernels.BF16: 0x1p-8}[p.Precision] * math.Sqrt(terms)
	mean = math.Hypot(mean, 0x1p-26*terms) * (1 + 4/math.Sqrt(float64(len(want))))
	if got, entry := math.Sqrt(squares/float64(len(want))), p.Launches[0].Kernel.Entry; finite && (strings.HasPrefix(entry, "conv_hopper") || strings.HasPrefix(entry, "conv_few_split") || strings.HasPrefix(entry, "conv_mma")) && got > mean {
		t.Errorf("root mean square error is %g, want at most %g: %v of %+v", got, mean, p, v)
	}
}

// drawOperands draws the operands of a plan, some with NaN or infinities, and returns them as the plan reads them, and as its host plan in float64 does. Products of
// two elements are of the size of unit.
func drawOperands[T kernels.Float](t *testing.T, p, host *kernels.Plan, v gemm.Conv, r *rand.Rand) (in, exact [][]byte, unit float64) {
	t.Helper()
	half, stored := v.Round.Half()
	var powers [2]int // of 2, by which operands are multiplied: splits lose bits of small numbers, and small or large products
	if p.Precision == kernels.FullPrecision && r.IntN(4) == 0 {
		product := r.IntN(2) * (r.IntN(211) - 110)
		powers[0] = r.IntN(201) - 100
		powers[1] = min(max(product-powers[0], -120), 120)
	}
	for i, bytes := range host.Inputs {
		x := make([]T, bytes/8)
		wide := make([]float64, len(x))
		for k := range x {
			x[k] = T(math.Ldexp(r.NormFloat64(), powers[i]))
		}
		if r.IntN(6) == 0 {
			x[r.IntN(len(x))] = T(math.NaN())
		}
		if p.Precision == kernels.FullPrecision && r.IntN(6) == 0 {
			x[r.IntN(len(x))] = T(math.Inf(1))
		}
		for k, x := range x {
			wide[k] = float64(x)
		}
		exact = append(exact, kernels.Bytes(wide))
		of := [3][2]gemm.ConvResult{{gemm.ConvImages, gemm.ConvFilters}, {gemm.ConvOutput, gemm.ConvFilters}, {gemm.ConvImages, gemm.ConvOutput}}[v.Result][i]
		if of == gemm.ConvFilters || !v.ChannelsLast[of] {
			in = append(in, kernels.Bytes(x))
			continue
		}
		moved := transposed(x, v.Images, channelsOf(v, of))
		if !stored {
			in = append(in, kernels.Bytes(moved))
			continue
		}
		halves := make([]uint16, len(x))
		for k, x := range moved {
			halves[k] = expr.ToHalf(half, float32(x))
		}
		in = append(in, kernels.Bytes(halves))
	}
	if v.Prepared {
		plain := v
		plain.Prepared = false
		x, _ := plain.Prepares(device0(t))
		prepare := testutil.Get[*kernels.Plan](t)(x.Plan(device0(t)))
		filters := make([]byte, prepare.Out)
		testutil.Do(t, Run(0, prepare, in[1:], filters))
		in[1] = filters
	}
	return in, exact, math.Ldexp(1, powers[0]+powers[1])
}

// convOnGPU returns what a plan computes of n elements, channels first. The output is poisoned first.
func convOnGPU[T kernels.Float](t *testing.T, p *kernels.Plan, v gemm.Conv, in [][]byte, n int) (got []float64) {
	t.Helper()
	last := v.Result != gemm.ConvFilters && v.ChannelsLast[v.Result]
	if half, stored := v.Round.Half(); last && stored {
		halves := slices.Repeat([]uint16{0x7fff}, n)
		testutil.Do(t, Run(0, p, in, kernels.Bytes(halves)))
		for _, x := range halves {
			got = append(got, float64(expr.FromHalf(half, x)))
		}
	} else {
		out := slices.Repeat([]T{T(math.NaN())}, n)
		testutil.Do(t, Run(0, p, in, kernels.Bytes(out)))
		for _, x := range out {
			got = append(got, float64(x))
		}
	}
	if last {
		return transposed(got, v.Images, int64(n)/v.Images/channelsOf(v, v.Result))
	}
	return got
}

// mostTerms returns how many products an element of the result is the sum of, at most.
func mostTerms(v gemm.Conv) float64 {
	both := func(of func(gemm.ConvAxis) int64) int64 { return of(v.Rows) * of(v.Columns) }
	switch v.Result {
	case gemm.ConvFilters:
		return float64(v.Images * both(gemm.ConvAxis.Out))
	case gemm.ConvImages:
		taps := func(a gemm.ConvAxis) int64 { // every so many of a filter meet an output at one pixel
			apart := int64(1)
			for apart*a.Dilation%a.Stride != 0 {
				apart++
			}
			return kernels.CeilDiv(a.Size, apart)
		}
		return float64(v.Filters / v.Groups * both(taps))
	}
	return float64(v.Channels / v.Groups * both(func(a gemm.ConvAxis) int64 { return a.Size }))
}

// channelsOf returns the channels of a tensor.
func channelsOf(v gemm.Conv, of gemm.ConvResult) int64 {
	if of == gemm.ConvOutput {
		return v.Filters
	}
	return v.Channels
}

// transposed returns matrices of so many rows transposed.
func transposed[T any](x []T, count, rows int64) []T {
	to, size := make([]T, len(x)), int64(len(x))/count
	columns := size / rows
	for i := range x {
		at := int64(i) % size
		to[int64(i)/size*size+at%columns*rows+at/columns] = x[i]
	}
	return to
}

// The times of 200 drawn convolutions, in ten parts.
func TestConvDrawnTimes(t *testing.T) {
	watch, r := newStopwatch(t), random(t)
	layers := make([]gemm.Conv, 200)
	for i := range layers {
		layers[i] = drawLayer(r)
	}
	for part := range 10 {
		t.Run(strconv.Itoa(part), func(t *testing.T) { timeConvs(t, watch, slices.Values(layers[20*part:][:20])) })
	}
}

// The times of ResNet-50's layers, batch 64, of all results. F16 has the kernels of BF16.
func TestConvLayerTimes(t *testing.T) {
	watch := newStopwatch(t)
	timeConvs(t, watch, func(yield func(gemm.Conv) bool) {
		for _, c := range slices.Backward(resNetLayers) {
			for i := range 12 {
				v := c.conv(64)
				if v.Result, v.Round = gemm.ConvResult(i%3), kernels.Precision(i/3); c.groups == 1 && v.Round != kernels.F16 && !yield(v) {
					return
				}
			}
		}
	})
}

// timeConvs times convolutions, with the candidates that the regular expression STHENO_TIMES matches, for which there is time before the test's deadline, a line each, which
// bench/conv_peers.py reads: with float32 operands, channels first, and, where kernels take them, with those of the precision, channels last, of both tensors or of one. Filters are
// prepared where the compiler prepares them, as cuDNN has them. A line has the time of the plan that the compiler chooses and the best one in the better of both layouts, and of all
// candidates the time and the predicted time, in us.
func timeConvs(t *testing.T, watch *stopwatch, layers iter.Seq[gemm.Conv]) {
	t.Helper()
	lost, count := 0.0, 0
	deadline, limited := t.Deadline()
	for v := range layers {
		if limited && time.Until(deadline) < 5*time.Second {
			break
		}
		y, x, us, best, line, layouts := v.Rows, v.Columns, math.Inf(1), math.Inf(1), "", 0
		for i, last := range [][2]bool{{false, false}, {true, true}, {true, false}, {false, true}} {
			if v.ChannelsLast, v.Prepared = last, false; i > 0 && (layouts > 1 || !v.TakesChannelsLast(watch.dev)) {
				continue
			}
			layouts++
			variants := []bool{false} // of Prepared
			if _, ok := v.Prepares(watch.dev); ok {
				variants = append(variants, true)
			}
			for k, prepared := range variants {
				v.Prepared = prepared
				chosen, times, list := timeCandidates(t, watch, v)
				if len(times) == 0 {
					continue
				}
				least := slices.Min(slices.Collect(maps.Values(times)))
				if best = min(best, least); times[chosen] > 0 && k == len(variants)-1 {
					lost, us = lost+math.Log(times[chosen]/least), min(us, times[chosen])
					count++
				}
				line += fmt.Sprintf("; %s%s: chosen %s %.2f; measured, predicted: %s", [...]string{"first", "last", "outputs last", "images last"}[i], map[bool]string{true: " prepared"}[v.Prepared], chosen, times[chosen],
					strings.Join(list, ", "))
			}
		}
		t.Logf("layer %d %d %d %d %d %d %d %d %d %d %d %d %d %v %v %.2f us, best %.2f%s", v.Images, v.Channels, v.Filters, v.Groups, y.In, x.In, y.Size, x.Size, y.Stride, x.Stride, max(y.Dilation, x.Dilation), y.Before, x.Before,
			v.Result, v.Round, us, best, line)
	}
	t.Logf("chosen kernels take %.3f times as long as the best of the candidates (geometric mean of %d)", math.Exp(lost/float64(count)), count)
}

// timeCandidates returns the name of the kernel that the model chooses, and the times of all candidates in us, with a line for each.
func timeCandidates(t *testing.T, watch *stopwatch, v gemm.Conv) (chosen string, times map[string]float64, list []string) {
	plans := testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(v, watch.dev))
	times, least := map[string]float64{}, map[string]float64{} // least: the predicted times of kernels by their names without the splits of K
	for name, p := range plans {
		if of, _, splits := strings.Cut(name, "["); splits && (least[of] == 0 || p.Us < least[of]) {
			least[of] = p.Us
		}
		if p.Chosen {
			chosen = name
		}
	}
	var inputs [][]byte
	for _, name := range slices.Sorted(maps.Keys(plans)) {
		p := plans[name]
		if of, _, splits := strings.Cut(name, "["); !watch.wants(name) && name != chosen || splits && name != chosen && p.Us > 1.25*least[of] {
			continue // not wanted, or a worse split of K
		}
		if inputs == nil {
			inputs = convInputs(p.Plan)
		}
		times[name] = timeConv(t, watch, p.Plan, inputs, 10*time.Millisecond)
		list = append(list, fmt.Sprintf("%s %.1f %.0f", strings.TrimPrefix(name, "conv_hopper_"), times[name], p.Us))
	}
	return chosen, times, list
}

// drawLayer draws a layer as networks have them: 1 to 2048 channels, mostly square filters and padding of at most half a filter, some of one dimension. It has no groups, a few, or one for each channel.
func drawLayer(r *rand.Rand) gemm.Conv {
	size := func(least, most int64) int64 {
		return int64(float64(least) * math.Pow(float64(most+1)/float64(least), r.Float64()))
	}
	for {
		v := gemm.Conv{Dtype: kernels.Float32, Images: size(1, 128), Channels: size(1, 2048), Filters: size(1, 2048), Groups: 1, Result: gemm.ConvResult(r.IntN(3)),
			Round: kernels.Precision(r.IntN(4))}
		if r.IntN(2) == 0 {
			v.Channels, v.Filters = (v.Channels+7)/8*8, (v.Filters+7)/8*8
		}
		switch r.IntN(8) {
		case 0:
			v.Groups, v.Filters = v.Channels, v.Channels
		case 1:
			v.Groups = size(2, 32)
			v.Channels, v.Filters = (v.Channels+v.Groups-1)/v.Groups*v.Groups, (v.Filters+v.Groups-1)/v.Groups*v.Groups
		}
		a := gemm.ConvAxis{In: size(5, 256), Size: []int64{1, 1, 3, 3, 3, 5, 7, size(1, 11)}[r.IntN(8)], Stride: []int64{1, 1, 1, 2, 2, 3}[r.IntN(6)], Dilation: 1}
		if r.IntN(8) == 0 {
			a.Dilation = size(2, 4)
		}
		a.Before = r.Int64N((a.Size-1)*a.Dilation/2 + 1)
		a.After = a.Before
		v.Rows, v.Columns = a, a
		if r.IntN(8) == 0 {
			v.Columns.Size, v.Columns.Before, v.Columns.After = 1, 0, 0
		}
		if r.IntN(16) == 0 {
			a.In = size(64, 4096)
			v.Rows, v.Columns = gemm.ConvAxis{In: 1, Size: 1, Stride: 1, Dilation: 1}, a
		}
		if a.Check() != nil || v.Columns.Check() != nil {
			continue
		}
		images, outs := v.Images*v.Channels*v.Rows.In*v.Columns.In, v.Images*v.Filters*v.Rows.Out()*v.Columns.Out()
		flops := 2 * float64(outs) * float64(v.Channels/v.Groups*v.Rows.Size*v.Columns.Size)
		if max(images, outs) < 1<<24 && flops > 1e7 && flops < 3e10 {
			return v
		}
	}
}

// convInputs returns operands of a plan.
func convInputs(p *kernels.Plan) [][]byte {
	inputs := make([][]byte, 2)
	for i, bytes := range p.Inputs {
		if inputs[i] = signed((bytes+3)/4*4, i)[:bytes]; strings.Contains(p.Op, "last") && (p.Precision == kernels.BF16 || p.Precision == kernels.F16) { // of 16 bits, of which pairs make a float32
			for k := 0; k+4 <= len(inputs[i]); k += 4 {
				copy(inputs[i][k:k+2], inputs[i][k+2:k+4])
			}
		}
	}
	return inputs
}

// timeConv returns the time of a plan in us, for which it runs about as long as within.
func timeConv(t *testing.T, watch *stopwatch, p *kernels.Plan, inputs [][]byte, within time.Duration) float64 {
	p.Graph = true // as a VM records them
	us, _, _ := watch.rate(testutil.Get[*Timing](t)(TimeWithin(0, p, inputs, 15, within)).Runs, p.Bytes())
	return us
}

// convLayer is a layer of square images and filters.
type convLayer struct{ channels, side, filters, size, stride, groups int64 }

func (c convLayer) conv(images int64) gemm.Conv {
	a := gemm.ConvAxis{In: c.side, Size: c.size, Stride: c.stride, Dilation: 1, Before: c.size / 2, After: c.size / 2}
	return gemm.Conv{Dtype: kernels.Float32, Images: images, Channels: c.channels, Filters: c.filters, Groups: c.groups, Rows: a, Columns: a}
}

// resNetLayers are layers of ResNet-50, and one with a filter for each channel.
var resNetLayers = []convLayer{
	{3, 224, 64, 7, 2, 1}, {64, 56, 64, 3, 1, 1}, {128, 28, 128, 3, 1, 1}, {256, 14, 256, 3, 1, 1}, {512, 7, 512, 3, 1, 1}, {64, 56, 64, 1, 1, 1}, {256, 56, 512, 1, 2, 1}, {256, 28, 256, 3, 1, 256},
}

// The times of convolutions of ResNet-50's layers, batch 64, and of the preparing of their operands, a line each, of those that the regular expression STHENO_TIMES matches.
func TestConvTimes(t *testing.T) {
	watch := newStopwatch(t)
	for _, c := range resNetLayers {
		for i := range 18 {
			dev, form := watch.dev, i%6
			name := fmt.Sprintf("%d x %d, %d of %d by %d, groups %d, %v, %s", c.channels, c.side, c.filters, c.size, c.stride, c.groups, gemm.ConvResult(i/6), [...]string{"FMA", "float32", "TF32", "BF16", "BF16 stored", "TF32 channels last"}[form])
			if form == 0 { // as on a device without tensor cores for it
				dev.Major = 7
			}
			if !watch.wants(name) {
				continue
			}
			v := c.conv(64)
			v.Result, v.Round = gemm.ConvResult(i/6), [...]kernels.Precision{kernels.FullPrecision, kernels.FullPrecision, kernels.TF32, kernels.BF16, kernels.BF16, kernels.TF32}[form]
			if form >= 4 {
				if v.ChannelsLast = [2]bool{true, c.channels > 3}; c.groups > 1 {
					continue
				}
			}
			p, prepares := testutil.Get[*kernels.Plan](t)(v.Plan(dev)), 0.0
			if strings.Contains(p.Launches[0].Kernel.Entry, "prepare") {
				part := *p
				part.Launches = part.Launches[:1]
				prepares = timeConv(t, watch, &part, convInputs(p), 50*time.Millisecond)
			}
			us := timeConv(t, watch, p, convInputs(p), 50*time.Millisecond)
			t.Logf("%-64s %8.1f us, %7.1f to prepare, %6.1f TFLOP/s, %s", name, us, prepares, float64(p.Flops)/us/1e6, p.Launches[min(1, len(p.Launches)-1)].Kernel.Entry)
		}
	}
}
