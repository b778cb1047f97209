package gemm

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// convWindows is a convolution without gradients: pixels of images by filters. For filters it is the one whose gradient they are. The gradient w.r.t. images is a convolution of
// the gradient w.r.t. outputs for each phase: pixels at a distance of the stride meet the same taps. rows and columns are of all phases then: the most pixels and taps of one.
//
// Where it saves K slices, inner taps of a row are folded into one with the channels of all. Their windows along a row, each a stride after the last, are its columns.
type convWindows struct {
	images, groups    int64
	channels, filters int64 // of a group
	rows, columns     convPhase
	phases            [2]convPhases // of rows and columns
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

// convPhases is conv_hopper.cu's Phases: those of an axis that taps meet.
type convPhases struct {
	Count, Stride, Dilation, Pad, Size, Every, Step, Most, In int64 `arg:"int32"`
}

// phase returns the taps of a phase, the element of the first one in a window, their first element of the filter, the first pixel, and the pixels.
func (p convPhases) phase(k int64) (taps, offset, first, at, pixels int64) {
	if p.Stride == 0 {
		return 0, 0, 0, 0, 1 << 30
	}
	from := k*p.Dilation - p.Pad
	at = (from%p.Stride + p.Stride) % p.Stride
	taps = kernels.CeilDiv(p.Size-k, p.Every)
	return taps, p.Most - (taps-1)*p.Step + (at-from)/p.Stride, k + (taps-1)*p.Every, at, max(kernels.CeilDiv(p.In-at, p.Stride), 0)
}

// windows returns the convolution that computes v of operands in a form, if there is one.
func (v Conv) windows(f Form) (w convWindows, ok bool) {
	w = convWindows{images: v.Images, groups: v.Groups, channels: v.Channels / v.Groups, filters: v.Filters / v.Groups, rows: v.Rows.windows(), columns: v.Columns.windows(), phases: [2]convPhases{{Count: 1}, {Count: 1}},
		inner: 1, stride: 1, columnsOfFilter: v.Columns.Size}
	taps := v.Rows.Size * v.Columns.Size
	k := f.stored().slice / f.stored().size // channels of a K slice
	w.merged = merge(w.groups, w.channels, w.filters, k)
	switch v.Result {
	case ConvOutput:
		w.planes[0] = newConvPlanes(v.Filters, w.channels, taps)
	case ConvFilters:
	default:
		w.channels, w.filters = w.filters, w.channels
		w.rows, w.phases[0] = v.Rows.phases()
		w.columns, w.phases[1] = v.Columns.phases()
		w.planes[0] = newConvPlanes(v.Groups, w.channels, w.filters*taps)
	}
	if v.Result != ConvFilters {
		w.planes[0].Per, w.planes[0].Blocks = w.planes[0].Count/w.groups, w.merged
	}
	w.groups, w.channels, w.filters = w.groups/w.merged, w.channels*w.merged, w.filters*w.merged
	y, x, after := &w.rows, &w.columns, int64(0)
	if v.Result == ConvFilters && w.groups > 1 { // the last K slice of a group reads zeros beyond it: 0 times NaN is not 0
		after = kernels.CeilDiv(convBox, y.pixels*x.pixels)
	}
	w.each = w.images + after
	w.planes[1] = newConvPlanes(w.each*w.groups, w.channels, y.in*x.in)
	w.planes[1].Groups, w.planes[1].After = w.groups, after
	if v.Result == ConvFilters {
		w.planes[0] = newConvPlanes(w.each*w.groups, w.filters, y.pixels*x.pixels)
		w.planes[0].Groups, w.planes[0].After = w.groups, after
	}
	for i, of := range convOperands[v.Result] {
		w.last[1-i] = v.last(of)
		w.given[1-i] = w.last[1-i] || f == BF16Split && v.Split[i]
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
	fold := x.taps > 1 && x.dilation == 1 && kernels.CeilDiv(x.taps*images.pitch(f), k) < x.taps*kernels.CeilDiv(w.channels, k)
	if w.last[1] { // then no zeros can be between the rows
		fold = fold && x.pad == 0 && (x.pixels-1)*x.stride+x.taps <= x.in
	}
	switch {
	case v.Result == ConvImages || w.last[1] && !fold:
	case taps == 1 && y.stride*x.stride > 1: // other pixels are not read
		images.Width, images.Lines, images.Wide, images.StepY, images.StepX = x.in, y.pixels, x.pixels, y.stride, x.stride
		y.in, y.stride, x.in, x.stride = y.pixels, 1, x.pixels, 1
	case fold:
		w.inner, w.stride, w.columnsOfFilter = x.taps, x.stride, 1
		images.Width, images.Lines, images.Wide, images.Before = x.in, y.in, (x.pixels-1)*x.stride+x.taps, x.pad
		if w.last[1] {
			images.Wide = x.in
		}
		w.channels = w.inner * images.pitch(f)
		*x = convPhase{in: x.pixels, pixels: x.pixels, taps: 1, stride: 1, dilation: 1, every: 1}
	}
	ok = (w.groups == 1 || w.last == [2]bool{}) && images.Count*images.Lines*images.Wide <= 1<<30
	ok = ok && (v.Result != ConvFilters || taps <= convSumElements && w.planes[0].Count*w.planes[0].Cols <= 1<<30)
	return w, ok && y.windowed(w.phases[0]) && x.windowed(w.phases[1])
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
	return ok && w.fit(v.form(), dev) && !(v.last(v.Result) && w.filters%8 > 0) && (!v.huge() || v.choose(dev).emit != nil)
}

// windows returns how outputs of an axis meet images, phases how images meet outputs.
func (a ConvAxis) windows() convPhase {
	return convPhase{in: a.In, pixels: a.Out(), taps: a.Size, stride: a.Stride, pad: a.Before, dilation: a.Dilation, every: 1, step: 1}
}

func (a ConvAxis) phases() (x convPhase, p convPhases) {
	common := gcd(a.Stride, a.Dilation)
	p = convPhases{min(a.Stride/common, a.Size), a.Stride, a.Dilation, a.Before, a.Size, a.Stride / common, a.Dilation / common, math.MinInt32, a.In}
	x = convPhase{in: a.Out(), pixels: kernels.CeilDiv(a.In, a.Stride), stride: 1, dilation: p.Step, every: a.Stride, step: -p.Every}
	most := p.Most
	for k := range p.Count {
		taps, offset, _, _, _ := p.phase(k)
		x.taps, most = max(x.taps, taps), max(most, p.Most-offset)
	}
	x.pad, p.Most = most, most
	if p.Count == 1 {
		_, _, x.first, x.at, x.pixels = p.phase(0)
	}
	return x, p
}

// met returns how many of an axis's first elements, as many as the stride, are in a phase.
func (p convPhases) met() (n int64) {
	for k := range p.Count {
		if _, _, _, _, pixels := p.phase(k); pixels > 0 {
			n++
		}
	}
	return n
}

// clears reports whether no tap meets some pixels, and nothing that none meets any.
func (w convWindows) clears() (some, nothing bool) {
	y, x := w.phases[0], w.phases[1]
	if y.Stride == 0 {
		return false, false
	}
	met := y.met() * x.met()
	return met < min(y.Stride, y.In)*min(x.Stride, x.In), met == 0
}

// corners returns those of the places of windows for TMA, and windowed whether it takes them.
func (p convPhase) corners() (lower, upper int64) {
	return -p.pad, (p.pixels-1)*p.stride - p.pad - (p.in - 1)
}

func (p convPhase) windowed(of convPhases) bool {
	lower, upper := p.corners()
	ok := min(lower, upper) >= -128 && max(lower, upper) < 128 && (p.taps-1)*p.dilation < 256 && p.stride <= 8
	for k := range of.Count {
		taps, offset, _, _, _ := of.phase(k)
		ok = ok && offset+(taps-1)*p.dilation < 256
	}
	return ok
}

// phased reports whether there are several phases.
func (w convWindows) phased() bool { return w.phases[0].Count*w.phases[1].Count > 1 }

// pixels returns those of a phase.
func (w convWindows) pixels() int64 { return w.images * w.rows.pixels * w.columns.pixels }

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
	return w.rows.taps * w.columns.taps * arith.RoundUp(w.channels, convBox)
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
	list := []convPlanes{planes}
	blocks := prepareBlocks(x.Form, dev, list)
	ranges := p.Workspace(2 * 8 * blocks) // that no kernel reads, but they have to be somewhere
	emitPrepare(p, x.Form, blocks, list, convPrepareArgs{Ranges: ranges, Arrivals: ranges})
	return p, nil
}

// Prepares returns what prepares the filters apart from the convolution; ok is false if its kernel on a device reads them as they are, or several groups of them as one.
func (v Conv) Prepares(dev kernels.Device) (x PrepareFilters, ok bool) {
	if v.Prepared || !v.takesPrepared(dev) {
		return x, false
	}
	prepared := v
	prepared.Prepared = true
	if m := prepared.choose(dev); m.emit == nil || m.us >= v.choose(dev).us {
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
	BF16Split: own.Kernel("conv_hopper", "conv_hopper_prepare_split", BF16Split.prepare),
	BF16:      own.Kernel("conv_hopper", "conv_hopper_prepare_bf16", BF16.prepare),
	F16:       own.Kernel("conv_hopper", "conv_hopper_prepare_f16", F16.prepare),
	TF32:      own.Kernel("conv_hopper", "conv_hopper_prepare_tf32", TF32.prepare),
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
	Phases                                                                                   [2]convPhases
}

// emit appends the launches that prepare the operands and multiply them, and those of the element type's unit, which follow where a split has to be scaled: the first int32 of the
// workspace tells it.
func (c convCandidate) emit(p *kernels.Plan, v Conv, args convArgs, dev kernels.Device) error {
	if p.Precision = kernels.Precision(c.form); c.form == BF16Split {
		p.Precision = kernels.FullPrecision
	}
	w, _ := v.windows(c.form)
	if c.halo != haloNone {
		return c.emitHalo(p, v, w, args, dev)
	}
	fallback, d := p.Workspace(4), c.cut(w, int64(dev.SMs))
	ranges, arrivals := c.emitOperands(p, v, &w, dev, 2*d.shared, fallback)
	if nothing := w.emitClear(p, v, dev); nothing {
		return nil
	}
	a := c.arguments(w, v)
	a.Ranges, a.Fallback, a.Chunk, a.Shared, a.Parts, a.Arrivals = ranges, fallback, d.chunk, d.shared, fallback, arrivals
	if d.shared > 0 {
		a.Parts = p.Workspace(convParts * int64(dev.SMs))
	}
	splits := kernels.CeilDiv(w.pixels(), d.chunk)
	if a.N = w.width(); c.filters && d.direct {
		a.How, a.First, a.Down, a.Across, a.Filter = convDirect, w.inner, v.Channels/v.Groups, w.channels/w.inner, v.Rows.Size*v.Columns.Size
	} else if c.filters {
		a.Out = p.Workspace(splits * v.Filters * w.width() * 4)
	} else {
		a.N = w.pixels()
	}
	p.Launch(c.kernel, int(d.blocks), c.threads(), a).Shared = int(c.shared)
	if c.filters && !d.direct {
		c.emitSum(p, v, w, dev, a, splits)
	}
	if c.form != BF16Split && (w.merged == 1 || c.filters) {
		return nil
	}
	return v.guarded(p, dev, args, fallback)
}

// emitOperands appends the launch that prepares operands and clears so many arrivals, and sets where the operands are. It returns the operands' ranges and the arrivals.
func (c convCandidate) emitOperands(p *kernels.Plan, v Conv, w *convWindows, dev kernels.Device, counts int64, fallback kernels.Ref) (ranges [2]convRanges, arrivals kernels.Ref) {
	var list []convPlanes
	var of []int // operands of the list
	for i := range w.planes {
		x := &w.planes[i]
		x.X, x.Pitch = kernels.In(kernels.Operand(1-i)), x.pitch(c.form)
		x.To = x.X
		switch {
		case c.form == BF16Split && v.Split[1-i]:
			ranges[i].Blocks = v.Ranges[1-i]
			if v.further(1 - i) {
				if x.To = kernels.In(2); i == 0 && v.further(0) {
					x.To = kernels.In(3)
				}
				ranges[i].Blocks = x.blocks(c.form, dev)
			}
			ranges[i].At = kernels.At(x.To.Operand, x.bytes(c.form))
		case !w.given[i]:
			x.To = p.Workspace(x.bytes(c.form))
			list, of = append(list, *x), append(of, i)
			if w.last[i] {
				list[len(list)-1].flat()
			}
		}
	}
	arrivals = p.Workspace(4 * counts)
	if len(list) == 0 && counts > 0 { // arrivals are cleared
		list = []convPlanes{newConvPlanes(0, 1, 1)}
		list[0].X, list[0].To = kernels.In(0), fallback
	}
	blocks := prepareBlocks(c.form, dev, list)
	found := p.Workspace(2 * 8 * blocks)
	emitPrepare(p, c.form, blocks, list, convPrepareArgs{Ranges: found, Arrivals: arrivals, Count: counts, Ranged: w.merged > 1})
	for i := range ranges { // where no kernel reads any, they have to be somewhere
		if ranges[i].Blocks == 0 {
			ranges[i].At = found
		}
	}
	for k, i := range of {
		ranges[i] = convRanges{kernels.At(found.Operand, found.Offset+8*blocks*int64(k)), blocks}
	}
	return ranges, arrivals
}

// emitClear appends the launch that writes zeros to pixels of images that no tap meets, and reports whether these are all.
func (w convWindows) emitClear(p *kernels.Plan, v Conv, dev kernels.Device) (nothing bool) {
	clears, nothing := w.clears()
	if !clears {
		return nothing
	}
	const threads = 256
	clear := convClearArgs{out, p.Out / 4, arith.DivideBy(p.Out / 4), 0}
	if w.spaced(v) { // the lines of the other phase
		clear = convClearArgs{kernels.At(kernels.Out, 4*v.Columns.In), p.Out / 8, arith.DivideBy(v.Columns.In), 2 * v.Columns.In}
	}
	p.Launch(convClear, int(min(kernels.CeilDiv(clear.Count, threads), 16*int64(dev.SMs))), threads, clear)
	return nothing
}

// emitSum appends the launch that adds up splits of filters.
func (c convCandidate) emitSum(p *kernels.Plan, v Conv, w convWindows, dev kernels.Device, a convTensorArgs, splits int64) {
	const threads = 256
	taps, channels := v.Rows.Size*v.Columns.Size, v.Channels/v.Groups
	some := int64(1)
	for some < channels && 2*some*taps <= convSumElements && v.Filters*kernels.CeilDiv(channels, 2*some) >= 2*int64(dev.SMs) || some*taps < convSumLeast {
		some *= 2
	}
	blocks := v.Filters * kernels.CeilDiv(channels, some)
	if w.inner == 1 && w.merged == 1 && channels%4 == 0 && (taps == 1 || taps == 9) { // four channels in a thread, see sum_quads
		parts := int64(1)
		for 2*parts <= min(splits, 64) {
			parts *= 2
		}
		blocks = min(kernels.CeilDiv(v.Filters*channels/4, threads/parts), 4*int64(dev.SMs))
	}
	p.Launch(convSum, int(min(blocks, 16*int64(dev.SMs))), threads, convSumArgs{a.Out, out, v.Filters, a.N, splits, a.Fallback, c.form == BF16Split,
		taps, channels, v.Filters / v.Groups, w.merged, arith.DivideBy(w.inner), w.channels / w.inner, arith.DivideBy(some)})
}

// prepareBlocks returns the blocks that prepare a list of operands, each with all of them.
func prepareBlocks(f Form, dev kernels.Device, list []convPlanes) int64 {
	blocks := int64(1)
	for _, x := range list {
		if x.Cols == 1 {
			x.flat()
		}
		blocks = max(blocks, x.blocks(f, dev))
	}
	return blocks
}

// emitPrepare appends the launch that prepares a list of operands, each in `blocks` blocks. An empty list makes no launch.
func emitPrepare(p *kernels.Plan, f Form, blocks int64, list []convPlanes, args convPrepareArgs) {
	const threads = 256
	for i := range list {
		if list[i].Cols == 1 {
			list[i].flat()
		}
	}
	if len(list) > 0 {
		args.Planes = [2]convPlanes{list[0], list[len(list)-1]}
		p.Launch(convPrepares[f], int(blocks), threads, args).Grid[1] = len(list)
	}
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

// arguments returns the arguments of the multiplication.
func (c convCandidate) arguments(w convWindows, v Conv) convTensorArgs {
	y, x := w.rows, w.columns
	s, size := c.form.stored(), c.form.stored().size
	row, column, image, channel := v.result()
	a := convTensorArgs{Out: out, M: w.filters, N: w.pixels(), Channels: w.channels, Columns: x.taps, Taps: y.taps * x.taps,
		StrideY: y.stride, StrideX: x.stride, PadY: y.pad, PadX: x.pad, DilationY: y.dilation, DilationX: x.dilation, Images: w.images, Groups: w.groups, Group: w.each, Plane: w.groups * w.each,
		Pixels: arith.DivideBy(y.pixels * x.pixels), Width: arith.DivideBy(x.pixels), Image: image, Filter: channel, Row: y.every * row, Column: x.every * column, Merged: w.merged > 1 && !c.filters, Phases: w.phases}
	if !w.phased() {
		a.Out.Offset = v.size(v.Result) * (y.at*row + x.at*column)
	}
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
			Box: []int64{2 * convBox / size, c.step, 1, 1}, Swizzle: 2 * convBox}
		a.Pictures.Box, a.Pictures.Swizzle = []int64{2 * convBox / size, c.step}, 2*convBox
		return a
	}
	taps := w.planes[0].Count * w.planes[0].Cols / (w.groups * w.filters) / w.inner // of a filter
	a.Down, a.Across = y.step*w.columnsOfFilter, x.step
	if a.First = w.columnsOfFilter; !w.phased() {
		a.First = y.first*w.columnsOfFilter + x.first
	}
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
const convLast, convSpaced, convDirect = 1, 2, 3

// spaced reports whether float32 images have pixels that no tap meets beside each pixel that one meets: after it, and in each second line.
func (w convWindows) spaced(v Conv) bool {
	one := func(p convPhases) bool {
		_, _, _, at, _ := p.phase(0)
		return p.Stride == 2 && p.Count == 1 && at == 0 && p.In%2 == 0
	}
	return v.Result == ConvImages && !v.last(ConvImages) && one(w.phases[0]) && one(w.phases[1])
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
