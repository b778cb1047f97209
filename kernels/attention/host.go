package attention

import (
	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gonum.org/v1/gonum/blas"
)

// hostBlock is the number of rows of a tile of the Go bodies.
const hostBlock = 64

// host is a launch of a Go body that computes in T.
type host[T kernels.Float] struct {
	kernels.Call
	problemArgs
	dtype  kernels.Dtype
	scale  T
	counts func(i int64) int64 // nil: none
}

func newHost[T kernels.Float](c kernels.Call, dt kernels.Dtype, p problemArgs) *host[T] {
	h := &host[T]{Call: c, problemArgs: p, dtype: dt, scale: p.Scale.(T)}
	switch p.CountBytes {
	case 1:
		h.counts = counter[uint8](c, p.Counts)
	case 4:
		h.counts = counter[int32](c, p.Counts)
	case 8:
		h.counts = counter[int64](c, p.Counts)
	}
	return h
}

func counter[I uint8 | int32 | int64](c kernels.Call, at kernels.Ref) func(int64) int64 {
	list := kernels.Slice[I](c, at)
	return func(i int64) int64 { return int64(list[i]) }
}

// limits returns how many keys each of n queries from t0 on sees, and the most.
func (h *host[T]) limits(batch, t0, n int64) (list []int64, most int64) {
	list = make([]int64, n)
	for i := range list {
		query, limit := t0+int64(i), h.Keys
		if h.Causal {
			limit = min(limit, query+h.Keys-h.Queries+1)
		}
		if h.counts != nil {
			limit = min(limit, h.counts(batch*h.CountBatch+query*h.CountRow))
		}
		list[i] = max(limit, 0)
		most = max(most, list[i])
	}
	return list, most
}

// each calls f for blocks of rows of all heads. Each goroutine has a work of its own.
func (h *host[T]) each(heads, rows int64, f func(w *work[T], batch, head, t0, n int64)) {
	blocks := kernels.CeilDiv(rows, hostBlock)
	cost := hostBlock * max(h.Keys, h.Queries) * h.Dim // multiply-adds of a block, about
	kernels.Parallel(h.Batches*heads*blocks, max(8*kernels.Grain/max(cost, 1), 1), func(lo, hi int64) {
		w := &work[T]{by: h.BLAS(), dim: h.Dim}
		for i := lo; i < hi; i++ {
			t0 := i % blocks * hostBlock
			f(w, i/blocks/heads, i/blocks%heads, t0, min(hostBlock, rows-t0))
		}
	})
}

// memory is rows of a head in memory.
type memory[T kernels.Float] struct {
	host                 *host[T]
	at                   kernels.Ref
	offset, stride, rows int64
}

func (h *host[T]) rows(o operand, batch, head, t0, n int64) memory[T] {
	return memory[T]{h, o.At, batch*o.Batch + head*o.Head + t0*o.Row, o.Row, n}
}

// each calls f for each row in memory, elements of T or of 16 bits.
func (m memory[T]) each(whole func(i int64, row []T), half func(i int64, row []uint16)) {
	if m.host.dtype.IsFloat() {
		x := kernels.Slice[T](m.host.Call, m.at)
		for i := range m.rows {
			whole(i, x[m.offset+i*m.stride:][:m.host.Dim])
		}
		return
	}
	x := kernels.Slice[uint16](m.host.Call, m.at)
	for i := range m.rows {
		half(i, x[m.offset+i*m.stride:][:m.host.Dim])
	}
}

// store writes rows.
func (m memory[T]) store(from []T) {
	dim := m.host.Dim
	m.each(func(i int64, row []T) { copy(row, from[i*dim:]) }, func(i int64, row []uint16) {
		for k := range row {
			row[k] = expr.ToHalf(m.host.dtype, float32(from[i*dim+int64(k)]))
		}
	})
}

