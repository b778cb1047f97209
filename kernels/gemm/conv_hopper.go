package gemm

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// convWindows is a convolution without gradients: pixels of images by filters. For filters it is the one whose gradient they are. The gradient w.r.t. images is a convolution of
// the gradient w.r.t. outputs for each phase: pixels at a distance of the stride meet the same taps.
//
// Of images of few channels, inner taps of a row are folded into one with the channels of all. Their windows along a row, each a stride after the last, are its columns.
type convWindows struct {
	images, groups    int64
	channels, filters int64         // of a group
	rows, columns     []convPhase   // the phases of an axis
	inner, stride     int64         // taps that are folded; columns of images from one window to the next
	columnsOfFilter   int64         // taps of its rows
	planes            [2]convPlanes // what is prepared: filters, or gradients w.r.t. outputs, and images
	last, given       [2]bool       // which of them have channels last, and need no preparing
	each              int64         // images of a group, as prepared
	merged            int64         // groups of the convolution that are one
	odd               bool          // whether pairs of results are not 8 bytes of memory, so that kinds for two blocks of an SM write them one by one
}

// convPhase is how pixels of a phase meet elements of images along an axis: pixel o and tap i at o stride - pad + i dilation.
type convPhase struct {
	in, pixels, taps, stride, pad, dilation int64
	at, every                               int64 // the result's element of the first pixel, and from one to the next
	first, step                             int64 // the filter's element of the first tap, and from one to the next
}

// windows returns the convolution that computes v of operands in a form, if there is one.
func (v Conv) windows(f Form) (w convWindows, ok bool) {
	w = convWindows{images: v.Images, groups: v.Groups, channels: v.Channels / v.Groups, filters: v.Filters / v.Groups, rows: v.Rows.windows(), columns: v.Columns.windows(), inner: 1, stride: 1, columnsOfFilter: v.Columns.Size}
	taps := v.Rows.Size * v.Columns.Size
	w.merged = merge(w.groups, w.channels, w.filters, f.stored().slice/f.stored().size)
	switch v.Result {
	case ConvOutput:
		w.planes[0] = newConvPlanes(v.Filters, w.channels, taps)
	case ConvFilters:
	default:
		w.channels, w.filters, w.rows, w.columns = w.filters, w.channels, v.Rows.phases(), v.Columns.phases()
		w.planes[0] = newConvPlanes(v.Groups, w.channels, w.filters*taps)
	}
	if v.Result != ConvFilters {
		w.planes[0].Per, w.planes[0].Blocks = w.planes[0].Count/w.groups, w.merged
	}
	w.groups, w.channels, w.filters = w.groups/w.merged, w.channels*w.merged, w.filters*w.merged
	x, after := &w.columns[0], int64(0)
	if v.Result == ConvFilters && w.groups > 1 { // the last K slice of a group reads zeros beyond it: 0 times NaN is not 0
		after = kernels.CeilDiv(convBox, w.rows[0].pixels*x.pixels)
	}
	w.each = w.images + after
	w.planes[1] = newConvPlanes(w.each*w.groups, w.channels, w.rows[0].in*x.in)
	w.planes[1].Groups, w.planes[1].After = w.groups, after
	if v.Result == ConvFilters {
		w.planes[0] = newConvPlanes(w.each*w.groups, w.filters, w.rows[0].pixels*x.pixels)
		w.planes[0].Groups, w.planes[0].After = w.groups, after
	}
	for i, of := range convOperands[v.Result] {
		w.last[1-i] = v.last(of)
		w.given[1-i] = w.last[1-i] && f != bf16Pair || f == BF16Split && v.Split[i]
	}
	if !v.last(v.Result) && v.Result != ConvFilters {
		row, _, image, channel := v.result()
		w.odd = x.every > 1 || (x.pixels|row|image|channel)%2 > 0
	}
	if v.Result == ConvOutput && f == TF32 && taps == 1 && v.Channels%4 == 0 && v.Groups == 1 { // rows of channels, which TMA rounds
		w.given[0] = true
	}
	w.given[0] = w.given[0] || v.Prepared
	images := &w.planes[1]
	switch y := &w.rows[0]; {
	case v.Result == ConvImages || w.last[1]:
	case taps == 1 && y.stride*x.stride > 1: // other pixels are not read
		images.Width, images.Lines, images.Wide, images.StepY, images.StepX = x.in, y.pixels, x.pixels, y.stride, x.stride
		y.in, y.stride, x.in, x.stride = y.pixels, 1, x.pixels, 1
	case w.channels <= convFolded && x.taps > 1 && x.dilation == 1:
		w.inner, w.stride, w.columnsOfFilter = x.taps, x.stride, 1
		images.Width, images.Lines, images.Wide, images.Before = x.in, y.in, (x.pixels-1)*x.stride+x.taps, x.pad
		w.channels = w.inner * images.pitch(f)
		*x = convPhase{in: x.pixels, pixels: x.pixels, taps: 1, stride: 1, dilation: 1, every: 1}
	}
	phases := int64(len(w.rows) * len(w.columns))
	ok = phases <= convPhases && (w.groups == 1 || w.last == [2]bool{}) && images.Count*images.Lines*images.Wide <= 1<<30
	ok = ok && (v.Result != ConvFilters || taps <= convSumElements && w.planes[0].Count*w.planes[0].Cols <= 1<<30)
	for _, p := range slices.Concat(w.rows, w.columns) {
		ok = ok && p.windowed()
	}
	return w, ok
}

