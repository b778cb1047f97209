package gemm

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// Constants of conv_halo.cu.
const (
	haloTaps          = 3         // of a row and of a column of the filter
	haloFilters       = 64        // of a tile
	haloStep          = 32        // channels of a copy for outputs
	haloThreads       = 384       // of a block for outputs
	haloFilterThreads = 512       // of a block for filters
	haloShared        = 224 << 10 // bytes of copies, at most
	haloBehind        = 4 << 10   // bytes after the copies of a kernel for filters: memcheck counts an operand of wgmma as contiguous, and would report a read beyond the end
	haloStages        = 8         // copies in flight, at most
	haloRing          = 6         // taps of haloStep channels in flight
	haloTerms         = 32        // pixels that a kernel for filters multiplies at a time
	haloSplitMin      = 448       // terms from which on sums of float32 need no accumulators apart: see Six::form
)

// haloKind is a kernel of conv_halo.cu.
type haloKind int

const (
	haloNone   haloKind = iota
	haloStream          // outputs, with taps in a ring
	haloKept            // outputs, with all taps in shared memory
	haloOfTaps          // gradients w.r.t. filters
)

// convHaloArgs are the arguments of the kernels: where operands are and conv_halo.cu's Halo.
type convHaloArgs struct {
	Filters, Pictures                           kernels.TensorMap
	Out                                         kernels.Ref
	Ranges                                      [2]convRanges
	Fallback                                    kernels.Ref
	M, N, Chunk                                 int64 `arg:"int32"`
	Channels, Images, Width, Height, PadY, PadX int64 `arg:"int32"`
	First, Down, Across                         int64 `arg:"int32"`
	Image                                       int64
	Filter, Row, Column, Plane                  int64 `arg:"int32"`
	Rows, Stages                                int64 `arg:"int32"` // rows of a tile, or of half a tile; copies in flight
}

// windows returns the arguments of the Go bodies, which are those of conv_hopper.cu's kernels.
func (a convHaloArgs) windows(f Form) convTensorArgs {
	to := convTensorArgs{Filters: a.Filters, Pictures: a.Pictures, Out: a.Out, Ranges: a.Ranges, Fallback: a.Fallback, M: a.M, N: a.N, Chunk: a.Chunk, Channels: a.Channels, Columns: haloTaps, Taps: haloTaps * haloTaps,
		StrideY: 1, StrideX: 1, PadY: a.PadY, PadX: a.PadX, DilationY: 1, DilationX: 1, Images: a.Images, Groups: 1, Group: a.Images, Plane: a.Plane, First: a.First, Down: a.Down, Across: a.Across,
		Pixels: arith.DivideBy(a.Height * a.Width), Width: arith.DivideBy(a.Width), Image: a.Image, Filter: a.Filter, Row: a.Row, Column: a.Column, How: convLast, Phases: [2]convPhases{{Count: 1}, {Count: 1}}}
	if f == BF16Split {
		to.How, to.Merged = 0, true // so that infinities and NaN set Fallback
	}
	return to
}

// convHalo is a kernel of conv_halo.cu: of float32, or in TF32 with channels last. slice is the time of 32 channels of a tile of outputs of at most n pixels with two after each row, or of 16 pixels of a tile of filters, of float32 alone.
func convHalo(kind haloKind, name string, f Form, n int64, slice, block float64) convCandidate {
	c := convCandidate{form: f, m: haloFilters, n: n, step: haloStep, blocks: 1, slice: slice, block: block, halo: kind, filters: kind == haloOfTaps}
	c.kernel = own.Kernel("conv_halo", "conv_halo_"+name, func(call kernels.Call) {
		if a := kernels.Args[convHaloArgs](call).windows(f); c.filters {
			a.taps(call, f)
		} else {
			a.outputs(call, f)
		}
	})
	return c
}

// line returns the bytes of 32 channels of a pixel, in all matrices, and kept those of 32 channels of 64 filters' taps.
func (c convCandidate) line() int64 { return haloStep * c.form.stored().size * c.form.stored().splits }
func (c convCandidate) kept() int64 { return haloFilters * c.line() }

