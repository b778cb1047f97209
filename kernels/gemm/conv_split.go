package gemm

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/bf16split"
)

// ConvSplit plans the splits of images (Count, Rows channels, Cols pixels) of float32 as three BF16 matrices, which convolutions multiply on tensor cores: [3][Count][Cols][channels], the channels
// rounded up to 8, then the ranges of numbers that blocks have found. Several convolutions can read them: see Conv.Split. It is a kernels.Planner.
type ConvSplit struct{ Count, Rows, Cols int64 }

// Splits returns the splits of both operands that a convolution's launches on a device make of whole images, and zeros of operands of which they make none.
func (v Conv) Splits(dev kernels.Device) (list [2]ConvSplit) {
	v.Split, v.Ranges = [2]bool{}, [2]int64{}
	if v.Round != kernels.FullPrecision || v.check(dev) != nil {
		return list
	}
	if m := v.choose(dev); m.form != BF16Split {
		return list
	}
	return v.operandSplits(dev)
}

// operandSplits returns the splits that kernels for tensor cores make.
func (v Conv) operandSplits(dev kernels.Device) (list [2]ConvSplit) {
	if v.Round != kernels.FullPrecision || v.ChannelsLast != [2]bool{} {
		return list
	}
	for range v.candidates(dev) {
		w, _ := v.windows(BF16Split)
		for i, x := range w.planes {
			if of := convOperands[v.Result][1-i]; of != ConvFilters && w.merged == 1 && w.inner == 1 && x == newConvPlanes(x.Count, x.Rows, x.Cols) {
				list[1-i] = v.split(of)
			}
		}
		return list
	}
	return list
}

// split returns the splits of whole images or outputs.
func (v Conv) split(of ConvResult) ConvSplit {
	if of == ConvImages {
		return ConvSplit{v.Images, v.Channels, v.Rows.In * v.Columns.In}
	}
	return ConvSplit{v.Images, v.Filters, v.Rows.Out() * v.Columns.Out()}
}

// further reports whether the splits of an operand are an operand beside it.
func (v Conv) further(operand int) bool { return v.Split[operand] && v.Ranges[operand] == 0 }

var convDecode = own.Kernel("conv_decode", "conv_decode_f32", func(c kernels.Call) {
	a := kernels.Args[convDecodeArgs](c)
	if kernels.Slice[int32](c, a.When)[0] == 0 {
		return
	}
	n := a.Count * a.Channels * a.Pixels
	splits, out := kernels.Slice[uint16](c, a.Splits), kernels.Slice[float32](c, a.Out)
	for at := range n {
		image, pixel, channel := at/a.Channels/a.Pixels, at/a.Channels%a.Pixels, at%a.Channels
		out[(image*a.Channels+channel)*a.Pixels+pixel] = bf16split.Decode([3]uint16{splits[at], splits[n+at], splits[2*n+at]})
	}
})

type convDecodeArgs struct {
	Splits, Out             kernels.Ref
	Count, Channels, Pixels int64 `arg:"int32"`
	When                    kernels.Ref
}

// guarded appends the launches that compute the result from float32 elements if the int32 at when is not 0, and find those first that generated kernels have stored as splits alone.
func (v Conv) guarded(p *kernels.Plan, dev kernels.Device, args convArgs, when kernels.Ref) error {
	for i, of := range convOperands[v.Result] {
		if v.Ranges[i] == 0 {
			continue
		}
		const threads = 256
		x := v.split(of)
		a := convDecodeArgs{kernels.In(kernels.Operand(i)), p.Workspace(4 * x.Count * x.Rows * x.Cols), x.Count, x.Rows, x.Cols, when}
		p.Launch(convDecode, int(min(kernels.CeilDiv(x.Count*x.Rows/8*x.Cols, threads), 8*int64(dev.SMs))), threads, a)
		*[2]*kernels.Ref{&args.Images, &args.Matrix}[i] = a.Out
	}
	args.When, args.Guarded = when, true
	return v.launch(p, dev, args)
}

// String names the form.
func (x ConvSplit) String() string {
	return fmt.Sprintf("conv_split(%d x %d x %d)", x.Count, x.Rows, x.Cols)
}

// Bytes returns the bytes of the result.
func (x ConvSplit) Bytes() int64 {
	return newConvPlanes(x.Count, x.Rows, x.Cols).bytes(BF16Split) + 8*convPrepareMost
}

// Plan implements [kernels.Planner].
func (x ConvSplit) Plan(dev kernels.Device) (*kernels.Plan, error) {
	const most = 1 << 30
	if min(x.Count, x.Rows, x.Cols) < 1 || x.Count > most/x.Rows/x.Cols || !isHopper(dev) {
		return nil, fmt.Errorf("kernels: %v: want 1 to %d elements, and a device of compute capability 9.0", x, most)
	}
	p := &kernels.Plan{Op: x.String(), Inputs: []int64{x.Count * x.Rows * x.Cols * kernels.Float32.Size()}, Out: x.Bytes()}
	y := newConvPlanes(x.Count, x.Rows, x.Cols)
	y.X, y.To, y.Pitch = kernels.In(0), out, y.pitch(BF16Split)
	emitPrepare(p, BF16Split, y.blocks(BF16Split, dev), []convPlanes{y}, convPrepareArgs{Ranges: kernels.At(kernels.Out, y.bytes(BF16Split)), Arrivals: out})
	return p, nil
}
