package gemm

import (
	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
)

// convHostBlock is about the number of elements of the windows that a goroutine gathers at once.
const convHostBlock = 1 << 15

// convHost is a launch on the host: goroutines gather windows block by block, which the BLAS multiplies.
type convHost[T kernels.Float] struct {
	convArgs
	by                  kernels.BLAS
	images, matrix, out []T
	splits              int64
}

func newConvHost[T kernels.Float](c kernels.Call) *convHost[T] {
	a := kernels.Args[convArgs](c)
	return &convHost[T]{a, c.BLAS(), kernels.Slice[T](c, a.Images), kernels.Slice[T](c, a.Matrix), kernels.Slice[T](c, a.Out), kernels.CeilDiv(a.K, a.Chunk)}
}

// convWindowsBody multiplies rows of filters by the windows of pixels, whose taps are all in the first split.
func convWindowsBody[T kernels.Float](c kernels.Call) {
	h := newConvHost[T](c)
	clear(h.out[:h.splits*h.Count])
	block := min(max(convHostBlock/h.K, 8), h.N)
	blocks := kernels.CeilDiv(h.N, block)
	kernels.Parallel(h.Rows.Phases*h.Columns.Phases*h.Groups*blocks, max(kernels.Grain/(h.M*block*h.K), 1), func(lo, hi int64) {
		w := h.newWork(block*h.K, h.M*block)
		for task := lo; task < hi; task++ {
			phase, group, n0 := task/blocks/h.Groups, task/blocks%h.Groups, task%blocks*block
			if task == lo || task%blocks == 0 {
				w.down.begin(h.Rows, phase/h.Columns.Phases)
				w.across.begin(h.Columns, phase%h.Columns.Phases)
				w.filterRows(group)
			}
			if k := h.K / h.Taps.D * w.taps(); k > 0 {
				w.pixels(group, n0, min(block, h.N-n0), k)
			}
		}
	})
}

// convFiltersBody multiplies gradients w.r.t. the outputs by the windows that they meet, and adds up the products of blocks of pixels in their order.
func convFiltersBody[T kernels.Float](c kernels.Call) {
	h := newConvHost[T](c)
	block := min(max(convHostBlock/h.N, 8), h.Pixels.D)
	kernels.Parallel(h.splits*h.Groups, max(kernels.Grain/(h.M*h.N*h.Chunk), 1), func(lo, hi int64) {
		w := h.newWork(block*h.N, h.M*h.N)
		w.down.begin(h.Rows, 0)
		w.across.begin(h.Columns, 0)
		for task := lo; task < hi; task++ {
			group, split := task%h.Groups, task/h.Groups
			to := h.out[split*h.Count+group*h.C.Group:][:h.M*h.N]
			clear(to)
			for q, end := split*h.Chunk, min((split+1)*h.Chunk, h.K); q < end; {
				n := min(block, end-q, h.Pixels.D-q%h.Pixels.D) // pixels of one image
				w.gather(group, q, n, h.N)
				gemm(h.by, false, false, h.M, h.N, n, h.matrix[group*h.A.Group+q/h.Pixels.D*h.OuterPixel+q%h.Pixels.D:], h.A.Row, w.windows, h.N, w.product)
				for i, x := range w.product[:h.M*h.N] {
					to[i] += x
				}
				q += n
			}
		}
	})
}

// convWork is the memory of a goroutine.
type convWork[T kernels.Float] struct {
	*convHost[T]
	down, across              meeting
	filters, windows, product []T
	places                    []int64 // of pixels in the output, -1 outside
}

func (h *convHost[T]) newWork(windows, product int64) *convWork[T] {
	return &convWork[T]{convHost: h, windows: align.Make[T](windows), product: align.Make[T](product)}
}

// taps returns the number of taps of a window, of one channel.
func (w *convWork[T]) taps() int64 { return int64(len(w.down.taps) * len(w.across.taps)) }