// haloTiles is how a kernel divides a convolution: rows of an image that are a tile, or half a tile, the tiles of all images, splits of these for filters, copies in flight and their bytes, the bytes of all
// shared memory, and the time of the launches but those that prepare.
type haloTiles struct {
	rows, tiles, splits, stages, bytes, shared int64
	us                                         float64
}

// haloTiles returns the division of the least time; ok is false if the kernel does not compute the convolution.
func (c convCandidate) haloTiles(w convWindows, v Conv, sms int64) (t haloTiles, ok bool) {
	y, x := w.rows, w.columns
	plain := func(p convPhase) bool { return p.taps == haloTaps && p.stride == 1 && p.dilation == 1 && p.every == 1 }
	switch {
	case w.groups > 1 || w.merged > 1 || w.inner > 1 || w.phased() || !plain(y) || !plain(x) || !c.filters && (x.pixels%2 > 0 || x.pixels < 6) || c.filters && x.pixels < 8 || x.pixels+2 > 248:
		return t, false
	case c.form == BF16Split && (w.last != [2]bool{} || v.last(v.Result) || !c.filters && w.channels*haloTaps*haloTaps < haloSplitMin || c.filters && w.pixels() < haloSplitMin):
		return t, false
	case c.form == TF32 && (!w.last[1] || !w.given[1] || !v.last(v.Result)):
		return t, false
	}
	down, pitch, slices := kernels.CeilDiv(w.filters, haloFilters), x.pixels+2, kernels.CeilDiv(w.channels, c.step)
	switch c.halo {
	case haloKept:
		if t.rows = min(c.n/pitch, y.pixels); t.rows == 0 {
			return t, false
		}
		t.tiles, t.splits = w.images*kernels.CeilDiv(y.pixels, t.rows), 1
		t.bytes = arith.RoundUp(max((t.rows+2)*pitch, 2*pitch+2+c.n), 8) * c.line()
		kept := haloTaps * haloTaps * slices * c.kept()
		t.stages = min((haloShared-kept)/t.bytes, haloStages)
		t.shared = 2048 + kept + t.stages*t.bytes
		blocks := min(t.tiles, max(sms/down, 1))
		t.us = float64(kernels.CeilDiv(down*blocks, sms)) * (float64(kernels.CeilDiv(t.tiles, blocks)*slices)*c.slice + c.block)
		return t, t.stages >= 2
	case haloStream:
		if t.rows = min(c.n/pitch, kernels.CeilDiv(y.pixels, 2)); t.rows == 0 || 2*t.rows+2 > 256 {
			return t, false
		}
		t.tiles, t.splits, t.stages = w.images*kernels.CeilDiv(y.pixels, 2*t.rows), 1, haloRing
		splits := c.form.stored().splits
		t.bytes = splits * arith.RoundUp(max((2*t.rows+2)*pitch, (t.rows+2)*pitch+2+c.n)*(c.line()/splits), 1024)
		t.shared = 2048 + haloRing*c.kept() + 2*t.bytes
		t.us = float64(kernels.CeilDiv(down*t.tiles, sms)) * (float64(slices)*c.slice + c.block)
		return t, t.shared <= haloShared
	}
	wide := x.pixels
	for rows := int64(1); rows <= min(y.pixels, 254); rows++ {
		if bytes := c.tapsBytes(rows*wide, (rows+2)*pitch); y.pixels%rows == 0 && wide%8 == 0 && rows*wide%haloTerms == 0 && 2*bytes <= haloShared-haloBehind {
			t.rows, t.bytes = rows, bytes
		}
	}
	if t.rows == 0 {
		return t, false
	}
	t.tiles, t.stages, t.us = w.images*y.pixels/t.rows, min((haloShared-haloBehind)/t.bytes, haloStages), math.Inf(1)
	t.shared = 2048 + t.stages*t.bytes + haloBehind
	pairs, sums := down*kernels.CeilDiv(w.channels, haloStep), float64(w.filters*w.width()*4)/convSumBytes
	for splits := int64(1); splits <= min(t.tiles, max(4*sms/pairs, 1)); splits++ {
		each := kernels.CeilDiv(t.tiles, splits)
		splits := kernels.CeilDiv(t.tiles, each)
		us := float64(kernels.CeilDiv(pairs*splits, sms))*(float64(each*t.rows*wide/16)*c.slice+c.block) + float64(splits+1)*sums + convLaunch
		if us < t.us {
			t.splits, t.us = splits, us
		}
	}
	return t, true
}

