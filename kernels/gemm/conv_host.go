package gemm

import (
	"sync"

	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
)

// A goroutine gathers about convHostBlock elements at once, or the windows of convHostPixels pixels if these are more: a BLAS packs all filters for each block.
const convHostBlock, convHostPixels = 1 << 16, 256

// convHost is a launch on the host: goroutines gather windows of rows of pixels, which the BLAS multiplies. Rows are counted through all images.
type convHost[T kernels.Float] struct {
	convArgs
	by                  kernels.BLAS
	images, matrix, out []T
	channels            int64      // of a window
	down, lines, block  int64      // rows of pixels of an image, of all, and of a block
	memory              *sync.Pool // of *convMemory[T]
}

// newConvHost returns a launch with windows of so many terms and so many pixels of a phase. It rounds operands of float32 and clears the result.
func newConvHost[T kernels.Float](c kernels.Call, a convArgs, terms, pixels int64, by kernels.Precision, memory *sync.Pool) *convHost[T] {
	if memory == nil {
		memory = new(sync.Pool)
	}
	h := &convHost[T]{memory: memory, convArgs: a, by: c.BLAS(), images: kernels.Slice[T](c, a.Images), matrix: kernels.Slice[T](c, a.Matrix), out: kernels.Slice[T](c, a.Out)}
	if by != kernels.FullPrecision {
		for _, x := range []any{&h.images, &h.matrix} {
			x := x.(*[]float32)
			*x = dense(*x, int64(len(*x)), 1, 1, by.Round)
		}
	}
	h.channels, h.down, h.lines = terms/a.Taps.D, a.Pixels.D/a.PixelRow.D, pixels/a.PixelRow.D
	block := max(max(convHostBlock/terms, convHostPixels)/a.PixelRow.D, 1)
	h.block = kernels.CeilDiv(h.lines, kernels.CeilDiv(h.lines, block)) // blocks of about one size
	clear(h.out[:kernels.CeilDiv(a.K, a.Chunk)*a.Count])
	return h
}

// keepsMemory makes a launch of a plan on the host keep the memory of its goroutines from run to run.
func keepsMemory(l *kernels.Launch, d kernels.Dtype, result ConvResult) {
	bodies, memory := [2][2]func(kernels.Call, convArgs, kernels.Precision, *sync.Pool){{windowsIn[float32], windowsIn[float64]}, {filtersIn[float32], filtersIn[float64]}}, new(sync.Pool)
	body := bodies[result/ConvFilters][d]
	l.Kernel = &kernels.Kernel{Image: l.Kernel.Image, Entry: l.Kernel.Entry, Body: func(c kernels.Call) { body(c, kernels.Args[convArgs](c), kernels.FullPrecision, memory) }}
}

func convWindowsBody[T kernels.Float](c kernels.Call) {
	windowsIn[T](c, kernels.Args[convArgs](c), kernels.FullPrecision, nil)
}
func convFiltersBody[T kernels.Float](c kernels.Call) {
	filtersIn[T](c, kernels.Args[convArgs](c), kernels.FullPrecision, nil)
}

// windowsIn multiplies rows of filters by the windows of pixels, whose taps are all in the first split.
func windowsIn[T kernels.Float](c kernels.Call, a convArgs, by kernels.Precision, memory *sync.Pool) {
	if a.Guarded && kernels.Slice[int32](c, a.When)[0] == 0 {
		return
	}
	last := a.C.Row == 1 && a.Pixels.D > 1 // conv_few.cu: outputs have their channels last
	if last {
		a.C.Row = a.Pixels.D
	}
	h := newConvHost[T](c, a, a.K, a.N, by, memory)
	blocks := kernels.CeilDiv(h.lines, h.block)
	kernels.Parallel(h.Rows.Phases*h.Columns.Phases*h.Groups*blocks, max(kernels.Grain/(h.M*h.block*h.PixelRow.D*h.K), 1), func(lo, hi int64) {
		w := h.newWork()
		defer h.memory.Put(w.convMemory)
		var packed, filters []T
		for task := lo; task < hi; task++ {
			line := task % blocks * h.block
			if task == lo || line == 0 {
				w.begin(task/blocks/h.Groups, task/blocks%h.Groups)
				if w.terms() == h.K && h.OuterTap == h.Taps.D && h.A.Row == h.K { // they are stored as rows of terms
					filters = h.matrix[w.group*h.A.Group:]
				} else {
					packed = w.filters(packed[:0])
					filters = packed
				}
			}
			if w.terms() > 0 {
				w.pixels(filters, line, min(h.block, h.lines-line))
			}
		}
	})
	if last {
		copy(h.out, transposedPixels(h.out, h.M, h.Pixels.D))
	}
}