// merge returns how many groups are multiplied as one, so that the fewest slices of K and 64 filters are multiplied.
func merge(groups, channels, filters, k int64) (best int64) {
	cost := func(n int64) float64 {
		return float64(kernels.CeilDiv(n*filters, 64)*kernels.CeilDiv(n*channels, k)) / float64(n)
	}
	best = 1
	for n := int64(2); n <= min(groups, 64); n++ {
		if groups%n == 0 && cost(n) < cost(best) {
			best = n
		}
	}
	return best
}

// TakesChannelsLast reports whether a device has kernels for the convolution with its ChannelsLast, whose channels are multiples of 8.
func (v Conv) TakesChannelsLast(dev kernels.Device) bool {
	plain := v
	if plain.ChannelsLast = [2]bool{}; plain.check(dev) != nil || !isHopper(dev) || v.Dtype != kernels.Float32 || v.Round == kernels.FullPrecision || v.Groups > 1 {
		return false
	}
	w, ok := v.windows(v.form())
	for i, x := range w.planes {
		ok = ok && !(w.last[i] && (x.Rows%8 > 0 || x.Count*x.Rows*x.Cols > 1<<30))
	}
	return ok && w.fit(v.form(), dev) && !(v.last(v.Result) && w.filters%8 > 0)
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

// pixels returns those of a phase.
func (w convWindows) pixels(y, x convPhase) int64 { return w.images * y.pixels * x.pixels }

// bytes returns those that are written in a form.
func (w convWindows) bytes(f Form) (n int64) {
	for _, x := range w.prepared() {
		n += x.bytes(f)
	}
	return n
}

// prepared lists the operands that are prepared.
func (w convWindows) prepared() (list []convPlanes) {
	for i, x := range w.planes {
		if !w.given[i] {
			list = append(list, x)
		}
	}
	return list
}

// width returns the columns of sums for the filters: each tap has a multiple of convBox.
func (w convWindows) width() int64 {
	return w.rows[0].taps * w.columns[0].taps * arith.RoundUp(w.channels, convBox)
}

// convPlanes is conv_hopper.cu's Planes.
type convPlanes struct {
	X, To                                                                                          kernels.Ref
	Count, Rows, Cols, Pitch, Width, Lines, Wide, Before, StepY, StepX, Groups, After, Per, Blocks int64 `arg:"int32"`
}

func newConvPlanes(count, rows, cols int64) convPlanes {
	return convPlanes{Count: count, Rows: rows, Cols: cols, Width: cols, Lines: 1, Wide: cols, StepY: 1, StepX: 1, Groups: 1, Per: 1, Blocks: 1}
}

// pitch returns the elements from row to row of what is written, size those of all rows.
func (x convPlanes) pitch(f Form) int64 { return arith.RoundUp(x.Rows*x.Blocks, 16/f.stored().size) }
func (x convPlanes) size(f Form) int64  { return x.Count * x.Lines * x.Wide * x.pitch(f) }

// squares returns those that prepare moves. Those of short lines are what threads of a block move in four turns.
func (x convPlanes) squares(f Form) int64 {
	switch pitch := x.pitch(f); {
	case pitch <= 8:
		return kernels.CeilDiv(x.Count*x.Lines*x.Wide, 1024)
	case x.Cols < convSquareSide && x.Lines == 1 && x.Wide == x.Cols && x.StepX == 1 && x.Before == 0:
		return x.Count * kernels.CeilDiv(pitch, convSquareSide*convSquareSide/x.Cols/8*8)
	}
	rows := int64(convSquareSide)
	for rows > 16 && x.pitch(f) <= rows/2 {
		rows /= 2
	}
	return x.Count * kernels.CeilDiv(x.pitch(f), rows) * kernels.CeilDiv(x.Lines*x.Wide, convSquareSide*convSquareSide/rows)
}

// blocks returns those that prepare the operand.
func (x convPlanes) blocks(f Form, dev kernels.Device) int64 {
	return max(min(x.squares(f), convPrepareBlocks*int64(dev.SMs), convPrepareMost), 1)
}

// elements returns those that are read.
func (x convPlanes) elements() int64 { return x.Count * x.Rows * x.Cols }

// bytes returns the bytes that prepare writes.
func (x convPlanes) bytes(f Form) int64 { return f.stored().splits * x.size(f) * f.stored().size }

// PrepareFilters plans the filters of a convolution, or of its gradient w.r.t. the images, as kernels for tensor cores read them: matrices of channels by taps are transposed and rounded. The
// filters of a parameter can be prepared before the images are computed. It is a kernels.Planner of float32, whose result is bytes.
type PrepareFilters struct {
	Form                  Form // BF16, F16 or TF32
	Count, Channels, Taps int64
}

// String names the form.
func (x PrepareFilters) String() string { return fmt.Sprintf("filters[%v]", x.Form) }

func (x PrepareFilters) planes() convPlanes { return newConvPlanes(x.Count, x.Channels, x.Taps) }

// Bytes returns the size of the result.
func (x PrepareFilters) Bytes() int64 { return x.planes().bytes(x.Form) }

// Plan implements [kernels.Planner].
func (x PrepareFilters) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if x.Form < TF32 || x.Form > F16 || min(x.Count, x.Channels, x.Taps) < 1 {
		return nil, fmt.Errorf("kernels: got %v of %d x %d x %d elements, want BF16, F16 or TF32 of 1 or more", x, x.Count, x.Channels, x.Taps)
	}
	p := &kernels.Plan{Op: fmt.Sprintf("%v(%d x %dx%d)", x, x.Count, x.Channels, x.Taps), Inputs: []int64{x.Count * x.Channels * x.Taps * kernels.Float32.Size()}, Out: x.Bytes(), Precision: kernels.Precision(x.Form)}
	planes := x.planes()
	planes.X, planes.To, planes.Pitch = kernels.In(0), out, planes.pitch(x.Form)
	emitPrepare(p, dev, x.Form, []convPlanes{planes}, kernels.At(kernels.Scratch, 0), 0, false)
	return p, nil
}