// tapsBytes returns the bytes of a copy of a kernel for filters: so many pixels of 64 filters, and lines of channels.
func (c convCandidate) tapsBytes(pixels, lines int64) int64 {
	return c.form.stored().splits * (2*convBox*pixels + arith.RoundUp(2*haloStep*lines, 1024))
}

// emitHalo appends the launches.
func (c convCandidate) emitHalo(p *kernels.Plan, v Conv, w convWindows, args convArgs, dev kernels.Device) error {
	t, _ := c.haloTiles(w, v, int64(dev.SMs))
	fallback := p.Workspace(4)
	ranges, _ := c.emitOperands(p, v, &w, dev, 0, fallback)
	from, y, x, down := c.arguments(w, v), w.rows, w.columns, kernels.CeilDiv(w.filters, haloFilters)
	a := convHaloArgs{Filters: from.Filters, Pictures: from.Pictures, Out: from.Out, Ranges: ranges, Fallback: fallback, M: w.filters, N: w.pixels(), Chunk: w.pixels(), Channels: w.channels, Images: w.images, Width: x.pixels,
		Height: y.pixels, PadY: y.pad, PadX: x.pad, First: from.First, Down: from.Down, Across: from.Across, Image: from.Image, Filter: from.Filter, Row: from.Row, Column: from.Column, Plane: from.Plane, Rows: t.rows, Stages: t.stages}
	line, high := c.line()/c.form.stored().splits, t.rows+2
	if c.halo == haloStream {
		high += t.rows
	}
	a.Pictures.Windows, a.Pictures.Box, a.Pictures.Swizzle = nil, []int64{c.step, x.pixels + 2, high, 1}, line
	blocks, threads := down*t.tiles, haloThreads
	switch c.halo {
	case haloStream:
		blocks = min(blocks, int64(dev.SMs))
	case haloKept:
		blocks = down * min(t.tiles, max(int64(dev.SMs)/down, 1))
	default:
		a.Filters.Element, a.Filters.Swizzle, a.Pictures.Element = kernels.TensorBF16, 2*convBox, kernels.TensorBF16
		a.Filters.Extents, a.Filters.Box, a.Filters.Strides = []int64{w.filters, x.pixels, y.pixels, c.form.stored().splits * a.Plane}, []int64{convBox, x.pixels, t.rows, 1}, nil
		for stride := w.planes[0].Pitch * c.form.stored().size; len(a.Filters.Strides) < 3; stride *= a.Filters.Extents[len(a.Filters.Strides)] {
			a.Filters.Strides = append(a.Filters.Strides, stride)
		}
		a.N, a.Chunk = w.width(), kernels.CeilDiv(t.tiles, t.splits)*t.rows*x.pixels
		parts := kernels.CeilDiv(w.pixels(), a.Chunk)
		a.Out = p.Workspace(parts * w.filters * a.N * 4)
		blocks, threads = down*kernels.CeilDiv(w.channels, haloStep)*parts, haloFilterThreads
		from.Out, from.N, from.Fallback = a.Out, a.N, fallback
	}
	p.Launch(c.kernel, int(blocks), threads, a).Shared = int(t.shared)
	if c.filters {
		c.emitSum(p, v, w, dev, from, kernels.CeilDiv(w.pixels(), a.Chunk))
	}
	if c.form != BF16Split {
		return nil
	}
	return v.guarded(p, dev, args, fallback)
}
