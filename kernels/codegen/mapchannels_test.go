package codegen

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/ptxas"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"github.com/stheno-ml/stheno/kernels/internal/bf16split"
)

// drawImages returns a function of images, numbers of channels, numbers of images and one number, the shape and the operands; the last output is stored as splits with channels last.
func drawImages(t *testing.T, r *rand.Rand) (f expr.Func, shape []int, views []View, split []Split) {
	t.Helper()
	shape = []int{1 + r.IntN(4), 8 * (1 + r.IntN(20)), 1 + r.IntN(9), 4 * (1 + r.IntN(9))}
	if r.IntN(3) == 0 {
		shape = append(shape[:2], 2, 1+r.IntN(5), 2, 1)
	}
	b := expr.NewBuilder(expr.Float32, expr.Float32, expr.Float32, expr.Float32, expr.Float32)
	x := b.Inputs()
	y := b.Apply(expr.Add, b.Apply(expr.Mul, b.Apply(expr.Sub, x[0], x[1]), x[2]), b.Apply(expr.Mul, x[3], x[4]))
	outputs := [][]expr.Value{{y}, {y, y}, {b.Apply(expr.Neg, y), y, y}, {b.Apply(expr.Mul, y, y), y}}[r.IntN(4)]
	f = testutil.Get[expr.Func](t)(b.Func(outputs...))
	zeros := make([]int, len(shape))
	channel, image := append([]int{0, 1}, zeros[2:]...), append([]int{1, 0}, zeros[2:]...)
	views = []View{Dense(shape), {Elements: int64(shape[1]), Strides: channel}, Dense(shape), {Elements: int64(shape[0]), Strides: image}, {Elements: 1, Strides: zeros}}
	split = make([]Split, len(outputs))
	split[len(outputs)-1] = SplitChannelsLast
	return f, shape, views, split
}

var splitDevices = map[string]kernels.Device{"sm_80": {Major: 8, SMs: 108, SharedOptin: 163 << 10}, "sm_90": {Major: 9, SMs: 132, SharedOptin: 227 << 10}}

// TestSplitsChannelsLast compares outputs that are stored as splits with channels last, their ranges and the outputs beside them with the elements that the same function stores.
func TestSplitsChannelsLast(t *testing.T) {
	r := testutil.Random(t)
	for range 60 {
		f, shape, views, split := drawImages(t, r)
		n, inputs := kernels.Count(shape), [][]byte(nil)
		for _, v := range views {
			x := make([]float64, v.Elements)
			for i := range x {
				x[i] = r.NormFloat64()
			}
			x[r.IntN(len(x))] *= []float64{1, 1, 1e-30, 1e30, math.Inf(1)}[r.IntN(5)]
			inputs = append(inputs, exprtest.Pack(expr.Float32, x))
		}
		for _, dev := range splitDevices {
			p, plain := testutil.Get[*kernels.Plan](t)(MapSplit(dev, f, shape, split, views...)), testutil.Get[*kernels.Plan](t)(Map(dev, f, shape, views...))
			out, want := exprtest.Memory(p.Out), exprtest.Memory(plain.Out)
			testutil.Do(t, p.Run(inputs, out, nil))
			testutil.Do(t, plain.Run(inputs, want, nil))
			testutil.Do(t, new(kernels.Checker).Check(p))
			from, elements := out, want
			for k := range len(split) {
				if len(split) > 1 {
					from, elements = out[p.Parts[k]:], want[plain.Parts[k]:]
				}
				if k < len(split)-1 && !bytes.Equal(from[:4*n], elements[:4*n]) {
					t.Errorf("%v: output %d beside the splits differs", p, k)
				}
			}
			splits, all, pixels := kernels.Elements[uint16](from), bf16split.None, int64(1)
			for _, d := range shape[2:] {
				pixels *= int64(d)
			}
			channels := int64(shape[1])
			for i, x := range kernels.Elements[float32](elements)[:n] {
				all.Add(x)
				pixel, channel := int64(i)%pixels, int64(i)/pixels%channels
				at := (int64(i)/pixels/channels*pixels+pixel)*channels + channel
				if got := [3]uint16{splits[at], splits[n+at], splits[2*n+at]}; got != bf16split.Encode(x) {
					t.Fatalf("%v: element %d: got splits %x, want %x of %v", p, i, got, bf16split.Encode(x), x)
				}
			}
			got, ranges := bf16split.None, kernels.Elements[uint32](from[6*n:])
			for b := range Ranges(p) {
				got.Join(ranges[2*b], ranges[2*b+1])
			}
			if got != all {
				t.Errorf("%v: got range %v, want %v", p, got, all)
			}
		}
	}
}

