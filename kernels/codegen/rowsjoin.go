package codegen

import (
	"math"
	"math/bits"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// maxReductions is the most reductions of a stage: each takes shared memory.
const maxReductions = 64

// accumulator is a thread's partial results of a reduction, in lanes: RowSum of floating-point numbers in double, except for matmuls.
type accumulator struct {
	op     expr.Op
	dtype  expr.Dtype // of the result
	matmul bool       // a sum in float32: see isMatmul
	lanes  []string
	nan    []string     // predicates that there was a NaN, for each row; none where instructions see to it
	sameAs *accumulator // the one of another type that adds up the same numbers, if there is one
}

// wide is the type that is reduced in.
func (a *accumulator) wide() expr.Dtype {
	if a.sumsFloats() && !a.matmul {
		return kernels.Float64
	}
	return a.dtype
}

// sumsFloats reports whether the reduction is a sum of floating-point numbers.
func (a *accumulator) sumsFloats() bool { return a.op == expr.RowSum && a.dtype.IsFloat() }

// newAccumulator returns an empty accumulator. For a sum whose first elements are resident, lanes are "" until then.
func (w *rowsWriter) newAccumulator(op expr.Op, d expr.Dtype, matmul bool) *accumulator {
	a := &accumulator{op: op, dtype: d, matmul: matmul, lanes: make([]string, w.width)}
	for k := range a.lanes {
		if a.sumsFloats() && w.residentBatch != nil {
			continue
		}
		a.lanes[k] = w.start(a)
	}
	for range w.rowLanes() {
		if op != expr.RowSum && d.IsFloat() && !w.native(a) {
			a.nan = append(a.nan, w.emit(expr.Pred, "mov.pred", 0))
		}
	}
	return a
}

// native reports whether one instruction computes the greater of two numbers or NaN.
func (w *rowsWriter) native(a *accumulator) bool { return w.nan && a.dtype == kernels.Float32 }

// instruction returns that of a maximum or minimum, or of a sum of integers.
func (w *rowsWriter) instruction(a *accumulator) string {
	name := map[expr.Op]string{expr.RowSum: "add", expr.RowMax: "max", expr.RowMin: "min"}[a.op]
	if w.native(a) {
		name += ".NaN"
	}
	return name + "." + a.dtype.PTX()
}

// accumulate accumulates the lanes of a vector that exists.
func (w *rowsWriter) accumulate(a *accumulator, values []string, exists string) {
	for k, v := range values {
		if a.sumsFloats() {
			w.add(a, k, v, exists)
			continue
		}
		if a.dtype == expr.Int32 && a.op != expr.RowSum {
			w.Extreme(predicated(exists), reductionOf[a.op].operator, a.lanes[k], a.lanes[k], v)
			continue
		}
		w.Line("%s%s %s, %s, %s", predicated(exists), w.instruction(a), a.lanes[k], a.lanes[k], v)
		switch n := len(a.nan); {
		case n == 1 && w.width > 1 && k%2 == 0: // with the next
		case n > 0:
			p, with := a.nan[k%n], v
			if n == 1 && w.width > 1 {
				with = values[k-1]
			}
			w.Line("%ssetp.nan.or.%v %s, %s, %s, %s", predicated(exists), a.dtype, p, v, with, p)
		}
	}
}

// add adds a number to a lane of a sum, if it exists.
func (w *rowsWriter) add(a *accumulator, k int, v, exists string) {
	begun := a.lanes[k] != ""
	if exists != "" && (a.dtype == kernels.Float32 || !begun) { // 0 changes no sum
		v, exists = w.emit(a.dtype.Kind(), "selp."+a.dtype.String(), v, expr.Literal(a.dtype, 0), exists), ""
	}
	wide := a.wide()
	if a.dtype != wide {
		v = w.emit(expr.F64, "cvt.f64.f32", v)
	}
	if begun {
		w.Line("%sadd.rn.%s %s, %s, %s", predicated(exists), wide.PTX(), a.lanes[k], a.lanes[k], v)
		return
	}
	a.lanes[k] = w.result(wide.Kind(), "mov."+wide.PTX()+" %s, %s", v)
}

// combine returns the reduction of two.
func (w *rowsWriter) combine(a *accumulator, x, y string) string {
	k := a.wide().Kind()
	switch {
	case a.sumsFloats():
		return w.emit(k, "add.rn."+a.wide().PTX(), x, y)
	case w.native(a) || a.dtype.IsInteger():
		return w.emit(k, w.instruction(a), x, y)
	}
	r, p := w.Register(k), w.emit(expr.Pred, "setp.nan."+a.dtype.String(), x, y)
	w.Line("selp.%v %s, %s, %s, %s", a.dtype, r, expr.Literal(a.dtype, math.NaN()), w.emit(k, w.instruction(a), x, y), p)
	return r
}

// reduceThreads returns the results of the threads of a row together, for each row of the thread.
func (w *rowsWriter) reduceThreads(all []*accumulator) [][]string {
	w.reduceLanes(all)
	list := unique(all)
	switch {
	case w.threadsPerRow == 1:
	case w.stridedAxis:
		w.reduceStrided(list)
	default:
		w.reduceContiguous(list)
	}
	return w.results(all)
}

// unique returns the accumulators without those that repeat another.
func unique(list []*accumulator) []*accumulator {
	return slices.DeleteFunc(slices.Clone(list), func(a *accumulator) bool { return a.sameAs != nil })
}

// reduceLanes combines the lanes of a thread, over a contiguous axis, and marks those that had a NaN.
func (w *rowsWriter) reduceLanes(list []*accumulator) {
	for _, a := range unique(list) {
		for n := len(a.lanes); !w.stridedAxis && n > 1; n = len(a.lanes) {
			for k := range n / 2 {
				a.lanes[k] = w.combine(a, a.lanes[2*k], a.lanes[2*k+1])
			}
			a.lanes = a.lanes[:n/2]
		}
		for k, p := range a.nan {
			a.lanes[k] = w.emit(a.dtype.Kind(), "selp."+a.dtype.String(), expr.Literal(a.dtype, math.NaN()), a.lanes[k], p)
		}
	}
}

// results returns the results of reductions, in their types.
func (w *rowsWriter) results(all []*accumulator) [][]string {
	for _, a := range unique(all) {
		for k, v := range a.lanes {
			if a.sumsFloats() && w.residentBatch != nil { // of -0 alone it is 0
				a.lanes[k] = w.combine(a, v, expr.Literal(a.wide(), 0))
			}
		}
	}
	results := make([][]string, len(all))
	for i, a := range all {
		if of := a.sameAs; of != nil {
			a.lanes = of.lanes
		}
		for _, v := range a.lanes {
			if a.sumsFloats() && a.dtype != a.wide() {
				v = w.emit(expr.F32, "cvt.rn.f32.f64", v)
			}
			results[i] = append(results[i], v)
		}
	}
	return results
}

// shuffle combines a thread's value with those of threads 1, 2, 4, ... away within a group of lanes of a warp, from a distance on.
func (w *rowsWriter) shuffle(a *accumulator, v string, away, lanes int) string {
	for ; away < lanes; away *= 2 {
		v = w.combine(a, v, w.fromLane(a, v, away))
	}
	return v
}

// fromLane returns the value of the thread that is so many lanes away.
func (w *rowsWriter) fromLane(a *accumulator, v string, away int) string {
	const swap = "shfl.sync.bfly.b32 %s, %s, %d, 31, 0xffffffff"
	other := w.Register(a.wide().Kind())
	if a.wide().Kind() != expr.F64 && a.wide().Kind() != expr.B64 {
		w.Line(swap, other, v, away)
		return other
	}
	low, high := w.halves(v)
	w.Line(swap, low, low, away)
	w.Line(swap, high, high, away)
	w.Line("mov.b64 %s, {%s, %s}", other, low, high)
	return other
}

// exchange is shuffle of several sums of a matmul, a power of two, with the same bits: of each pair of lanes, one goes on with half of the sums and the other with the others. Lane i has the sum
// whose number is the reverse of i's lowest bits. For four sums these are 6 shuffles instead of 20.
func (w *rowsWriter) exchange(list []*accumulator) string {
	lane := w.result(expr.B32, "mov.u32 %s, %%laneid")
	values, a, away := make([]string, len(list)), list[0], 1
	for i, a := range list {
		values[i] = a.lanes[0]
	}
	for n := len(values) / 2; n > 0; n /= 2 {
		upper := w.result(expr.Pred, "setp.ne.u32 %s, %s, 0", w.result(expr.B32, "and.b32 %s, %s, %d", lane, away))
		for k := range n {
			own := w.emit(a.wide().Kind(), "selp."+a.wide().PTX(), values[k+n], values[k], upper)
			values[k] = w.combine(a, own, w.fromLane(a, w.emit(a.wide().Kind(), "selp."+a.wide().PTX(), values[k], values[k+n], upper), away))
		}
		away *= 2
	}
	return w.shuffle(a, values[0], away, 32)
}

// reduceBytes returns the bytes of shared memory through which threads reduce. Over a contiguous axis they have an element for each warp and
// reduction of a stage, for two stages in alternation or for each share of a block; over a strided axis an element for each lane of a block.
func reduceBytes(l layout, staged expr.Staged) int {
	switch {
	case l.stridedAxis && l.threadsPerRow > 1:
		return 8 * l.threadsPerRow * l.rowsPerBlock * l.width
	case !l.stridedAxis && l.threadsPerRow > 32:
		most := 0
		for _, s := range staged.Stages {
			most = max(most, len(s.Reductions))
		}
		return max(l.sharesPerBlock, 2) * most * max(l.rowsPerThread, 1) * warpsBytes
	}
	return 0
}

// warpsBytes is the bytes of an element of each warp of a block.
const warpsBytes = 32 * 8

// sharedAddress returns the address in shared memory of a number of 8 bytes.
func (w *rowsWriter) sharedAddress(number string) string {
	base := w.result(expr.B32, "mov.u32 %s, joined")
	w.Line("mad.lo.u32 %s, %s, 8, %s", base, number, base)
	return base
}

// reduceContiguous combines neighbouring threads: those of a warp by shuffles, warps through shared memory.
func (w *rowsWriter) reduceContiguous(list []*accumulator) {
	if w.threadsPerRow <= 32 {
		for _, a := range list {
			a.lanes[0] = w.shuffle(a, a.lanes[0], 1, w.threadsPerRow)
		}
		return
	}
	turn := w.result(expr.B32, "mov.u32 %s, %d", w.reductions%2)
	w.reduceWarp(list, turn)
	w.reduceBlocks(list)
	w.reductions++
}

// reduceWarp reduces the threads of each warp and stores their results in shared memory, in the slots of a parity or share.
func (w *rowsWriter) reduceWarp(list []*accumulator, turn string) {
	list = unique(list)
	sum, several := "", len(list) > 1 && arith.Pow2(int64(len(list))) == int64(len(list)) && !slices.ContainsFunc(list, func(a *accumulator) bool { return !a.matmul || !a.sumsFloats() })
	if several {
		sum = w.exchange(list)
	} else {
		for _, a := range list {
			a.lanes[0] = w.shuffle(a, a.lanes[0], 1, 32)
		}
	}
	number := w.result(expr.B32, "mov.u32 %s, %%tid.x")
	lane := w.result(expr.B32, "and.b32 %s, %s, 31", number)
	w.Line("shr.u32 %s, %s, 5", number, number)
	p := w.Register(expr.Pred)
	if several { // a lane for each sum
		w.Line("setp.lt.u32 %s, %s, %d", p, lane, len(list))
	} else {
		w.Line("setp.eq.u32 %s, %s, 0", p, lane)
	}
	w.Line("mad.lo.u32 %s, %s, %d, %s", number, turn, w.roundBytes()/8, number)
	to := w.sharedAddress(number)
	if several {
		which := w.result(expr.B32, "brev.b32 %s, %s", lane)
		w.Line("shr.u32 %s, %s, %d", which, which, 32-bits.TrailingZeros(uint(len(list))))
		w.Line("mad.lo.u32 %s, %s, %d, %s", to, which, warpsBytes, to)
		w.Line("@%s st.shared.%s [%s], %s", p, list[0].wide().PTX(), to, sum)
		return
	}
	for i, a := range list {
		w.Line("@%s st.shared.%s [%s+%d], %s", p, a.wide().PTX(), to, i*warpsBytes, a.lanes[0])
	}
}

// roundBytes returns the bytes of shared memory through which a stage, or a share of it, is reduced.
func (w *rowsWriter) roundBytes() int {
	return reduceBytes(w.layout, w.staged) / max(w.sharesPerBlock, 2)
}

// reduceBlocks waits for the warps of a block or a cluster, and combines their results in shared memory.
func (w *rowsWriter) reduceBlocks(list []*accumulator) {
	if w.cluster > 0 {
		w.Line("barrier.cluster.arrive")
		w.Line("barrier.cluster.wait")
	} else {
		w.Line("bar.sync 0")
	}
	begin, warps := w.reductions%2*w.roundBytes(), w.threadsPerRow/32
	if w.cluster == 0 && w.sharesPerBlock == 0 && warps <= 8 {
		for i, a := range list {
			a.lanes[0] = w.reduceWarps(a, begin+i*warpsBytes, warps)
		}
		return
	}
	lanes := int(arith.Pow2(int64(warps)))
	lane := w.result(expr.B32, "mov.u32 %s, %%tid.x")
	w.Line("and.b32 %s, %s, %d", lane, lane, lanes-1)
	exists := w.result(expr.Pred, "setp.lt.u32 %s, %s, %d", lane, warps)
	from := w.sharedAddress(lane)
	for i, a := range list {
		a.lanes[0] = w.shuffle(a, w.loadShares(a, exists, from, begin+i*warpsBytes), 1, lanes)
	}
}

// reduceWarps loads the results of all warps of a row from shared memory and combines them in the order of shuffles. With few warps, every thread does.
func (w *rowsWriter) reduceWarps(a *accumulator, bytes, warps int) string {
	base := w.result(expr.B32, "mov.u32 %s, joined")
	if w.rowsPerBlock > 1 { // the warps of the thread's row
		row := w.result(expr.B32, "mov.u32 %s, %%tid.x")
		w.Line("shr.u32 %s, %s, %s", row, row, shift(w.threadsPerRow))
		w.Line("mad.lo.u32 %s, %s, %d, %s", base, row, 8*warps, base)
	}
	list := w.registers(a.wide(), warps)
	const pair = 2 // are 16 bytes
	for k := 0; k < warps; k += pair {
		if a.wide() == kernels.Float64 && k+1 < warps {
			w.Line("ld.shared.v2.f64 {%s, %s}, [%s+%d]", list[k], list[k+1], base, bytes+8*k)
			continue
		}
		for j := k; j < min(k+pair, warps); j++ {
			w.Line("ld.shared.%s %s, [%s+%d]", a.wide().PTX(), list[j], base, bytes+8*j)
		}
	}
	for n := len(list); n > 1; n = len(list) {
		for k := range n / 2 {
			list[k] = w.combine(a, list[2*k], list[2*k+1])
		}
		if n%2 > 0 {
			list[n/2] = list[n-1]
		}
		list = list[:(n+1)/2]
	}
	return list[0]
}

// loadShares loads the results of the blocks of a cluster, of each of their shares, from an address of
// shared memory, if it exists, and combines them in the order of the shares.
func (w *rowsWriter) loadShares(a *accumulator, exists, from string, bytes int) string {
	var list []string
	for rank := range max(w.cluster, 1) {
		at, memory := from, "shared"
		if w.cluster > 0 {
			at, memory = w.result(expr.B32, "mapa.shared::cluster.u32 %s, %s, %d", from, rank), "shared::cluster"
		}
		for share := range max(w.sharesPerBlock, 1) {
			r := w.start(a)
			w.Line("@%s ld.%s.%s %s, [%s+%d]", exists, memory, a.wide().PTX(), r, at, bytes+share*w.roundBytes())
			list = append(list, r)
		}
	}
	for n := len(list); n > 1; n /= 2 {
		for k := range n / 2 {
			list[k] = w.combine(a, list[2*k], list[2*k+1])
		}
	}
	return list[0]
}

// start returns a register with the identity of a reduction.
func (w *rowsWriter) start(a *accumulator) string {
	d := a.wide()
	if d.IsInteger() {
		return w.emit(d.Kind(), "mov."+d.PTX(), integerIdentity(a.op, d))
	}
	return w.emit(d.Kind(), "mov."+d.PTX(), expr.Literal(d, reductionOf[a.op].Identity()))
}
