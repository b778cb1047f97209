package gemm

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// meets calls f for the indices of outputs, images and filters of all terms.
func (v Conv) meets(f func(y, x, w int64)) {
	channels, filters, oh, ow := v.Channels/v.Groups, v.Filters/v.Groups, v.Rows.Out(), v.Columns.Out()
	for y := range v.elements()[ConvOutput] {
		q, p, k, n := y%ow, y/ow%oh, y/ow/oh%v.Filters, y/ow/oh/v.Filters
		for w := k * channels * v.Rows.Size * v.Columns.Size; w < (k+1)*channels*v.Rows.Size*v.Columns.Size; w++ {
			j, i, c := w%v.Columns.Size, w/v.Columns.Size%v.Rows.Size, w/v.Columns.Size/v.Rows.Size%channels
			a, b := p*v.Rows.Stride-v.Rows.Before+i*v.Rows.Dilation, q*v.Columns.Stride-v.Columns.Before+j*v.Columns.Dilation
			if a >= 0 && a < v.Rows.In && b >= 0 && b < v.Columns.In {
				f(y, ((n*v.Channels+k/filters*channels+c)*v.Rows.In+a)*v.Columns.In+b, w)
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
		if v.elements()[ConvOutput]*v.Channels/v.Groups*v.Rows.Size*v.Columns.Size < 1<<20 {
			return v
		}
	}
}

// TestConv compares the Go bodies of plans for several devices with sums over all terms.
func TestConv(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	devices := []kernels.Device{kernels.HostDevice(), {Name: "small", Major: 7, SMs: 3}, {Name: "large", Major: 9, SMs: 132}}
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

// TestConvErrors: a problem that kernels do not compute is an error that says why.
func TestConvErrors(t *testing.T) {
	axis := ConvAxis{In: 8, Size: 3, Stride: 1, Dilation: 1}
	good := Conv{kernels.Float32, 2, 4, 6, 2, axis, axis, ConvOutput}
	host := kernels.HostDevice()
	if _, err := good.Plan(host); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(v *Conv){
		"want float32 or float64":               func(v *Conv) { v.Dtype = kernels.Int32 },
		"images, channels, filters and groups":  func(v *Conv) { v.Images = 0 },
		"channels and filters that the groups":  func(v *Conv) { v.Groups = 4 },
		"got a filter over 9 elements of 8":     func(v *Conv) { v.Rows.Size = 9 },
		"outputs would see padding alone":       func(v *Conv) { v.Columns.After = 3 },
		"got ConvResult(9)":                     func(v *Conv) { v.Result = 9 },
		"stride 0":                              func(v *Conv) { v.Rows.Stride = 0 },
		"padding of -1":                         func(v *Conv) { v.Rows.Before = -1 },
		"more than 1073741824 pixels":           func(v *Conv) { v.Images = 1 << 25 },
		"more than 1073741824 elements of fil":  func(v *Conv) { v.Filters, v.Channels, v.Groups = 1<<16, 1<<16, 1 },
		"a filter over 2147483647 elements of ": func(v *Conv) { v.Rows.Dilation = 1<<30 - 1 },
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