// filterRows copies the taps of a group that meet pixels, as rows of terms.
func (w *convWork[T]) filterRows(group int64) {
	channels := w.K / w.Taps.D
	if n := w.M * channels * w.taps(); int64(len(w.filters)) < n {
		w.filters = align.Make[T](n)
	}
	to := w.filters
	for m := range w.M {
		for c := range channels {
			from := w.matrix[group*w.A.Group+m*w.A.Row+c*w.OuterTap:]
			for _, i := range w.down.taps {
				for k, j := range w.across.taps {
					to[k] = from[i*w.WidthTap+j]
				}
				to = to[len(w.across.taps):]
			}
		}
	}
}

// pixels computes n pixels of a group and phase from q on, by windows of k terms.
func (w *convWork[T]) pixels(group, q, n, k int64) {
	w.gather(group, q, n, k)
	gemm(w.by, false, true, w.M, n, k, w.filters, k, w.windows, k, w.product)
	w.places = w.places[:0]
	for i := q; i < q+n; i++ {
		pixel := i % w.Pixels.D
		y, x := w.down.phase+pixel/w.PixelRow.D*w.Rows.Phases, w.across.phase+pixel%w.PixelRow.D*w.Columns.Phases
		place := int64(-1)
		if y < w.Rows.Pixels && x < w.Columns.Pixels {
			place = i/w.Pixels.D*w.OuterPixel + y*w.WidthPixel + x
		}
		w.places = append(w.places, place)
	}
	for m := range w.M {
		to, row := w.out[group*w.C.Group+m*w.C.Row:], w.product[m*n:]
		for i, place := range w.places {
			if place >= 0 {
				to[place] = row[i]
			}
		}
	}
}

// gather writes the windows of n pixels from q on, k elements each.
func (w *convWork[T]) gather(group, q, n, k int64) {
	for i := range n {
		pixel := (q + i) % w.Pixels.D
		if i == 0 || pixel%w.PixelRow.D == 0 {
			w.down.meet(w.Rows, pixel/w.PixelRow.D)
		}
		w.across.meet(w.Columns, pixel%w.PixelRow.D)
		w.window(w.windows[i*k:][:k], w.images[(q+i)/w.Pixels.D*w.Image+group*w.gathered.Group:])
	}
}

// window copies a window of all channels of a group, whose first one from begins with.
func (w *convWork[T]) window(to, from []T) {
	size := len(w.across.at)
	for len(to) > 0 {
		for _, h := range w.down.at {
			row := to[:size]
			to = to[size:]
			switch {
			case h < 0:
				clear(row)
			case w.across.whole:
				copy(row, from[h*w.Width+w.across.at[0]:])
			default:
				line := from[h*w.Width:]
				for j, x := range w.across.at {
					if row[j] = 0; x >= 0 {
						row[j] = line[x]
					}
				}
			}
		}
		if len(to) > 0 {
			from = from[w.Plane:]
		}
	}
}

// meeting has the taps of a phase along an axis, and the elements that they meet at a pixel.
type meeting struct {
	phase, base int64
	taps, at    []int64 // at is -1 where there is no element
	whole       bool    // the elements are neighbours
}

// begin lists the taps of a phase.
func (m *meeting) begin(a along, phase int64) {
	first, base, ok := a.phase(phase)
	m.phase, m.base, m.taps = phase, base, m.taps[:0]
	for i := first; ok && i < a.Filter; i += a.Every {
		m.taps = append(m.taps, i)
	}
	m.at = make([]int64, len(m.taps))
}

// meet sets the elements that the taps meet at a pixel of the phase.
func (m *meeting) meet(a along, pixel int64) {
	m.whole = true
	for n := range m.at {
		x := pixel*a.Stride + m.base + int64(n)*a.Step
		if x < 0 || x >= a.Images {
			x = -1
		}
		m.at[n] = x
		m.whole = m.whole && x >= 0 && x == m.at[0]+int64(n)
	}
}