// copyFrom copies rows.
func (m memory[T]) copyFrom(from memory[T]) {
	var whole [][]T
	var half [][]uint16
	from.each(func(_ int64, row []T) { whole = append(whole, row) }, func(_ int64, row []uint16) { half = append(half, row) })
	m.each(func(i int64, row []T) { copy(row, whole[i]) }, func(i int64, row []uint16) { copy(row, half[i]) })
}

// work is the memory of a goroutine.
type work[T kernels.Float] struct {
	by      kernels.BLAS
	dim     int64
	buffers [12][]T
}

// buffer returns n elements, aligned: the bits of a dot product depend on that.
func (w *work[T]) buffer(k int, n int64) []T {
	if int64(len(w.buffers[k])) < n {
		w.buffers[k] = align.Make[T](max(n, hostBlock*max(hostBlock, w.dim)))
	}
	return w.buffers[k][:n]
}

// load copies rows to a buffer.
func (w *work[T]) load(k int, from memory[T]) []T {
	to, dim := w.buffer(k, from.rows*w.dim), w.dim
	from.each(func(i int64, row []T) { copy(to[i*dim:], row) }, func(i int64, row []uint16) {
		for k, x := range row {
			to[i*dim+int64(k)] = T(expr.FromHalf(from.host.dtype, x))
		}
	})
	return to
}

// scores computes s = a b^T, of n and m rows.
func (w *work[T]) scores(s, a, b []T, n, m int64) {
	w.gemm(kernels.Matrices[T]{TransB: true, M: n, N: m, K: w.dim, A: a, B: b, C: s, LDA: w.dim, LDB: w.dim})
}

// accumulate adds to the rows of sum op(weights) b. weights is n x m, and transposed if trans. Products skip weights of 0, or make NaN of them where b is not finite; there,
// weights of pairs that are seen are not skipped, and others are.
func (w *work[T]) accumulate(sum, weights, b []T, trans bool, n, m int64, seen func(i, j int64) bool) {
	if !finite(b) {
		for i := range n {
			for j := range m {
				to, from := i, j
				if trans {
					to, from = j, i
				}
				for k := range w.dim {
					if seen(i, j) {
						sum[to*w.dim+k] += weights[i*m+j] * b[from*w.dim+k]
					}
				}
			}
		}
		return
	}
	x := kernels.Matrices[T]{TransA: trans, M: n, N: w.dim, K: m, A: weights, B: b, LDA: m, LDB: w.dim}
	if trans {
		x.M, x.K = m, n
	}
	x.C = w.buffer(len(w.buffers)-1, x.M*w.dim)
	w.gemm(x)
	for i, v := range x.C {
		sum[i] += v
	}
}

// finite reports whether there is neither NaN nor Inf. Two sums hide the latency.
func finite[T kernels.Float](x []T) bool {
	var a, b T
	for ; len(x) >= 2; x = x[2:] {
		a += x[0] - x[0]
		b += x[1] - x[1]
	}
	for _, v := range x {
		a += v - v
	}
	return a+b == 0
}

// gemm computes a product by the BLAS.
func (w *work[T]) gemm(x kernels.Matrices[T]) {
	own, fast := w.by.(kernels.Multiplier)
	flag := map[bool]blas.Transpose{false: blas.NoTrans, true: blas.Trans}
	switch x := any(x).(type) {
	case kernels.Matrices[float32]:
		if !fast || !own.Multiply32(x) {
			w.by.Sgemm(flag[x.TransA], flag[x.TransB], int(x.M), int(x.N), int(x.K), 1, x.A, int(x.LDA), x.B, int(x.LDB), 0, x.C, int(x.N))
		}
	case kernels.Matrices[float64]:
		if !fast || !own.Multiply64(x) {
			w.by.Dgemm(flag[x.TransA], flag[x.TransB], int(x.M), int(x.N), int(x.K), 1, x.A, int(x.LDA), x.B, int(x.LDB), 0, x.C, int(x.N))
		}
	}
}

func fill[T kernels.Float](x []T, v T) {
	for i := range x {
		x[i] = v
	}
}
