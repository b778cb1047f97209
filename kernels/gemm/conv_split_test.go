package gemm

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// TestConvSplit: a convolution computes the same bits from splits that are given as from those that it makes, also of numbers that need scaling or are not finite.
func TestConvSplit(t *testing.T) {
	r := testutil.Random(t)
	dev := kernels.Device{Name: "H100", Major: 9, SMs: 132, SharedOptin: 227 << 10}
	given, byMaps, extreme := map[[2]bool]int{}, 0, []float32{0x1p-130, 0x1p115, float32(math.Inf(1)), float32(math.NaN())}
	for draw := 0; draw < 80; {
		axis := ConvAxis{In: 5 + r.Int64N(12), Size: 1 + r.Int64N(3), Stride: 1 + r.Int64N(2), Dilation: 1}
		axis.Before, axis.After = r.Int64N(axis.Size), r.Int64N(axis.Size)
		v := Conv{Dtype: kernels.Float32, Images: 2 + r.Int64N(6), Channels: 20 + r.Int64N(40), Filters: 20 + r.Int64N(40), Groups: 1, Rows: axis, Columns: axis, Result: ConvResult(r.IntN(3))}
		if r.IntN(2) == 0 {
			v.Channels, v.Filters, v.Rows.In, v.Columns.In = v.Channels/8*8, v.Filters/8*8, axis.In/2*2+2, axis.In/2*2+2
		}
		if _, able := v.windows(BF16Split); !able {
			continue
		}
		own, split := v, v.operandSplits(dev)
		for i, x := range split {
			v.Split[i] = x != (ConvSplit{}) && r.IntN(4) > 0
			if stored := mapOf(dev, x); v.Split[i] && stored != nil {
				v.Ranges[i] = codegen.Ranges(stored)
				byMaps++
			}
		}
		if v.Split == [2]bool{} {
			continue
		}
		draw++
		given[v.Split]++
		var by convCandidate
		for c := range own.candidates(dev) {
			if by.kernel == nil || r.IntN(2) == 0 {
				by = c
			}
		}
		planned := func(v Conv) *kernels.Plan {
			return testutil.Get[*kernels.Plan](t)(v.planBy(convMethod{emit: func(p *kernels.Plan, args convArgs) error { return by.emit(p, v, args, dev) }}))
		}
		plan := planned(v)
		testutil.Do(t, plan.Check(dev))
		var in [][]byte
		for _, of := range convOperands[v.Result] {
			x := make([]float32, v.elements()[of])
			for k := range x {
				x[k] = float32(r.NormFloat64())
			}
			if draw%4 == 0 {
				x[r.IntN(len(x))] = extreme[r.IntN(len(extreme))]
			}
			in = append(in, kernels.Bytes(x))
		}
		want, got := make([]float32, v.elements()[v.Result]), make([]float32, v.elements()[v.Result])
		testutil.Do(t, planned(own).Run(in, kernels.Bytes(want), nil))
		for i, x := range split {
			if v.Split[i] {
				by := mapOf(dev, x)
				if v.Ranges[i] == 0 {
					by = testutil.Get[*kernels.Plan](t)(x.Plan(dev))
				}
				to := make([]uint16, by.Out/2)
				testutil.Do(t, by.Run(in[i:i+1], kernels.Bytes(to), nil))
				if v.Ranges[i] == 0 {
					in = append(in, kernels.Bytes(to))
				} else {
					in[i] = kernels.Bytes(to)
				}
			}
		}
		testutil.Do(t, plan.Run(in, kernels.Bytes(got), nil))
		for k, x := range want {
			if math.Float32bits(x) != math.Float32bits(got[k]) && !(x != x && got[k] != got[k]) { // splits of NaN are of another NaN
				t.Fatalf("%+v: element %d of the result is %v, not %v as of the splits that the convolution makes", v, k, got[k], x)
			}
		}
	}
	if byMaps < 2 {
		t.Errorf("got %d splits that maps have stored, want some", byMaps)
	}
	if len(given) < 3 {
		t.Errorf("got splits of operands %v, want of the first, of the second and of both", given)
	}
	for name, plan := range map[string]kernels.Planner{
		"no images":                 ConvSplit{0, 64, 64},
		"more elements than 2^30":   ConvSplit{1 << 20, 1 << 10, 2},
		"ranges without splits":     Conv{Dtype: kernels.Float32, Images: 1, Channels: 64, Filters: 64, Groups: 1, Rows: ConvAxis{16, 1, 1, 1, 0, 0}, Columns: ConvAxis{16, 1, 1, 1, 0, 0}, Ranges: [2]int64{4, 0}},
		"a convolution without any": Conv{Dtype: kernels.Float64, Images: 1, Channels: 1, Filters: 1, Groups: 1, Rows: ConvAxis{1, 1, 1, 1, 0, 0}, Columns: ConvAxis{1, 1, 1, 1, 0, 0}, Split: [2]bool{true, false}},
	} {
		if _, err := plan.Plan(dev); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// mapOf returns the map that stores such splits of its operand, or nil if there is none.
func mapOf(dev kernels.Device, x ConvSplit) *kernels.Plan {
	f, err := expr.Identity(expr.Float32)
	if err != nil || x == (ConvSplit{}) {
		return nil
	}
	shape := []int{int(x.Count), int(x.Rows), int(x.Cols)}
	p, err := codegen.MapSplit(dev, f, shape, []codegen.Split{codegen.SplitChannelsLast}, codegen.Dense(shape))
	if err != nil {
		return nil
	}
	return p
}