// transposedPixels returns matrices of rows x columns, one for each image, transposed.
func transposedPixels[T kernels.Float](x []T, rows, columns int64) []T {
	to := align.Make[T](int64(len(x)))
	for at := int64(0); at < int64(len(x)); at += rows * columns {
		copy(to[at:], transpose(x[at:], rows, columns, columns))
	}
	return to
}

// filtersIn multiplies gradients w.r.t. the outputs by the windows that they meet, and adds up the products of blocks of pixels in their order. Splits are of
// whole rows of pixels, else all terms are in the first one.
func filtersIn[T kernels.Float](c kernels.Call, a convArgs, by kernels.Precision, memory *sync.Pool) {
	if a.Guarded && kernels.Slice[int32](c, a.When)[0] == 0 {
		return
	}
	last := a.A.Row == 1 && a.Pixels.D > 1 // conv_few.cu: outputs have their channels last
	if last {
		a.A.Row = a.Pixels.D
	}
	h := newConvHost[T](c, a, a.N, a.K, by, memory)
	if last {
		h.matrix = transposedPixels(h.matrix[:a.K*a.M], a.Pixels.D, a.M)
	}
	each := h.lines // of a split
	if h.Chunk%h.PixelRow.D == 0 {
		each = h.Chunk / h.PixelRow.D
	}
	kernels.Parallel(kernels.CeilDiv(h.lines, each)*h.Groups, max(kernels.Grain/(h.M*h.N*each*h.PixelRow.D), 1), func(lo, hi int64) {
		w := h.newWork()
		defer h.memory.Put(w.convMemory)
		gradients := grown(&w.gradients, h.M*h.block*h.PixelRow.D)
		for task := lo; task < hi; task++ {
			split := task / h.Groups
			w.begin(0, task%h.Groups)
			to, product := h.out[split*h.Count+w.group*h.C.Group:][:h.M*h.N], w.product(h.M*h.N)
			for line, end := split*each, min((split+1)*each, h.lines); line < end; line += h.block {
				rows := min(h.block, end-line)
				n := rows * h.PixelRow.D
				windows := w.gather(line, rows)
				for m := range h.M {
					for _, p := range w.pieces {
						at := w.group*h.A.Group + m*h.A.Row + p.image*h.OuterPixel + p.row*h.WidthPixel
						copy(gradients[m*n+p.at:][:p.rows*h.PixelRow.D], h.matrix[at:])
					}
				}
				gemm(h.by, false, true, h.M, h.N, n, gradients, n, windows, n, product)
				for k, x := range product {
					to[k] += x
				}
			}
		}
	})
}

// convWork is the memory of a goroutine, for a phase and a group.
type convWork[T kernels.Float] struct {
	*convHost[T]
	*convMemory[T]
	group         int64
	first         [2]int64 // pixel of the phase
	rows, columns []tap
	pieces        []pixelRows // of the block
}

// convMemory is what a goroutine writes before it reads it.
type convMemory[T kernels.Float] struct{ windows, results, gradients []T }

// grown returns n elements of memory, which grows if it has fewer.
func grown[T kernels.Float](memory *[]T, n int64) []T {
	if int64(len(*memory)) < n {
		*memory = align.Make[T](n)
	}
	return (*memory)[:n]
}

// pixelRows is consecutive rows of pixels of an image. at is the first of its pixels in a block.
type pixelRows struct{ image, row, rows, at int64 }

// tap is an element of a filter along an axis. Pixel o meets element o stride + base of the images, for lo <= o < hi.
type tap struct{ filter, base, lo, hi int64 }

func (h *convHost[T]) newWork() *convWork[T] {
	memory, _ := h.memory.Get().(*convMemory[T])
	if memory == nil {
		memory = new(convMemory[T])
	}
	grown(&memory.windows, h.block*h.PixelRow.D*h.channels*h.Taps.D)
	return &convWork[T]{convHost: h, convMemory: memory}
}

func (w *convWork[T]) product(n int64) []T { return grown(&w.results, n) }

// begin lists the taps of a phase.
func (w *convWork[T]) begin(phase, group int64) {
	w.group, w.first = group, [2]int64{phase / w.Columns.Phases, phase % w.Columns.Phases}
	w.rows, w.columns = w.Rows.taps(w.first[0], w.down), w.Columns.taps(w.first[1], w.PixelRow.D)
}

// terms returns the number of terms of the phase.
func (w *convWork[T]) terms() int64 { return w.channels * int64(len(w.rows)*len(w.columns)) }

