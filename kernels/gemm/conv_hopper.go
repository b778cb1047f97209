package gemm

import (
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// convCandidate is a kernel of conv_hopper.cu: tiles of m filters by n pixels with K slices of step channels of a tap, or by n channels of taps with K slices of step
// pixels. slice is the time of a tile's K slice on an SM, and block that of writing a tile, in us.
type convCandidate struct {
	kernel     *kernels.Kernel
	form       Form
	filters    bool // for gradients w.r.t. the filters
	m, n, step int64
	shared     int64
	slice      float64
	block      float64
}

// Times on an H200, fitted by hand to those of the seven layers of ResNet-50 that TestConvTimes has, batch 64, us with the preparing:
//
//	                   wide tile  the other
//	128 > 128, 3, 28, BF16   52.1       46.3
//	128 > 128, 3, 28, TF32   81.7       74.9
//	64 > 64, 3, 56, filters 151.5      142.6
var convTable = []convCandidate{
	convOn("f32", BF16Split, 128, 128, 1.08, 9, convPixelsBody), convOn("f32_narrow", BF16Split, 64, 256, 1.08, 9, convPixelsBody),
	convOn("bf16", BF16, 128, 256, 0.5, 4, convPixelsBody), convOn("bf16_one", BF16, 128, 128, 0.3, 2, convPixelsBody),
	convOn("tf32", TF32, 128, 256, 0.5, 4, convPixelsBody), convOn("tf32_one", TF32, 128, 128, 0.3, 2, convPixelsBody),
	convOn("filters_f32", BF16Split, 128, 128, 1.08, 9, convTapsBody), convOn("filters_f32_narrow", BF16Split, 64, 256, 1.08, 9, convTapsBody),
	convOn("filters_bf16", BF16, 128, 256, 0.5, 4, convTapsBody), convOn("filters_bf16_one", BF16, 128, 128, 0.3, 2, convTapsBody),
}

// The model's times on an H200, in us.
const (
	convPrepareBlocks = 8                    // of an SM, at most. With 6 the BF16 layer of 512 channels, 512 filters of 3 x 3 and side 7 takes 57 us, with 8 it takes 47
	convLaunches      = 6                    // of launches
	convLaunch        = 2                    // of a phase
	convUneven        = 8                    // of tiles that blocks share
	convPrepareBytes  = 3e6                  // bytes that prepare reads and writes in one
	convSquare        = 0.004                // of a square of prepare, if the whole device has one
	convSumBytes      = 1e6                  // bytes of sums of splits in one
	convFlops         = 0.9e7                // multiply-adds of conv.cu's kernels in one
	convSquareSide    = 64                   // side of a square of prepare
	convBox           = 64                   // channels of a tap that are copied at once for the filters
	convPhases        = 9                    // the most phases, each a launch
	convParts         = 2 * 2 * 64 * 128 * 4 // bytes of the parts of tiles of a block
	convFolded        = 16                   // the most channels of images whose taps of a row are copied together
)

// convOn returns the kernel of a name, which has as many stages as shared memory has room for, four at most of splits.
func convOn(name string, f Form, m, n int64, slice, block float64, body func(Form) func(kernels.Call)) convCandidate {
	s := f.stored()
	stages := 4 * 384 / (m + n) * (m + n) * s.slice
	switch {
	case f != BF16Split:
	case m == 64: // three, of which two share memory for filters
		stages = 2*s.splits*128*s.slice + 3*s.splits*n*s.slice
	default:
		stages = 4 * s.splits * (m + n) * s.slice
	}
	return convCandidate{own.Kernel("conv_hopper", "conv_hopper_"+name, body(f)), f, strings.HasPrefix(name, "filters"), m, n, s.slice / s.size, 2048 + stages + hopperFinish, slice, block}
}

// convWindows is a convolution without gradients: pixels of images by filters. For filters it is the one whose gradient they are. The gradient w.r.t. images is a convolution of
// the gradient w.r.t. outputs for each phase: pixels at a distance of the stride meet the same taps.
//
// Of images of few channels, inner taps of a row are folded into one with the channels of all. Their windows along a row, each a stride after the last, are its columns.
type convWindows struct {
	images, channels, filters int64
	rows, columns             []convPhase   // the phases of an axis
	inner, stride             int64         // taps that are folded; columns of images from one window to the next
	columnsOfFilter           int64         // taps of its rows
	planes                    [2]convPlanes // what is prepared: filters, or gradients w.r.t. outputs, and images
}

// convPhase is how pixels of a phase meet elements of images along an axis: pixel o and tap i at o stride - pad + i dilation.
type convPhase struct {
	in, pixels, taps, stride, pad, dilation int64
	at, every                               int64 // the result's element of the first pixel, and from one to the next
	first, step                             int64 // the filter's element of the first tap, and from one to the next
}

// windows returns the convolution that computes v of operands in a form, if there is one.
func (v Conv) windows(f Form) (w convWindows, ok bool) {
	w = convWindows{images: v.Images, channels: v.Channels, filters: v.Filters, rows: v.Rows.windows(), columns: v.Columns.windows(), inner: 1, stride: 1, columnsOfFilter: v.Columns.Size}
	taps := v.Rows.Size * v.Columns.Size
	switch v.Result {
	case ConvOutput:
		w.planes[0] = newConvPlanes(v.Filters, v.Channels, taps)
	case ConvFilters:
		w.planes[0] = newConvPlanes(v.Images, v.Filters, v.Rows.Out()*v.Columns.Out())
	default:
		w.channels, w.filters, w.rows, w.columns = v.Filters, v.Channels, v.Rows.phases(), v.Columns.phases()
		w.planes[0] = newConvPlanes(1, v.Filters, v.Channels*taps)
	}
	x := &w.columns[0]
	w.planes[1] = newConvPlanes(w.images, w.channels, w.rows[0].in*x.in)
	images := &w.planes[1]
	switch y := &w.rows[0]; {
	case v.Result == ConvImages:
	case taps == 1 && y.stride*x.stride > 1: // other pixels are not read
		images.Width, images.Lines, images.Wide, images.StepY, images.StepX = x.in, y.pixels, x.pixels, y.stride, x.stride
		y.in, y.stride, x.in, x.stride = y.pixels, 1, x.pixels, 1
	case w.channels <= convFolded && x.taps > 1 && x.dilation == 1:
		w.inner, w.stride, w.columnsOfFilter = x.taps, x.stride, 1
		images.Width, images.Lines, images.Wide, images.Before = x.in, y.in, (x.pixels-1)*x.stride+x.taps, x.pad
		w.channels = w.inner * images.pitch(f)
		*x = convPhase{in: x.pixels, pixels: x.pixels, taps: 1, stride: 1, dilation: 1, every: 1}
	}
	ok = v.Groups == 1 && len(w.rows)*len(w.columns) <= convPhases
	for _, p := range slices.Concat(w.rows, w.columns) {
		ok = ok && p.windowed()
	}
	return w, ok
}

// windows returns the only phase of an axis of outputs, phases those of images.
func (a ConvAxis) windows() []convPhase {
	return []convPhase{{in: a.In, pixels: a.Out(), taps: a.Size, stride: a.Stride, pad: a.Before, dilation: a.Dilation, every: 1, step: 1}}
}

func (a ConvAxis) phases() (list []convPhase) {
	x := a.images()
	for at := range min(a.Stride, a.In) {
		p := convPhase{in: a.Out(), pixels: kernels.CeilDiv(a.In-at, a.Stride), stride: 1, dilation: -x.Step, at: at, every: a.Stride, step: -x.Every}
		if first, base, ok := x.phase(at); ok { // of the filter's elements, of which the last is the first tap here
			p.taps = kernels.CeilDiv(a.Size-first, x.Every)
			p.pad, p.first = (p.taps-1)*p.dilation-base, first+(p.taps-1)*x.Every
		}
		list = append(list, p)
	}
	return list
}

// corners returns those of the places of windows for TMA, and windowed whether it takes them.
func (p convPhase) corners() (lower, upper int64) {
	if p.taps == 0 {
		return 0, 0
	}
	return -p.pad, (p.pixels-1)*p.stride - p.pad - (p.in - 1)
}

func (p convPhase) windowed() bool {
	lower, upper := p.corners()
	return min(lower, upper) >= -128 && max(lower, upper) < 128 && (p.taps-1)*p.dilation < 256 && p.stride <= 8
}

// choose returns the kernel that takes the least time by the model; ok is false if conv.cu's take less.
func (v Conv) choose(dev kernels.Device) (best convCandidate, ok bool) {
	if !isHopper(dev) || v.Dtype != kernels.Float32 {
		return best, false
	}
	wants := BF16Split                                                                 // also for F16, for which there are no kernels
	if v.Round == kernels.BF16 || v.Round == kernels.TF32 && v.Result != ConvFilters { // wgmma takes rows along K alone in TF32
		wants = Form(v.Round)
	}
	m, down := v.Filters, int64(4*convSide) // rows of conv.cu's tiles
	if v.Result == ConvImages {
		m = v.Channels
	}
	if m <= convStripRows {
		down = convSide
	}
	least := float64(v.elements()[ConvOutput]*v.Channels) * float64(v.Rows.Size*v.Columns.Size) / convFlops * float64(arith.RoundUp(m, down)) / float64(m)
	for _, c := range convTable {
		w, able := v.windows(c.form)
		if !able || c.form != wants || c.filters != (v.Result == ConvFilters) || dev.Memory > 0 && w.bytes(c.form) > dev.Memory/4 || w.bytes(c.form) > 1<<40 {
			continue
		}
		if us := c.time(w, dev); us < least {
			best, least, ok = c, us, true
		}
	}
	return best, ok
}

// pixels returns those of a phase.
func (w convWindows) pixels(y, x convPhase) int64 { return w.images * y.pixels * x.pixels }

// bytes returns those that are written in a form.
func (w convWindows) bytes(f Form) int64 { return w.planes[0].bytes(f) + w.planes[1].bytes(f) }

// width returns the columns of sums for the filters: each tap has a multiple of convBox.
func (w convWindows) width() int64 {
	return w.rows[0].taps * w.columns[0].taps * arith.RoundUp(w.channels, convBox)
}

// convCut is how a kernel divides its tiles: those of splits whose K slices are dealt out to blocks (stream-K), or the pixels of a split, for the filters; and the time by the model.
type convCut struct {
	shared, chunk int64
	us            float64
}

// tiles returns the tiles of a phase, and their K slices.
func (c convCandidate) tiles(w convWindows, y, x convPhase) (tiles, slices int64) {
	down, pixels := kernels.CeilDiv(w.filters, c.m), w.pixels(y, x)
	if c.filters {
		return down * kernels.CeilDiv(w.width(), c.n), kernels.CeilDiv(pixels, c.step)
	}
	return down * kernels.CeilDiv(pixels, c.n), y.taps * x.taps * kernels.CeilDiv(w.channels, c.step)
}

// cut returns the cut of the least time for a phase.
func (c convCandidate) cut(w convWindows, y, x convPhase, sms int64) convCut {
	tiles, slices := c.tiles(w, y, x)
	us := func(tiles, slices int64) float64 {
		return float64(kernels.CeilDiv(tiles, sms)) * (float64(slices)*c.slice + c.block)
	}
	sums := float64(w.filters*w.width()*4) / convSumBytes
	best := convCut{chunk: w.pixels(y, x), us: us(tiles, slices)}
	if c.filters {
		best.us += sums
	}
	switch {
	case c.form == BF16Split:
		even := convCut{tiles - max(tiles/sms-1, 0)*sms, best.chunk, float64(kernels.CeilDiv(tiles*slices, sms))*c.slice + float64(kernels.CeilDiv(tiles, sms))*c.block + convUneven}
		if even.us < best.us && tiles*slices >= sms {
			best = even
		}
	case c.filters:
		for splits := int64(2); splits <= min(slices, 4*sms/tiles); splits++ {
			each := kernels.CeilDiv(slices, splits)
			if more := us(tiles*kernels.CeilDiv(slices, each), each) + float64(splits)*sums; more < best.us {
				best = convCut{0, each * c.step, more}
			}
		}
	}
	return best
}

// time returns the time by the model.
func (c convCandidate) time(w convWindows, dev kernels.Device) float64 {
	us := convLaunches + float64(w.bytes(c.form)+4*(w.planes[0].elements()+w.planes[1].elements()))/convPrepareBytes +
		float64(w.planes[0].squares(c.form)+w.planes[1].squares(c.form))*convSquare
	for _, y := range w.rows {
		for _, x := range w.columns {
			if y.taps*x.taps > 0 {
				us += convLaunch + c.cut(w, y, x, int64(dev.SMs)).us
			}
		}
	}
	return us
}

// convPlanes is conv_hopper.cu's Planes.
type convPlanes struct {
	X, To                                                              kernels.Ref
	Count, Rows, Cols, Pitch, Width, Lines, Wide, Before, StepY, StepX int64 `arg:"int32"`
}

func newConvPlanes(count, rows, cols int64) convPlanes {
	return convPlanes{Count: count, Rows: rows, Cols: cols, Width: cols, Lines: 1, Wide: cols, StepY: 1, StepX: 1}
}

// pitch returns the elements from row to row of what is written, size those of all rows.
func (x convPlanes) pitch(f Form) int64 { return arith.RoundUp(x.Rows, 16/f.stored().size) }
func (x convPlanes) size(f Form) int64  { return x.Count * x.Lines * x.Wide * x.pitch(f) }

// squares returns those that prepare moves.
func (x convPlanes) squares(f Form) int64 {
	return x.Count * kernels.CeilDiv(x.pitch(f), convSquareSide) * kernels.CeilDiv(x.Lines*x.Wide, convSquareSide)
}

// elements returns those that are read.
func (x convPlanes) elements() int64 { return x.Count * x.Rows * x.Cols }

// bytes returns the bytes that prepare writes.
func (x convPlanes) bytes(f Form) int64 { return f.stored().splits * x.size(f) * f.stored().size }

type convPrepareArgs struct {
	Planes           [2]convPlanes
	Ranges, Arrivals kernels.Ref
	Count            int64 `arg:"int32"` // of arrivals
}

var convPrepares = map[Form]*kernels.Kernel{
	BF16Split: own.Kernel("conv_hopper", "conv_hopper_prepare_split", convPrepareBody(BF16Split)),
	BF16:      own.Kernel("conv_hopper", "conv_hopper_prepare_bf16", convPrepareBody(BF16)),
	TF32:      own.Kernel("conv_hopper", "conv_hopper_prepare_tf32", convPrepareBody(TF32)),
}

// convTensorArgs are the arguments of the kernels. Pixel q of a column and tap i meet element q StrideY - PadY + i DilationY of images, and so along x.
type convTensorArgs struct {
	Filters, Pictures                                                                                                     kernels.TensorMap
	Out, Ranges                                                                                                           kernels.Ref
	Blocks                                                                                                                int64 `arg:"int32"` // of each operand's ranges
	Fallback                                                                                                              kernels.Ref
	Shared                                                                                                                int64 `arg:"int32"` // tiles
	Parts, Arrivals                                                                                                       kernels.Ref
	M, N, Chunk, Channels, Columns, Taps, StrideY, StrideX, PadY, PadX, DilationY, DilationX, Images, First, Down, Across int64 `arg:"int32"`
	Pixels, Width                                                                                                         arith.Divide
	Image                                                                                                                 int64
	Filter, Row, Column                                                                                                   int64 `arg:"int32"`
}

// emit appends the launches that prepare the operands and multiply them. The first int32 of the workspace tells whether a split has to be scaled.
func (c convCandidate) emit(p *kernels.Plan, v Conv, dev kernels.Device) {
	w, _ := v.windows(c.form)
	const threads, most = 256, 1024
	fallback, blocks := p.Workspace(4), int64(1)
	for i := range w.planes {
		x := &w.planes[i]
		x.X, x.To, x.Pitch = kernels.In(kernels.Operand(1-i)), p.Workspace(x.bytes(c.form)), x.pitch(c.form)
		blocks = max(blocks, x.squares(c.form))
	}
	blocks = min(blocks, convPrepareBlocks*int64(dev.SMs), most)
	clears, counts, parts := false, int64(0), int64(0)
	for _, y := range w.rows {
		for _, x := range w.columns {
			clears = clears || y.taps*x.taps == 0
			if d := c.cut(w, y, x, int64(dev.SMs)); d.shared > 0 {
				counts, parts = counts+2*d.shared, convParts*int64(dev.SMs)
			}
		}
	}
	ranges, arrivals, shares := p.Workspace(2*8*blocks), p.Workspace(4*counts), p.Workspace(parts)
	p.Launch(convPrepares[c.form], int(blocks), threads, convPrepareArgs{w.planes, ranges, arrivals, counts}).Grid[1] = 2
	if clears {
		p.Launch(convClear, int(min(kernels.CeilDiv(p.Out/4, threads), 16*int64(dev.SMs))), threads, convClearArgs{out, p.Out / 4})
	}
	row, channel := v.result()
	for _, y := range w.rows {
		for _, x := range w.columns {
			if y.taps*x.taps == 0 {
				continue
			}
			d := c.cut(w, y, x, int64(dev.SMs))
			a := c.arguments(w, y, x, row, channel)
			a.Ranges, a.Blocks, a.Fallback, a.Chunk, a.Shared, a.Parts, a.Arrivals = ranges, blocks, fallback, d.chunk, d.shared, shares, arrivals
			arrivals.Offset += 4 * 2 * d.shared
			blocks, _ := c.tiles(w, y, x)
			splits := kernels.CeilDiv(w.pixels(y, x), d.chunk)
			if d.shared > 0 {
				blocks = int64(dev.SMs)
			}
			if c.filters {
				blocks *= splits
				a.N, a.Out = w.width(), p.Workspace(splits*a.M*w.width()*4)
			}
			p.Launch(c.kernel, int(min(blocks, int64(dev.SMs))), hopperThreads, a).Shared = int(c.shared)
			if c.filters {
				p.Launch(convSum, int(min(kernels.CeilDiv(p.Out/4, threads), 16*int64(dev.SMs))), threads, convSumArgs{a.Out, out, a.M, a.N, splits, fallback, c.form == BF16Split,
					arith.DivideBy(v.Rows.Size * v.Columns.Size), arith.DivideBy(v.Channels), arith.DivideBy(w.inner), w.channels / w.inner})
			}
		}
	}
}

// result returns the elements from one row of the result to the next, and of one of its channels.
func (v Conv) result() (row, channel int64) {
	if v.Result == ConvImages {
		return v.Columns.In, v.Rows.In * v.Columns.In
	}
	return v.Columns.Out(), v.Rows.Out() * v.Columns.Out()
}

// arguments returns the arguments for a phase, whose result has rows and channels so many elements apart.
func (c convCandidate) arguments(w convWindows, y, x convPhase, row, channel int64) convTensorArgs {
	s, size := c.form.stored(), c.form.stored().size
	a := convTensorArgs{Out: kernels.At(kernels.Out, 4*(y.at*row+x.at)), M: w.filters, N: w.pixels(y, x), Channels: w.channels, Columns: x.taps, Taps: y.taps * x.taps,
		StrideY: y.stride, StrideX: x.stride, PadY: y.pad, PadX: x.pad, DilationY: y.dilation, DilationX: x.dilation, Images: w.images,
		Pixels: arith.DivideBy(y.pixels * x.pixels), Width: arith.DivideBy(x.pixels), Image: w.filters * channel, Filter: channel, Row: y.every * row, Column: x.every}
	pixel := w.planes[1].Pitch * size
	line := pixel * x.in
	if w.inner > 1 {
		line = pixel * w.planes[1].Wide
	}
	lowerY, upperY := y.corners()
	lowerX, upperX := x.corners()
	a.Pictures = kernels.TensorMap{Ref: w.planes[1].To, Element: s.element, Extents: []int64{w.channels, x.in, y.in, s.splits * w.images}, Strides: []int64{w.stride * pixel, line, y.in * line},
		Box: []int64{c.step, c.n * c.m / tensorTile}, Swizzle: s.slice, Windows: &kernels.TensorWindows{Lower: []int64{lowerX, lowerY}, Upper: []int64{upperX, upperY}, Steps: []int64{x.stride, y.stride}}}
	if c.filters {
		row := w.planes[0].Pitch * size
		a.Filters = kernels.TensorMap{Ref: w.planes[0].To, Element: s.element, Extents: []int64{w.filters, a.N, s.splits, 1}, Strides: []int64{row, a.N * row, s.splits * a.N * row},
			Box: []int64{convBox, c.step, 1, 1}, Swizzle: 2 * convBox}
		a.Pictures.Box, a.Pictures.Swizzle = []int64{convBox, c.step}, 2*convBox
		return a
	}
	taps := w.planes[0].Count * w.planes[0].Cols / w.filters / w.inner // of a filter
	a.Down, a.Across = y.step*w.columnsOfFilter, x.step
	a.First = y.first*w.columnsOfFilter + x.first
	tap := w.inner * w.planes[0].Pitch * size
	a.Filters = kernels.TensorMap{Ref: w.planes[0].To, Element: s.element, Extents: []int64{w.channels, taps, w.filters, s.splits}, Strides: []int64{tap, taps * tap, w.filters * taps * tap},
		Box: []int64{c.step, 1, c.m, 1}, Swizzle: s.slice}
	return a
}

var convClear = own.Kernel("conv_hopper", "conv_hopper_clear", func(c kernels.Call) {
	a := kernels.Args[convClearArgs](c)
	clear(kernels.Slice[float32](c, a.Out)[:a.Count])
})

type convClearArgs struct {
	Out   kernels.Ref
	Count int64
}

var convSum = own.Kernel("conv_hopper", "conv_hopper_sum", convSumBody)

type convSumArgs struct {
	Sums, Out             kernels.Ref
	M, N, Splits          int64 `arg:"int32"`
	Fallback              kernels.Ref
	Guarded               bool
	Taps, Channels, Inner arith.Divide
	Pitch                 int64 `arg:"int32"`
}
