package gemm

import (
	"fmt"
	"math"

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
	fewSide          = 16  // squares of four pixels of images of a side of a block

	fewSquaresThreads = 64 // of such a block
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

// fewSquares is the kernel for gradients w.r.t. images of 3 channels with 7 x 7 taps at a stride of 2.
var fewSquares = own.Kernel("conv_few", "conv_few_images_3x7_f32", convWindowsBody[float32])

// fewSplit has the kernels of conv_few_split.cu, for such convolutions of all results.
var fewSplit = [3]*kernels.Kernel{
	ConvOutput:  own.Kernel("conv_few_split", "conv_few_split_3x7_f32", convWindowsBody[float32]),
	ConvImages:  own.Kernel("conv_few_split", "conv_few_split_images_3x7_f32", convWindowsBody[float32]),
	ConvFilters: own.Kernel("conv_few_split", "conv_few_split_filters_3x7_f32", convFiltersBody[float32]),
}

// Constants of conv_few_split.cu.
const (
	fewSplitThreads = 512 // of a block for outputs
	fewSplitHigh    = 4   // pixels of its tile
	fewSplitWide    = 112
	fewSplitShared  = 384 + 3*22*1024 + 2*3*(3*13*116*4) // bytes: of filters, and of what two tiles meet

	fewSplitImageThreads = 384                                    // of a block for images
	fewSplitImageWide    = 112                                    // pairs of columns
	fewSplitImageShared  = 384 + 3*32*48*16 + 2*3*(32*120*4) + 64 // bytes: of filters, and of two lines of gradients

	fewSplitFilterThreads = 896                         // of a block for filters
	fewSplitFilterPixels  = 16                          // of a row of a stage
	fewSplitFilterShared  = 1280 + 4*(16896+3*4*2*1024) // bytes of four stages
)

// strided reports whether images have 3 channels with 7 x 7 taps at a stride of 2. Gradients w.r.t. images want odd paddings.
func (v Conv) strided() bool {
	fits := func(a ConvAxis) bool {
		return a.Size == 7 && a.Stride == 2 && a.Dilation == 1 && (a.Before%2 != 0 || v.Result != ConvImages)
	}
	return v.Channels == 3 && v.ChannelsLast == [2]bool{} && fits(v.Rows) && fits(v.Columns)
}

// squareTiles returns the tiles of fewSquares, of pixels.
func (v Conv) squareTiles() int64 {
	side := func(pixels int64) int64 { return kernels.CeilDiv(pixels, 2*fewSide) }
	return v.Images * side(v.Rows.In) * side(v.Columns.In)
}

// fewSplit returns the time of a kernel of fewSplit by the model in us, and what appends its launches; ok is false if there is none for the convolution.
func (v Conv) fewSplit(dev kernels.Device) (us float64, emit func(p *kernels.Plan, args convArgs) error, ok bool) {
	if !v.takesFew(dev) || !v.strided() || v.Filters > 1<<20 || v.Result == ConvImages && v.Filters > fewMost {
		return 0, nil, false
	}
	rows, columns, across := v.Rows.Out(), v.Columns.Out(), kernels.CeilDiv(v.Filters, fewMost)
	blocks := max(int64(dev.SMs)/across, 1)
	launch := func(x, y int64, threads, shared int) func(p *kernels.Plan, args convArgs) error {
		return func(p *kernels.Plan, args convArgs) error {
			args.Chunk = args.K
			l := p.Launch(fewSplit[v.Result], int(x), threads, args)
			l.Grid[1], l.Shared = int(y), shared
			return kernels.CheckGrid(x)
		}
	}
	switch us = convLaunch + fewSplitStart; v.Result {
	case ConvOutput:
		tiles := v.Images * kernels.CeilDiv(rows, fewSplitHigh) * kernels.CeilDiv(columns, fewSplitWide)
		us += float64(kernels.CeilDiv(tiles, blocks)*kernels.CeilDiv(min(columns, fewSplitWide), 16)) * fewSplitTile
		return us, launch(min(tiles, blocks), across, fewSplitThreads, fewSplitShared), true
	case ConvImages:
		pairs, units := kernels.CeilDiv(v.Rows.In, 2), v.Images*kernels.CeilDiv(v.Columns.In, 2*fewSplitImageWide)
		parts, lines := int64(1), int64(math.MaxInt64)
		for n := int64(1); n <= min(pairs, 1<<10); n++ { // a part has lines before and after its own
			if of := kernels.CeilDiv(units*n, int64(dev.SMs)) * (kernels.CeilDiv(pairs, n) + 3); of < lines {
				parts, lines = n, of
			}
		}
		return us + float64(lines)*fewSplitLine, launch(units, parts, fewSplitImageThreads, fewSplitImageShared), true
	}
	each := kernels.CeilDiv(v.Images*rows, blocks) // rows of a split
	stages := kernels.CeilDiv(each, rows) * kernels.CeilDiv(min(each, rows), fewSplitHigh) * kernels.CeilDiv(columns, fewSplitFilterPixels)
	us += convLaunch + float64(stages)*fewSplitStage + float64(4*int64(dev.SMs)*v.elements()[ConvFilters])/fewBytes
	return us, func(p *kernels.Plan, args convArgs) error {
		args.Chunk = each * columns
		splits := kernels.CeilDiv(args.K, args.Chunk)
		if splits > 1 {
			args.Out = p.Workspace(splits * p.Out)
		}
		p.Launch(fewSplit[v.Result], int(across*splits), fewSplitFilterThreads, args).Shared = fewSplitFilterShared
		sumSplits(p, v.Dtype, args.Count, args.Out, splits)
		return kernels.CheckGrid(across * splits)
	}, true
}

// The times of a block of fewSplit in us: before its first tile, of 64 pixels of outputs, of a stage for filters, and of a line of gradients for images.
const fewSplitStart, fewSplitTile, fewSplitStage, fewSplitLine = 5, 1.7, 2.8, 4.35

// takesFew reports whether a device has kernels for images of few channels with the convolution's elements and layouts.
func (v Conv) takesFew(dev kernels.Device) bool {
	if !isHopper(dev) || v.Dtype != kernels.Float32 || v.Groups != 1 || v.Filters < fewFilters || v.Prepared || v.Split != [2]bool{} {
		return false
	}
	return v.ChannelsLast == [2]bool{} || !v.last(ConvImages) && v.Filters%fewFilters == 0 && v.size(ConvOutput) == v.Dtype.Size()
}

// few returns the kernels of conv_few.cu, and their time by the model in us; ok is false if there are none for the convolution.
func (v Conv) few(dev kernels.Device) (k fewKind, us float64, ok bool) {
	if !v.takesFew(dev) {
		return k, 0, false
	}
	if v.Result == ConvImages && v.strided() {
		products := fewSide * fewSide * v.elements()[ConvFilters] // of a tile
		return k, convLaunch + float64(products)*max(float64(v.squareTiles())/float64(dev.SMs)/fewSquaresRate, 1/fewSquaresAlone), true
	}
	for _, k := range fewKinds {
		if v.Result != ConvImages && v.Channels == k.channels && v.Rows.Size == k.size && v.Columns.Size == k.size {
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

// The products that an SM computes by fewSquares in one us, and those of a block that is alone.
const fewSquaresRate, fewSquaresAlone = 150e3, 50e3

// fewRows reports whether a kernel for filters reads a column of a window for each pixel, as neighbours have the others. With one channel it is slower, but for gradients with channels last.
func (v Conv) fewRows() bool {
	return v.Rows.Stride == 1 && v.Columns.Stride == 1 && v.Rows.Dilation == 1 && v.Columns.Dilation == 1 && (v.Channels > 1 || v.last(ConvOutput))
}

// emit appends the launches. Outputs with channels last have 1 element from a channel to the next.
func (k fewKind) emit(p *kernels.Plan, v Conv, args convArgs, dev kernels.Device) error {
	if v.strided() {
		args.Chunk = args.K
		p.Launch(fewSquares, int(v.squareTiles()), fewSquaresThreads, args)
		return kernels.CheckGrid(v.squareTiles())
	}
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