// Prepares returns what prepares the filters apart from the convolution; ok is false if its kernel on a device reads them as they are, or several groups of them as one.
func (v Conv) Prepares(dev kernels.Device) (x PrepareFilters, ok bool) {
	if v.Prepared || !v.takesPrepared(dev) {
		return x, false
	}
	prepared := v
	prepared.Prepared = true
	if prepared.choose(dev).us >= v.choose(dev).us {
		return x, false
	}
	return v.prepares(), true
}

func (v Conv) prepares() PrepareFilters {
	w, _ := v.windows(v.form())
	return PrepareFilters{v.form(), w.planes[0].Count, w.planes[0].Rows, w.planes[0].Cols}
}

// takesPrepared reports whether kernels for tensor cores read prepared filters of the convolution.
func (v Conv) takesPrepared(dev kernels.Device) bool {
	v.Prepared = false
	for range v.candidates(dev) {
		w, _ := v.windows(v.form())
		return v.form() != BF16Split && v.Result != ConvFilters && w.merged == 1 && !w.given[0]
	}
	return false
}

type convPrepareArgs struct {
	Planes           [2]convPlanes
	Ranges, Arrivals kernels.Ref
	Count            int64 `arg:"int32"` // of arrivals
	Ranged           bool
}

var convPrepares = map[Form]*kernels.Kernel{
	BF16Split: own.Kernel("conv_hopper", "conv_hopper_prepare_split", convPrepareBody(BF16Split)),
	bf16Pair:  own.Kernel("conv_hopper", "conv_hopper_prepare_pair", convPrepareBody(bf16Pair)),
	BF16:      own.Kernel("conv_hopper", "conv_hopper_prepare_bf16", convPrepareBody(BF16)),
	F16:       own.Kernel("conv_hopper", "conv_hopper_prepare_f16", convPrepareBody(F16)),
	TF32:      own.Kernel("conv_hopper", "conv_hopper_prepare_tf32", convPrepareBody(TF32)),
}