// TestSplitsChannelsLastErrors: what kernels do not store with channels last is an error.
func TestSplitsChannelsLastErrors(t *testing.T) {
	dev, f := splitDevices["sm_90"], testutil.Get[expr.Func](t)(expr.Identity(expr.Float32))
	for name, c := range map[string]struct {
		shape []int
		view  View
	}{
		"two axes":            {[]int{8, 64}, Dense([]int{8, 64})},
		"12 channels":         {[]int{2, 12, 64}, Dense([]int{2, 12, 64})},
		"49 pixels":           {[]int{2, 8, 7, 7}, Dense([]int{2, 8, 7, 7})},
		"transposed":          {[]int{2, 8, 64}, View{Elements: 1024, Strides: []int{512, 1, 8}}},
		"rows of an image":    {[]int{2, 8, 8, 8}, View{Elements: 8, Strides: []int{0, 0, 1, 0}}},
		"a part of the lines": {[]int{2, 8, 8, 8}, View{Elements: 2048, Strides: []int{1024, 128, 16, 1}}},
		"not aligned":         {[]int{2, 8, 64}, View{Elements: 1026, Offset: 2, Strides: []int{512, 64, 1}}},
		"bounds":              {[]int{2, 8, 64}, View{Elements: 1024, Strides: []int{512, 64, 1}, Bounds: Bounds{2, 1, 63}}},
	} {
		if p, err := MapSplit(dev, f, c.shape, []Split{SplitChannelsLast}, c.view); err == nil {
			t.Errorf("%s: got %v, want an error", name, p)
		}
	}
	b := expr.NewBuilder(expr.Float32)
	two := testutil.Get[expr.Func](t)(b.Func(b.Operand(0), b.Operand(0)))
	shape := []int{2, 8, 64}
	for _, split := range [][]Split{{SplitChannelsLast, SplitInOrder}, {SplitChannelsLast, SplitChannelsLast}, {SplitChannelsLast}, {SplitChannelsLast + 1, Unsplit}} {
		if p, err := MapSplit(dev, two, shape, split, Dense(shape)); err == nil {
			t.Errorf("%v: got %v, want an error", split, p)
		}
	}
	if p, err := MapSplit(kernels.Device{Major: 7, SMs: 80}, f, shape, []Split{SplitChannelsLast}, Dense(shape)); err == nil {
		t.Errorf("compute capability 7.0: got %v, want an error", p)
	}
	sums := testutil.Get[expr.Func](t)(func() (expr.Func, error) {
		b := expr.NewBuilder(expr.Float32)
		return b.Func(b.Operand(0), b.Apply(expr.RowSum, b.Operand(0)))
	}())
	if p, err := RowsSplits(dev, sums, shape, []int{2}, []bool{false, true}, []Split{SplitChannelsLast, Unsplit}, Dense(shape)); err == nil {
		t.Errorf("rows: got %v, want an error", p)
	}
}

// TestSplitsChannelsLastAssemble assembles such kernels.
func TestSplitsChannelsLastAssemble(t *testing.T) {
	ptxas.Find(t)
	r := testutil.Random(t)
	for target, dev := range splitDevices {
		for range 4 {
			f, shape, views, split := drawImages(t, r)
			assemble(t, testutil.Get[*kernels.Plan](t)(MapSplit(dev, f, shape, split, views...)).Launches[0].Kernel.Image.(image), target)
		}
	}
}