// filters appends the taps of the filters of the group, as rows of terms.
func (w *convWork[T]) filters(to []T) []T {
	for m := range w.M {
		for c := range w.channels {
			for _, i := range w.rows {
				from := w.group*w.A.Group + m*w.A.Row + c*w.OuterTap + i.filter*w.WidthTap
				for _, j := range w.columns {
					to = append(to, w.matrix[from+j.filter])
				}
			}
		}
	}
	return to
}

// taps lists the taps that meet pixels of a phase.
func (a along) taps(phase, pixels int64) (list []tap) {
	first, base, ok := a.phase(phase)
	for i := first; ok && i < a.Filter; i += a.Every {
		lo := min(max(kernels.CeilDiv(-base, a.Stride), 0), pixels)
		list = append(list, tap{i, base, lo, max(min(kernels.CeilDiv(a.Images-base, a.Stride), pixels), lo)})
		base += a.Step
	}
	return list
}

// pixels computes rows of pixels from a line on.
func (w *convWork[T]) pixels(filters []T, line, rows int64) {
	n, terms := rows*w.PixelRow.D, w.terms()
	product := w.product(w.M * n)
	gemm(w.by, false, false, w.M, n, terms, filters, terms, w.gather(line, rows), n, product)
	for m := range w.M {
		to := w.out[w.group*w.C.Group+m*w.C.Row:]
		for _, p := range w.pieces {
			if w.Rows.Phases == 1 && w.Columns.Phases == 1 {
				copy(to[p.image*w.OuterPixel+p.row*w.WidthPixel:][:p.rows*w.PixelRow.D], product[m*n+p.at:])
				continue
			}
			for i := range p.rows {
				y := w.first[0] + (p.row+i)*w.Rows.Phases
				if y >= w.Rows.Pixels {
					break
				}
				row, from := to[p.image*w.OuterPixel+y*w.WidthPixel:][:w.Columns.Pixels], product[m*n+p.at+i*w.PixelRow.D:]
				for x, k := w.first[1], 0; x < w.Columns.Pixels; x, k = x+w.Columns.Phases, k+1 {
					row[x] = from[k]
				}
			}
		}
	}
}

// gather lists the pieces of rows of pixels from a line on, and returns what they meet: a row for each tap of each channel.
func (w *convWork[T]) gather(line, rows int64) []T {
	across, to := w.PixelRow.D, w.windows
	w.pieces = w.pieces[:0]
	for at := line; at < line+rows; {
		p := pixelRows{at / w.down, at % w.down, 0, (at - line) * across}
		p.rows = min(w.down-p.row, line+rows-at)
		w.pieces, at = append(w.pieces, p), at+p.rows
	}
	for t, i := range w.rows {
		for u, j := range w.columns {
			tap := int64(t*len(w.columns) + u)
			for _, p := range w.pieces {
				w.meet(to[tap*rows*across+p.at:], i, j, p, int64(len(w.rows)*len(w.columns))*rows*across)
			}
		}
	}
	return w.windows
}

// meet gathers what a tap meets of the channels of a piece, which are next elements apart in to.
func (w *convWork[T]) meet(to []T, i, j tap, p pixelRows, next int64) {
	across, end := w.PixelRow.D, p.row+p.rows
	lo, hi := min(max(i.lo, p.row), end), min(max(i.hi, p.row), end)
	if j.lo >= j.hi {
		hi = lo
	}
	above, below := (lo-p.row)*across, (hi-p.row)*across
	plane, line := p.image*w.Image+w.group*w.gathered.Group+(lo*w.Rows.Stride+i.base)*w.Width+j.base, w.Rows.Stride*w.Width
	joined := w.Columns.Stride == 1 && line == across && lo < hi // the rows are contiguous in the image; pixels beside it are set to 0 afterwards
	for range w.channels {
		if above > 0 {
			clear(to[:above])
		}
		if all := p.rows * across; below < all {
			clear(to[below:all])
		}
		switch {
		case lo >= hi:
		case joined:
			copy(to[above+j.lo:below-across+j.hi], w.images[plane+j.lo:])
		default:
			for k, from := above, plane; k < below; k, from = k+across, from+line {
				if row := to[k:][:across]; w.Columns.Stride == 1 {
					copy(row[j.lo:j.hi], w.images[from+j.lo:])
				} else {
					for x := j.lo; x < j.hi; x++ {
						row[x] = w.images[from+x*w.Columns.Stride]
					}
				}
			}
		}
		for x := range j.lo {
			zero(to[:below], above+x, across)
		}
		for x := j.hi; x < across; x++ {
			zero(to[:below], above+x, across)
		}
		to, plane = to[min(next, int64(len(to))):], plane+w.Plane
	}
}

// zero clears each step-th element of x from the first one on.
func zero[T kernels.Float](x []T, first, step int64) {
	for k := first; k < int64(len(x)); k += step {
		x[k] = 0
	}
}