// convRanges has the ranges of an operand's numbers, one from each block that prepared it.
type convRanges struct {
	At     kernels.Ref
	Blocks int64 `arg:"int32"`
}

// convTensorArgs are the arguments of the kernels. Pixel q of a column and tap i meet element q StrideY - PadY + i DilationY of images, and so along x.
type convTensorArgs struct {
	Filters, Pictures                                                                        kernels.TensorMap
	Out                                                                                      kernels.Ref
	Ranges                                                                                   [2]convRanges
	Fallback                                                                                 kernels.Ref
	Shared                                                                                   int64 `arg:"int32"` // tiles
	Parts, Arrivals                                                                          kernels.Ref
	M, N, Chunk, Channels, Columns, Taps, StrideY, StrideX, PadY, PadX, DilationY, DilationX int64 `arg:"int32"`
	Images, Groups, Group, Plane, First, Down, Across                                        int64 `arg:"int32"` // Group and Plane: images from a group and from a matrix of a split to the next
	Pixels, Width                                                                            arith.Divide
	Image                                                                                    int64
	Filter, Row, Column                                                                      int64 `arg:"int32"`
	Merged                                                                                   bool
	How                                                                                      int64 `arg:"int32"`
}

// emit appends the launches that prepare the operands and multiply them, and those of the element type's unit, which follow where a split has to be scaled: the first int32 of the
// workspace tells it.
func (c convCandidate) emit(p *kernels.Plan, v Conv, args convArgs, dev kernels.Device) error {
	w, _ := v.windows(c.form)
	switch c.form {
	case BF16Split:
	case bf16Pair:
		p.Precision = kernels.TF32
	default:
		p.Precision = kernels.Precision(c.form)
	}
	const threads = 256
	fallback := p.Workspace(4)
	var prepared []convPlanes
	var ranged []int // operands that are prepared
	var ranges [2]convRanges
	for i := range w.planes {
		x := &w.planes[i]
		x.X, x.Pitch = kernels.In(kernels.Operand(1-i)), x.pitch(c.form)
		if x.To = x.X; c.form == BF16Split && v.Split[1-i] {
			x.To = kernels.In(2)
			if i == 0 && v.Split[0] {
				x.To = kernels.In(3)
			}
			ranges[i] = convRanges{kernels.At(x.To.Operand, x.bytes(c.form)), x.blocks(c.form, dev)}
		} else if !w.given[i] {
			ranged = append(ranged, i)
			x.To = p.Workspace(x.bytes(c.form))
			prepared = append(prepared, *x)
			if last := &prepared[len(prepared)-1]; w.last[i] {
				last.flat()
			}
		}
	}
	clears, counts, parts := false, int64(0), int64(0)
	for _, y := range w.rows {
		for _, x := range w.columns {
			clears = clears || y.taps*x.taps == 0
			if d := c.cut(w, y, x, int64(dev.SMs)); d.shared > 0 {
				counts, parts = counts+2*d.shared, convParts*int64(dev.SMs)
			}
		}
	}
	arrivals, shares := p.Workspace(4*counts), p.Workspace(parts)
	if len(prepared) == 0 && counts > 0 { // arrivals are cleared
		prepared = []convPlanes{newConvPlanes(0, 1, 1)}
		prepared[0].X, prepared[0].To = kernels.In(0), fallback
	}
	found, blocks := emitPrepare(p, dev, c.form, prepared, arrivals, counts, w.merged > 1)
	for k, i := range ranged {
		ranges[i] = convRanges{kernels.At(found.Operand, found.Offset+8*blocks*int64(k)), blocks}
	}
	for i := range ranges { // of which no kernel reads any, but they have to be somewhere
		if ranges[i].Blocks == 0 {
			ranges[i].At = found
		}
	}
	if clears {
		clear := convClearArgs{out, p.Out / 4, arith.DivideBy(p.Out / 4), 0}
		if w.spaced(v) { // the lines of the other phase
			clear = convClearArgs{kernels.At(kernels.Out, 4*w.rows[1].at*v.Columns.In), p.Out / 8, arith.DivideBy(v.Columns.In), 2 * v.Columns.In}
		}
		p.Launch(convClear, int(min(kernels.CeilDiv(clear.Count, threads), 16*int64(dev.SMs))), threads, clear)
	}
	for phase := range int64(len(w.rows) * len(w.columns)) {
		y, x := w.rows[phase/int64(len(w.columns))], w.columns[phase%int64(len(w.columns))]
		if y.taps*x.taps == 0 {
			continue
		}
		d := c.cut(w, y, x, int64(dev.SMs))
		a := c.arguments(w, y, x, v)
		a.Ranges, a.Fallback, a.Chunk, a.Shared, a.Parts, a.Arrivals = ranges, fallback, d.chunk, d.shared, shares, arrivals
		arrivals.Offset += 4 * 2 * d.shared
		splits := kernels.CeilDiv(w.pixels(y, x), d.chunk)
		if c.filters {
			a.N, a.Out = w.width(), p.Workspace(splits*v.Filters*w.width()*4)
		}
		p.Launch(c.kernel, int(d.blocks), c.threads(), a).Shared = int(c.shared)
		if c.filters {
			taps, channels := v.Rows.Size*v.Columns.Size, v.Channels/v.Groups
			some := int64(1)
			for some < channels && 2*some*taps <= convSumElements && v.Filters*kernels.CeilDiv(channels, 2*some) >= 2*int64(dev.SMs) || some*taps < convSumLeast {
				some *= 2
			}
			p.Launch(convSum, int(min(v.Filters*kernels.CeilDiv(channels, some), 16*int64(dev.SMs))), threads, convSumArgs{a.Out, out, v.Filters, a.N, splits, fallback, c.form == BF16Split,
				taps, channels, v.Filters / v.Groups, w.merged, arith.DivideBy(w.inner), w.channels / w.inner, arith.DivideBy(some)})
		}
	}
	if c.form != BF16Split && (w.merged == 1 || c.filters) {
		return nil
	}
	args.When, args.Guarded = fallback, true
	return v.launch(p, dev, args)
}

