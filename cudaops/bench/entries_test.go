package bench

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// Entries are entry points that tests have not launched yet. The tests of this file launch each one once, in the smallest problems that are drawn, for sanitizers.
type entries map[string]bool

// entriesOf returns the entry points of sources.
func entriesOf(t *testing.T, sources ...string) entries {
	t.Helper()
	e := entries{}
	for _, source := range sources {
		for _, entry := range testutil.Get[[]string](t)(kernels.Builtin().Entries(source)) {
			e[entry] = true
		}
	}
	return e
}

// missing reports whether a plan launches one of the entry points.
func (e entries) missing(p *kernels.Plan) bool {
	return slices.ContainsFunc(p.Launches, func(l kernels.Launch) bool { return e[l.Kernel.Entry] })
}

// remove removes those that a plan launches.
func (e entries) remove(p *kernels.Plan) {
	for _, l := range p.Launches {
		delete(e, l.Kernel.Entry)
	}
}

// generations returns a device as it is, and as older ones, whose kernels it has too.
func generations(dev kernels.Device) (list []kernels.Device) {
	for major := dev.Major; major >= 7; major-- {
		dev.Major = major
		list = append(list, dev)
	}
	return list
}

// entryProduct draws a product of at most 2^24 multiplications, with short or long axes, a batch or reduced precision, of operands that have been rounded before if
// forms is set.
func entryProduct(r *rand.Rand) gemm.Product {
	size := func(most float64) int64 { return logUniform(r, 1, most) }
	p := gemm.Product{Dtype: []kernels.Dtype{f32, f32, f64}[r.IntN(3)], A: gemm.Operand{Trans: r.IntN(2) == 0}, B: gemm.Operand{Trans: r.IntN(2) == 0}}
	for p.Batch == 0 || float64(p.Batch*p.M)*float64(p.N)*float64(p.K) > 1<<24 || p.Batch*(p.M*p.N+p.N*p.K+p.K*p.M) > 1<<22 {
		p.Batch, p.M, p.N, p.K = 1, size(3000), size(3000), size(3000)
		switch r.IntN(6) {
		case 0:
			p.M = 1 + r.Int64N(32)
		case 1:
			p.N = 1 + r.Int64N(32)
		case 2:
			p.K = 1 + r.Int64N(64)
		case 3:
			p.M, p.N, p.K = 100+r.Int64N(300), 100+r.Int64N(300), 64+r.Int64N(700)
		}
		if r.IntN(4) == 0 {
			p.Batch = size(1000)
		}
	}
	if p.Dtype == f32 {
		p.Round = kernels.Precision(r.IntN(4))
	}
	if p.Round != kernels.FullPrecision && r.IntN(2) == 0 {
		p.M, p.N, p.K = (p.M+7)/8*8, (p.N+7)/8*8, (p.K+7)/8*8
		p = rounded(p)
	}
	return p
}

// Each entry point on the tensor cores computes a small drawn product that has tails. Some plans are for few SMs.
func TestTensorEntries(t *testing.T) {
	productEntries(t, "matmul_hopper", "matmul_mma", "matmul_mma_double", "matmul_mma_single", "matmul_mma_small", "matmul_round", "matmul_tall_hopper")
}

// Each of the other entry points of products computes one too.
func TestProductEntries(t *testing.T) {
	productEntries(t, "matmul", "matmul_band", "matmul_double", "matmul_inner", "matmul_narrow", "matmul_outer", "matmul_strip", "matmul_tall", "matmul_vector", "matmul_vector_bulk", "matmul_vector_half")
}

func productEntries(t *testing.T, sources ...string) {
	dev, r := device0(t), random(t)
	left := entriesOf(t, sources...)
	for _, entry := range []string{"matmul_rows_bf16", "matmul_rows_f16", "matmul_longrows_f32"} {
		delete(left, entry) // for more than 2^22 elements: TestReducedVectors and TestVectorsOnGPU launch them
	}
	all, runs := len(left), 0
	older := generations(dev)
	for n := 0; n < 40000 && len(left) > 0; n++ {
		p, on := entryProduct(r), older[min(r.IntN(2*len(older)), len(older)-1)]
		on.SMs = []int{1, 2, 8, dev.SMs}[r.IntN(4)]
		_, _, plans, err := gemm.Candidates(p, on)
		if err != nil && p.A.Form != gemm.Plain {
			continue // no kernel of an older device reads this form
		}
		testutil.Do(t, err)
		if !slices.ContainsFunc(plans, left.missing) {
			continue
		}
		inputs, want, magnitude := operandsOfProduct(t, r, on, p)
		for _, plan := range plans {
			if !left.missing(plan) {
				continue
			}
			left.remove(plan)
			runs++
			if fault := compareInputs(t, plan, p.Dtype, want, magnitude, allowedOf(p), inputs); fault != "" {
				t.Errorf("%v, %d x (%d x %d x %d) of %v: %s", plan, p.Batch, p.M, p.K, p.N, p.Dtype, fault)
			}
		}
	}
	t.Logf("%d of %d entry points in %d plans", all-len(left), all, runs)
	for entry := range left {
		if dev.Major == 9 {
			t.Errorf("no product that was drawn launches %s", entry)
		}
	}
}

