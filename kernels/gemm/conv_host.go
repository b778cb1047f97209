package gemm

import (
	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
)

// convHostBlock is about the number of elements that a goroutine gathers at once.
const convHostBlock = 1 << 16

// convHost is a launch on the host: goroutines gather windows of rows of pixels, which the BLAS multiplies. Rows are counted through all images.
type convHost[T kernels.Float] struct {
	convArgs
	by                  kernels.BLAS
	images, matrix, out []T
	channels            int64 // of a window
	down, lines, block  int64 // rows of pixels of an image, of all, and of a block
}

// newConvHost returns a launch with windows of so many terms and so many pixels of a phase. It clears the result.
func newConvHost[T kernels.Float](c kernels.Call, a convArgs, terms, pixels int64) *convHost[T] {
	h := &convHost[T]{convArgs: a, by: c.BLAS(), images: kernels.Slice[T](c, a.Images), matrix: kernels.Slice[T](c, a.Matrix), out: kernels.Slice[T](c, a.Out)}
	h.channels, h.down, h.lines = terms/a.Taps.D, a.Pixels.D/a.PixelRow.D, pixels/a.PixelRow.D
	h.block = min(max(convHostBlock/(terms*a.PixelRow.D), 1), h.lines)
	clear(h.out[:kernels.CeilDiv(a.K, a.Chunk)*a.Count])
	return h
}

// convWindowsBody multiplies rows of filters by the windows of pixels, whose taps are all in the first split.
func convWindowsBody[T kernels.Float](c kernels.Call) {
	a := kernels.Args[convArgs](c)
	if a.Guarded && kernels.Slice[int32](c, a.When)[0] == 0 {
		return
	}
	h := newConvHost[T](c, a, a.K, a.N)
	blocks := kernels.CeilDiv(h.lines, h.block)
	kernels.Parallel(h.Rows.Phases*h.Columns.Phases*h.Groups*blocks, max(kernels.Grain/(h.M*h.block*h.PixelRow.D*h.K), 1), func(lo, hi int64) {
		w := h.newWork()
		var filters []T
		for task := lo; task < hi; task++ {
			line := task % blocks * h.block
			if task == lo || line == 0 {
				w.begin(task/blocks/h.Groups, task/blocks%h.Groups)
				filters = w.filters(filters[:0])
			}
			if len(filters) > 0 {
				w.pixels(filters, line, min(h.block, h.lines-line))
			}
		}
	})
}

// convFiltersBody multiplies gradients w.r.t. the outputs by the windows that they meet, and adds up the products of blocks of pixels in their order. Splits are of
// whole rows of pixels, else all terms are in the first one.
func convFiltersBody[T kernels.Float](c kernels.Call) {
	a := kernels.Args[convArgs](c)
	if a.Guarded && kernels.Slice[int32](c, a.When)[0] == 0 {
		return
	}
	h := newConvHost[T](c, a, a.N, a.K)
	each := h.lines // of a split
	if h.Chunk%h.PixelRow.D == 0 {
		each = h.Chunk / h.PixelRow.D
	}
	kernels.Parallel(kernels.CeilDiv(h.lines, each)*h.Groups, max(kernels.Grain/(h.M*h.N*each*h.PixelRow.D), 1), func(lo, hi int64) {
		w := h.newWork()
		gradients := align.Make[T](h.M * h.block * h.PixelRow.D)
		for task := lo; task < hi; task++ {
			split := task / h.Groups
			w.begin(0, task%h.Groups)
			to, product := h.out[split*h.Count+w.group*h.C.Group:][:h.M*h.N], w.product(h.M*h.N)
			for line, end := split*each, min((split+1)*each, h.lines); line < end; line += h.block {
				rows := min(h.block, end-line)
				n := rows * h.PixelRow.D
				for m := range h.M {
					for i := range rows {
						at := w.group*h.A.Group + m*h.A.Row + (line+i)/h.down*h.OuterPixel + (line+i)%h.down*h.WidthPixel
						copy(gradients[m*n+i*h.PixelRow.D:][:h.PixelRow.D], h.matrix[at:])
					}
				}
				gemm(h.by, false, true, h.M, h.N, n, gradients, n, w.gather(line, rows), n, product)
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
	group            int64
	first            [2]int64 // pixel of the phase
	rows, columns    []tap
	windows, results []T
}

// tap is an element of a filter along an axis. Pixel o meets element o stride + base of the images, for lo <= o < hi.
type tap struct{ filter, base, lo, hi int64 }

func (h *convHost[T]) newWork() *convWork[T] {
	return &convWork[T]{convHost: h, windows: align.Make[T](h.block * h.PixelRow.D * h.channels * h.Taps.D)}
}

func (w *convWork[T]) product(n int64) []T {
	if int64(len(w.results)) < n {
		w.results = align.Make[T](n)
	}
	return w.results[:n]
}

// begin lists the taps of a phase.
func (w *convWork[T]) begin(phase, group int64) {
	w.group, w.first = group, [2]int64{phase / w.Columns.Phases, phase % w.Columns.Phases}
	w.rows, w.columns = w.Rows.taps(w.first[0], w.down), w.Columns.taps(w.first[1], w.PixelRow.D)
}

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
	n, terms := rows*w.PixelRow.D, int64(len(filters))/w.M
	product := w.product(w.M * n)
	gemm(w.by, false, false, w.M, n, terms, filters, terms, w.gather(line, rows), n, product)
	for m := range w.M {
		for i := range rows {
			image, y, row := (line+i)/w.down, w.first[0]+(line+i)%w.down*w.Rows.Phases, product[m*n+i*w.PixelRow.D:]
			if y >= w.Rows.Pixels {
				continue
			}
			to := w.out[w.group*w.C.Group+m*w.C.Row+image*w.OuterPixel+y*w.WidthPixel:][:w.Columns.Pixels]
			if w.Columns.Phases == 1 {
				copy(to, row)
				continue
			}
			for x, k := w.first[1], 0; x < w.Columns.Pixels; x, k = x+w.Columns.Phases, k+1 {
				to[x] = row[k]
			}
		}
	}
}

// gather returns what rows of pixels from a line on meet: a row for each tap of each channel.
func (w *convWork[T]) gather(line, rows int64) []T {
	to, across := w.windows, w.PixelRow.D
	for c := range w.channels {
		for _, i := range w.rows {
			for _, j := range w.columns {
				for l := line; l < line+rows; l++ {
					row, y := to[:across], l%w.down
					to = to[across:]
					if y < i.lo || y >= i.hi {
						clear(row)
						continue
					}
					clear(row[:j.lo])
					clear(row[j.hi:])
					from := w.images[l/w.down*w.Image+w.group*w.gathered.Group+c*w.Plane+(y*w.Rows.Stride+i.base)*w.Width:]
					if w.Columns.Stride == 1 && j.lo < j.hi {
						copy(row[j.lo:j.hi], from[j.lo+j.base:])
						continue
					}
					for x := j.lo; x < j.hi; x++ {
						row[x] = from[x*w.Columns.Stride+j.base]
					}
				}
			}
		}
	}
	return w.windows
}