// emitPrepare appends the launch that prepares a list of operands and clears `counts` arrivals. An empty list makes no launch. It returns where the blocks write their ranges, and the number of blocks.
func emitPrepare(p *kernels.Plan, dev kernels.Device, f Form, list []convPlanes, arrivals kernels.Ref, counts int64, ranged bool) (ranges kernels.Ref, blocks int64) {
	const threads = 256
	blocks = 1
	for i := range list {
		if x := &list[i]; x.Cols == 1 {
			x.flat()
		}
		blocks = max(blocks, list[i].blocks(f, dev))
	}
	if ranges = p.Workspace(2 * 8 * blocks); len(list) > 0 {
		p.Launch(convPrepares[f], int(blocks), threads, convPrepareArgs{[2]convPlanes{list[0], list[len(list)-1]}, ranges, arrivals, counts, ranged}).Grid[1] = len(list)
	}
	return ranges, blocks
}

// flat makes all rows one, if nothing is transposed.
func (x *convPlanes) flat() {
	if x.Rows != x.Pitch || x.Lines*x.Wide != x.Cols || x.Groups != 1 {
		return
	}
	y := newConvPlanes(1, x.Count*x.Rows*x.Cols, 1)
	y.X, y.To, y.Pitch = x.X, x.To, y.Rows
	*x = y
}

// result returns the elements of the result from one row to the next, from a pixel to the next, of an image and from a channel to the next.
func (v Conv) result() (row, pixel, image, channel int64) {
	channels, rows, columns := v.Filters, v.Rows.Out(), v.Columns.Out()
	if v.Result == ConvImages {
		channels, rows, columns = v.Channels, v.Rows.In, v.Columns.In
	}
	if v.last(v.Result) {
		return columns * channels, channels, rows * columns * channels, 1
	}
	return columns, 1, rows * columns * channels, rows * columns
}