// operandsOfProduct draws the operands of a product, and returns its elements in float64 and the sums of the magnitudes of their terms.
func operandsOfProduct(t *testing.T, r *rand.Rand, dev kernels.Device, p gemm.Product) (inputs [][]byte, want, magnitude []float64) {
	t.Helper()
	numbers := [2][]float64{between1(r, p.Batch*p.M*p.K), between1(r, p.Batch*p.K*p.N)}
	for k, x := range numbers {
		switch {
		case p.Dtype == f64:
			inputs = append(inputs, kernels.Bytes(x))
			continue
		case p.A.Form != gemm.Plain:
			for i := range x {
				x[i] = float64(p.Round.Round(float32(x[i])))
			}
		}
		single := kernels.Bytes(convert(x, func(e float64) float32 { return float32(e) }))
		if p.A.Form != gemm.Plain {
			plan := testutil.Get[*kernels.Plan](t)(p.Prepares(gemm.Form(p.Round))[k].Plan(dev))
			values := single
			single = make([]byte, plan.Out)
			testutil.Do(t, Run(0, plan, [][]byte{values}, single))
		}
		inputs = append(inputs, single)
	}
	want, magnitude = productOf(p, numbers[0], numbers[1])
	return inputs, want, magnitude
}

// entryConv draws a convolution of few multiplications for kernels of every kind.
func entryConv(r *rand.Rand, dev kernels.Device) gemm.Conv {
	v := drawConv(r, 0x1p21, 12)
	switch r.IntN(8) {
	case 0:
		v = drawFew(r)
	case 1, 2:
		v = drawHalo(r)
		v.Images = 1
	case 3: // few filters in each group
		v.Dtype = kernels.Float32
		v.Filters = v.Groups * (1 + r.Int64N(8))
	case 4: // each channel has a filter of its own
		v.Channels, v.Filters, v.Dtype = v.Groups, v.Groups, []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)]
	case 5:
		v.Dtype = kernels.Float64
	default:
		v.Dtype, v.Round = kernels.Float32, kernels.Precision(r.IntN(4))
		if r.IntN(2) == 0 {
			v.Rows.Size, v.Rows.Before, v.Rows.After, v.Columns.Size, v.Columns.Before, v.Columns.After = 1, 0, 0, 1, 0, 0
		}
		if r.IntN(2) == 0 {
			v.Rows.Stride, v.Columns.Stride = 1, 1
		}
	}
	if v.ChannelsLast != [2]bool{} && !v.TakesChannelsLast(dev) {
		v.ChannelsLast = [2]bool{}
	}
	if last := v; r.IntN(3) == 0 {
		last.Channels, last.Filters, last.ChannelsLast, last.Groups = (v.Channels+7)/8*8, (v.Filters+7)/8*8, [2]bool{r.IntN(2) == 0, r.IntN(2) == 0}, 1
		if last.TakesChannelsLast(dev) {
			v = last
		}
	}
	if _, ok := v.Prepares(dev); ok && dev.Major == 9 && r.IntN(3) == 0 {
		v.Prepared = true
	}
	return v
}

// Every entry point of convolutions computes what the definition does, in a small convolution.
func TestConvEntries(t *testing.T) {
	dev, r := device0(t), random(t)
	left := entriesOf(t, "conv", "conv_depthwise", "conv_few", "conv_few_split", "conv_halo", "conv_hopper", "conv_mma", "conv_pixels")
	all, runs := len(left), 0
	older := generations(dev)
	for n := 0; n < 20000 && len(left) > 0; n++ {
		on := older[r.IntN(len(older))]
		if r.IntN(2) == 0 {
			on = dev
		}
		v := entryConv(r, on)
		plans := testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(v, on))
		for _, name := range slices.Sorted(maps.Keys(plans)) {
			p := plans[name].Plan
			if !left.missing(p) {
				continue
			}
			left.remove(p)
			if runs++; v.Dtype == kernels.Float32 {
				checkConv[float32](t, p, v, r)
			} else {
				checkConv[float64](t, p, v, r)
			}
		}
	}
	t.Logf("%d of %d entry points in %d plans", all-len(left), all, runs)
	for entry := range left {
		if dev.Major == 9 {
			t.Errorf("no convolution that was drawn launches %s", entry)
		}
	}
}
