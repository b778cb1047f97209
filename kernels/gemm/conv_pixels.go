package gemm

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// Constants of conv_pixels.cu.
const (
	pixelsOfThread = 8
	pixelsMaxBytes = 72 << 10 // of shared memory of a block, three of which share an SM
	pixelsStage    = 36 << 10 // bytes that a stage should have at most
	pixelsMinWidth = 8        // of a tile, where images are wider

	pixelsMaxSplits = 256 // of the channels
)

// pixelsKernels has the kernels by the rows that a thread computes.
var pixelsKernels = []struct {
	rows, blocks int64 // blocks of an SM
	kernel       *kernels.Kernel
}{
	{2, 3, own.Kernel("conv_pixels", "conv_pixels_2_f32", pixelTilesBody)},
	{4, 3, own.Kernel("conv_pixels", "conv_pixels_4_f32", pixelTilesBody)},
	{8, 2, own.Kernel("conv_pixels", "conv_pixels_8_f32", pixelTilesBody)},
}

func pixelTilesBody(c kernels.Call) {
	windowsIn[float32](c, kernels.Args[convPixelsArgs](c).convArgs, kernels.FullPrecision, nil)
}

// convPixelsArgs are the arguments of the kernels: conv_pixels.cu's Tile is behind those of all.
type convPixelsArgs struct {
	convArgs
	Across, Down, Plane, Width, Wide arith.Divide
	Each, Size, Channels, Stages     int64 `arg:"int32"`
}

// convPixels is a division of a convolution: tiles of width x height pixels, of `each` images if a tile has a whole one, splits of the channels, and channels of a stage. us is the time by the model.
type convPixels struct {
	width, height, each, splits, channels int64
	rows                                  int64 // of the kernel
	blocks, bytes                         int64
	us                                    float64
}

// The model's constants, of an H200 and an H100: instructions of warps that an SM issues in one us, those of a block that is alone, and bytes of splits that are written and read.
const pixelsRate, pixelsAlone, pixelsSplitBytes = 5000, 2500, 4e6

// met returns how many elements n pixels of a phase meet at most.
func (a along) met(n int64) int64 {
	return (n-1)*a.Stride + (a.tapsOf()-1)*max(a.Step, -a.Step) + 1
}

// pixels returns the division of the least time by the model; ok is false if there is none.
func (v Conv) pixels(dev kernels.Device) (best convPixels, ok bool) {
	const tile, most = pixelsOfThread * convThreads, 16
	a := v.arguments()
	if !isHopper(dev) || v.Dtype != kernels.Float32 || v.Result == ConvFilters || v.tensorAlone() || v.filterEach() {
		return best, false
	}
	width, height, limit := a.PixelRow.D, a.Pixels.D/a.PixelRow.D, int64(pixelsMaxBytes)
	if dev.SharedOptin > 0 {
		limit = min(limit, int64(dev.SharedOptin))
	}
	best.us = math.Inf(1)
	for _, k := range pixelsKernels {
		if k.rows < a.M {
			continue
		}
		first := kernels.CeilDiv(width, tile)
		for across := first; across < first+most; across++ {
			c := convPixels{rows: k.rows, width: kernels.CeilDiv(width, across)}
			if across > first && c.width < pixelsMinWidth {
				break
			}
			for down := kernels.CeilDiv(height, min(height, tile/c.width)); c.height != 1; down *= 2 {
				if c.height = kernels.CeilDiv(height, down); across*down > first && c.width*c.height < tile/8 {
					break
				}
				if c.each = 1; across*down == 1 {
					c.each = max(min(tile/(c.width*c.height), v.Images, (1<<30)/a.OuterPixel), 1)
				}
				for c.splits = 1; c.splits <= min(a.K/a.Taps.D, pixelsMaxSplits); c.splits = max(c.splits+1, c.splits*5/4) {
					if c.measure(v, a, k.blocks, limit, int64(dev.SMs)); c.us < best.us {
						best = c
					}
				}
			}
		}
		break
	}
	return best, !math.IsInf(best.us, 1)
}