// arguments returns the arguments for a phase.
func (c convCandidate) arguments(w convWindows, y, x convPhase, v Conv) convTensorArgs {
	s, size := c.form.stored(), c.form.stored().size
	row, column, image, channel := v.result()
	a := convTensorArgs{Out: kernels.At(kernels.Out, v.size(v.Result)*(y.at*row+x.at*column)), M: w.filters, N: w.pixels(y, x), Channels: w.channels, Columns: x.taps, Taps: y.taps * x.taps,
		StrideY: y.stride, StrideX: x.stride, PadY: y.pad, PadX: x.pad, DilationY: y.dilation, DilationX: x.dilation, Images: w.images, Groups: w.groups, Group: w.each, Plane: w.groups * w.each,
		Pixels: arith.DivideBy(y.pixels * x.pixels), Width: arith.DivideBy(x.pixels), Image: image, Filter: channel, Row: y.every * row, Column: x.every * column, Merged: w.merged > 1 && !c.filters}
	if v.last(v.Result) {
		a.How = convLast
	} else if w.spaced(v) {
		a.How = convSpaced
	}
	pixel := w.planes[1].Pitch * size
	line := pixel * x.in
	if w.inner > 1 {
		line = pixel * w.planes[1].Wide
	}
	lowerY, upperY := y.corners()
	lowerX, upperX := x.corners()
	pictures, filters := w.planes[1].To, w.planes[0].To
	a.Pictures = kernels.TensorMap{Ref: pictures, Element: s.element, Extents: []int64{w.channels, x.in, y.in, s.splits * a.Plane}, Strides: []int64{w.stride * pixel, line, y.in * line},
		Box: []int64{c.step, c.n * c.m / tensorTile}, Swizzle: s.slice, Windows: &kernels.TensorWindows{Lower: []int64{lowerX, lowerY}, Upper: []int64{upperX, upperY}, Steps: []int64{x.stride, y.stride}}}
	if c.filters {
		row, pixels := w.planes[0].Pitch*size, a.Plane*a.Pixels.D
		a.Filters = kernels.TensorMap{Ref: filters, Element: s.element, Extents: []int64{w.filters, pixels, s.splits, 1}, Strides: []int64{row, pixels * row, s.splits * pixels * row},
			Box: []int64{convBox, c.step, 1, 1}, Swizzle: 2 * convBox}
		a.Pictures.Box, a.Pictures.Swizzle = []int64{convBox, c.step}, 2*convBox
		return a
	}
	taps := w.planes[0].Count * w.planes[0].Cols / (w.groups * w.filters) / w.inner // of a filter
	a.Down, a.Across = y.step*w.columnsOfFilter, x.step
	a.First = y.first*w.columnsOfFilter + x.first
	tap := w.inner * w.planes[0].Pitch * size
	a.Filters = kernels.TensorMap{Ref: filters, Element: s.element, Extents: []int64{w.channels, taps, w.groups * w.filters, s.splits}, Strides: []int64{tap, taps * tap, w.groups * w.filters * taps * tap},
		Box: []int64{c.step, 1, c.m, 1}, Swizzle: s.slice}
	return a
}

var convClear = own.Kernel("conv_hopper", "conv_hopper_clear", func(c kernels.Call) {
	a := kernels.Args[convClearArgs](c)
	to := kernels.Slice[float32](c, a.Out)
	for i := range a.Count {
		to[i/a.Width.D*a.Next+i%a.Width.D] = 0
	}
})

type convClearArgs struct {
	Out   kernels.Ref
	Count int64 `arg:"int32"`
	Width arith.Divide
	Next  int64 `arg:"int32"`
}

// How results are written, see convTensorArgs.
const convLast, convSpaced = 1, 2

// spaced reports whether float32 images have pixels that no tap meets beside each pixel that one meets: after it, and in each second line.
func (w convWindows) spaced(v Conv) bool {
	return v.Result == ConvImages && !v.last(ConvImages) && len(w.rows) == 2 && len(w.columns) == 2 && w.rows[1].taps+w.columns[1].taps == 0 && w.rows[0].taps*w.columns[0].taps > 0 &&
		v.Rows.In%2+v.Columns.In%2 == 0
}

var convSum = own.Kernel("conv_hopper", "conv_hopper_sum", convSumBody)

type convSumArgs struct {
	Sums, Out      kernels.Ref
	M, N, Splits   int64 `arg:"int32"`
	Fallback       kernels.Ref
	Guarded        bool
	Taps, Channels int64 `arg:"int32"`
	Per, Blocks    int64 `arg:"int32"` // filters of a group, groups that are one
	Inner          arith.Divide
	Pitch          int64        `arg:"int32"`
	Some           arith.Divide // channels that a block writes at a time
}
