package gemm

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// Constants of conv_few.cu.
const (
	fewThreads       = 256 // of a block for outputs
	fewFilters       = 8   // filters that a thread computes at a time
	fewMost          = 64  // filters of a block for outputs
	fewFilterThreads = 128 // of a block for filters, four warps
	fewMinPixels     = 256 // of a split
	fewBlocks        = 4   // of an SM, wanted
	fewRowBlocks     = 5   // of an SM for filters, with stride and dilation 1
	fewRowFilters    = 64  // of such a block
)

// fewKind has the kernels for images with that many channels and square filters of that side. A thread computes pixels of outputs; a warp computes gradients w.r.t. filters.
type fewKind struct {
	channels, size, pixels, filters int64
	kernels                         [3]*kernels.Kernel // outputs, filters, and filters with stride and dilation 1
}

var fewKinds = []fewKind{newFewKind(1, 3, 4, 8), newFewKind(3, 3, 2, 4)}

func newFewKind(channels, size, pixels, filters int64) fewKind {
	name := fmt.Sprintf("%dx%d_f32", channels, size)
	return fewKind{channels, size, pixels, filters, [3]*kernels.Kernel{
		own.Kernel("conv_few", "conv_few_"+name, convWindowsBody[float32]), own.Kernel("conv_few", "conv_few_filters_"+name, convFiltersBody[float32]), own.Kernel("conv_few", "conv_few_rows_"+name, convFiltersBody[float32]),
	}}
}

// few returns the kernels for images of few channels, and their time by the model in us; ok is false if there are none for the convolution.
func (v Conv) few(dev kernels.Device) (k fewKind, us float64, ok bool) {
	if !isHopper(dev) || v.Dtype != kernels.Float32 || v.Result == ConvImages || v.Groups != 1 || v.Filters < fewFilters || v.Prepared || v.Split != [2]bool{} {
		return k, 0, false
	}
	if v.ChannelsLast != [2]bool{} && (v.last(ConvImages) || v.Filters%fewFilters > 0 || v.size(ConvOutput) != v.Dtype.Size()) {
		return k, 0, false
	}
	for _, k := range fewKinds {
		if v.Channels == k.channels && v.Rows.Size == k.size && v.Columns.Size == k.size {
			sizes := v.elements()
			us := convLaunch + float64(4*(sizes[ConvOutput]+sizes[ConvImages]))/fewBytes
			if v.Result == ConvFilters {
				us += convLaunch + float64(sizes[ConvOutput]*v.Channels)/fewProducts
			}
			return k, us, true
		}
	}
	return k, 0, false
}

// The model's times of an H200: bytes that the kernels read and write in one us, and gradients w.r.t. outputs times channels that those for filters multiply by nine elements each.
const fewBytes, fewProducts = 3e6, 1.3e6

// fewRows reports whether a kernel for filters reads a column of a window for each pixel, as neighbours have the others. With one channel it is slower, but for gradients with channels last.
func (v Conv) fewRows() bool {
	return v.Rows.Stride == 1 && v.Columns.Stride == 1 && v.Rows.Dilation == 1 && v.Columns.Dilation == 1 && (v.Channels > 1 || v.last(ConvOutput))
}

// emit appends the launches. Outputs with channels last have 1 element from a channel to the next.
func (k fewKind) emit(p *kernels.Plan, v Conv, args convArgs, dev kernels.Device) error {
	wanted := fewBlocks * int64(dev.SMs)
	if v.last(ConvOutput) && v.Result == ConvOutput {
		args.C.Row = 1
	} else if v.last(ConvOutput) {
		args.A.Row = 1
	}
	if v.Result == ConvOutput {
		blocks := kernels.CeilDiv(args.N, fewThreads*k.pixels)
		parts := kernels.CeilDiv(args.M, min(arith.RoundUp(max(args.M*blocks/wanted, 1), fewFilters), fewMost))
		args.Chunk = args.K
		p.Launch(k.kernels[0], int(blocks), fewThreads, args).Grid[1] = int(parts)
		return kernels.CheckGrid(blocks)
	}
	across, unit, kernel := kernels.CeilDiv(args.M, 4*k.filters), int64(32), k.kernels[1]
	if v.fewRows() {
		wanted, across, unit, kernel = fewRowBlocks*int64(dev.SMs), kernels.CeilDiv(args.M, fewRowFilters), args.PixelRow.D, k.kernels[2]
	}
	splits := max(min(kernels.CeilDiv(wanted, across), args.K/fewMinPixels), 1)
	args.Chunk = arith.RoundUp(kernels.CeilDiv(args.K, splits), unit)
	if splits = kernels.CeilDiv(args.K, args.Chunk); splits > 1 {
		args.Out = p.Workspace(splits * p.Out)
	}
	p.Launch(kernel, int(across*splits), fewFilterThreads, args)
	sumSplits(p, v.Dtype, args.Count, args.Out, splits)
	return kernels.CheckGrid(across * splits)
}
