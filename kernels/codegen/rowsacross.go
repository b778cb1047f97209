package codegen

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// reduceStrided combines the partial results of the threads of each row, which are not neighbours. Each thread stores its result to shared memory.
// All threads then combine groups of neighbouring results, round by round, until so few are left that every thread reads all those of its rows. When
// every thread read all results of its rows at once, 512 sums over 128 rows took 10 us (H200, bench/notes/rows.md).
func (w *rowsWriter) reduceStrided(list []*accumulator) {
	number := w.result(expr.B32, "mov.u32 %s, %%tid.x")
	x, y := w.result(expr.B32, "and.b32 %s, %s, %d", number, w.rowsPerBlock-1), w.result(expr.B32, "shr.u32 %s, %s, %s", number, shift(w.rowsPerBlock))
	w.Line("mad.lo.u32 %s, %s, %d, %s", y, y, w.rowsPerBlock*w.width, x)
	to, from := w.sharedAddress(y), w.sharedAddress(x)
	for _, a := range list {
		w.Line("bar.sync 0") // the results joined before have been read
		for k, v := range a.lanes {
			w.Line("st.shared.%s [%s+%d], %s", a.wide().PTX(), to, 8*k*w.rowsPerBlock, v)
		}
		w.Line("bar.sync 0")
		left, apart := w.threadsPerRow, 1
		for _, n := range reduceRounds(w.threadsPerRow, w.width) {
			left /= n
			w.reduceGroups(a, number, n, apart, left)
			apart *= n
		}
		for k := range a.lanes {
			a.lanes[k] = w.reduceShared(a, from, 8*k*w.rowsPerBlock, left, 8*apart*w.rowsPerBlock*w.width)
		}
	}
}

// reduceRounds returns the size of a group in each round, given the threads of a row and how many rows each thread has.
func reduceRounds(threads, width int) (list []int) {
	const most = 16 // results that every thread reads after the last round
	for threads*width > most {
		n := max(width, min(8, threads*width/most)) // a width at least: there are no more threads
		list, threads = append(list, n), threads/n
	}
	return list
}

// reduceGroups reduces groups of n partial results of each row, `apart` threads apart, into the group's first slot. `left` results per row remain.
func (w *rowsWriter) reduceGroups(a *accumulator, number string, n, apart, left int) {
	rows := w.rowsPerBlock * w.width
	at, p := w.Register(expr.B32), w.Register(expr.Pred)
	w.loops++
	rest := fmt.Sprintf("rest%d", w.loops)
	w.Line("setp.ge.u32 %s, %s, %d", p, number, left*rows)
	w.Line("@%s bra %s", p, rest)
	w.Line("and.b32 %s, %s, %d", at, number, -rows)
	w.Line("mul.lo.u32 %s, %s, %d", at, at, n*apart-1)
	w.Line("add.u32 %s, %s, %s", at, at, number) // neighbours' number * n * apart * rows + row
	at = w.sharedAddress(at)
	w.Line("st.shared.%s [%s], %s", a.wide().PTX(), at, w.reduceShared(a, at, 0, n, 8*apart*rows))
	w.Label(rest)
	w.Line("bar.sync 0")
}

// reduceShared reduces n numbers in shared memory, `apart` bytes apart, in order.
func (w *rowsWriter) reduceShared(a *accumulator, at string, offset, n, apart int) (sum string) {
	for i := range n {
		r := w.emit(a.wide().Kind(), "ld.shared."+a.wide().PTX(), location{at, int64(offset + i*apart)})
		if i > 0 {
			r = w.combine(a, sum, r)
		}
		sum = r
	}
	return sum
}
