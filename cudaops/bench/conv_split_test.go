package bench

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// Convolutions compute the same bits from splits that are given as from those that they make, also of numbers that need scaling or are not finite.
func TestConvSplitOnGPU(t *testing.T) {
	dev, r := device0(t), random(t)
	if dev.Major != 9 || dev.Minor != 0 {
		t.Skip("SKIPPED: no kernels for tensor cores are for this device")
	}
	extreme := []float32{0x1p-130, 0x1p115, float32(math.Inf(1)), float32(math.NaN())}
	draws, most := 24, 0x1p28
	if testing.Short() {
		draws, most = 6, 0x1p26
	}
	for n := 0; n < draws; {
		v := drawConv(r, most, 1)
		v.Dtype = kernels.Float32
		own, split := v, v.Splits(dev)
		for i, x := range split {
			v.Split[i] = x != (gemm.ConvSplit{}) && r.IntN(4) > 0
		}
		if v.Split == [2]bool{} {
			continue
		}
		plain, plan := testutil.Get[*kernels.Plan](t)(own.Plan(dev)), testutil.Get[*kernels.Plan](t)(v.Plan(dev))
		multiplies := func(p *kernels.Plan) (entries []string) {
			for _, l := range p.Launches {
				if !strings.Contains(l.Kernel.Entry, "prepare") {
					entries = append(entries, fmt.Sprint(l.Kernel.Entry, l.Grid))
				}
			}
			return entries
		}
		if !slices.Equal(multiplies(plain), multiplies(plan)) { // without preparing, another kernel is faster
			continue
		}
		n++
		var in [][]byte
		for _, size := range plain.Inputs {
			x := make([]float32, size/4)
			for k := range x {
				x[k] = float32(r.NormFloat64())
			}
			if n%4 == 0 {
				x[r.IntN(len(x))] = extreme[r.IntN(len(extreme))]
			}
			in = append(in, kernels.Bytes(x))
		}
		want, got := make([]byte, plain.Out), make([]byte, plain.Out)
		testutil.Do(t, Run(0, plain, in, want))
		for i, x := range split {
			if v.Split[i] {
				to := make([]byte, x.Bytes())
				testutil.Do(t, Run(0, testutil.Get[*kernels.Plan](t)(x.Plan(dev)), in[i:i+1], to))
				in = append(in, to)
			}
		}
		testutil.Do(t, Run(0, plan, in, got))
		if !bytes.Equal(got, want) {
			t.Errorf("%+v: the result differs from that of the splits that the convolution makes", v)
		}
	}
}