// size returns the elements that a tile's pixels read of an image and a channel, rounded up to vectors of four: the taps behind them are loaded as vectors.
func (c convPixels) size(a convArgs) int64 {
	return arith.RoundUp(a.Rows.met(c.height)*a.Columns.met(c.width), 4)
}

// chunk returns the channels of a split.
func (c convPixels) chunk(a convArgs) int64 { return kernels.CeilDiv(a.K/a.Taps.D, c.splits) }

// measure sets the blocks, the shared memory and the time, which is infinite if a block has no room. resident blocks share an SM.
func (c *convPixels) measure(v Conv, a convArgs, resident, limit, sms int64) {
	size, chunk := c.size(a), c.chunk(a)
	channel := 4 * (c.each*size + a.Taps.D*c.rows)
	c.channels = max(min(chunk, pixelsStage/channel), 1)
	c.bytes = channel * c.channels * c.stages(a)
	tiles := kernels.CeilDiv(a.PixelRow.D, c.width) * kernels.CeilDiv(a.Pixels.D/a.PixelRow.D, c.height) * kernels.CeilDiv(v.Images, c.each) * a.Groups * c.splits
	phases := a.Rows.Phases * a.Columns.Phases
	if c.blocks, c.us = tiles*phases, math.Inf(1); c.bytes > limit || kernels.CheckGrid(tiles) != nil || kernels.CheckGrid(c.blocks) != nil {
		return
	}
	loads := kernels.CeilDiv(size, convThreads)
	tap := float64(chunk * max(pixelsOfThread*c.rows+2*pixelsOfThread+c.rows/4+3, 4*(pixelsOfThread+c.rows))) // instructions of a warp; shared memory takes as long as four
	rest := float64(chunk*(loads*c.each*7+kernels.CeilDiv(a.Taps.D*c.rows, convThreads)*30) + kernels.CeilDiv(chunk, c.channels)*(loads*30+60) + 400)
	longest := 8 * (float64(a.Taps.D)*tap + rest)
	total := 8 * float64(tiles) * (float64(a.Rows.Filter*a.Columns.Filter)*tap + float64(phases)*rest) / float64(sms)
	busiest := longest * float64(min(kernels.CeilDiv(c.blocks, sms), resident))
	if c.blocks > resident*sms {
		total += busiest / 2 // blocks end at different times
	}
	bytes := float64(c.blocks * 4 * (c.each*size*chunk + pixelsOfThread*convThreads*a.M))
	if c.us = convLaunch + 1 + max(total/pixelsRate, busiest/pixelsRate, longest/pixelsAlone, bytes/convPrepareBytes); c.splits > 1 {
		c.us += convLaunch + float64(8*a.Count*c.splits)/pixelsSplitBytes
	}
}

// stages returns 1 if a stage has all channels of a split, else 2.
func (c convPixels) stages(a convArgs) int64 { return min(kernels.CeilDiv(c.chunk(a), c.channels), 2) }

// emit appends the launches.
func (c convPixels) emit(p *kernels.Plan, v Conv, args convArgs) error {
	t := convPixelsArgs{args, arith.DivideBy(kernels.CeilDiv(args.PixelRow.D, c.width)), arith.DivideBy(kernels.CeilDiv(args.Pixels.D/args.PixelRow.D, c.height)),
		arith.DivideBy(c.width * c.height), arith.DivideBy(c.width), arith.DivideBy(args.Columns.met(c.width)), c.each, c.size(args), c.channels, c.stages(args)}
	t.Chunk = c.chunk(args) * args.Taps.D
	splits := kernels.CeilDiv(t.K, t.Chunk)
	if splits > 1 {
		t.Out = p.Workspace(splits * p.Out)
	}
	for _, k := range pixelsKernels {
		if k.rows == c.rows {
			p.Launch(k.kernel, int(c.blocks/c.splits*splits), convThreads, t).Shared = int(c.bytes)
		}
	}
	sumSplits(p, v.Dtype, t.Count, t.Out, splits)
	return nil
}
