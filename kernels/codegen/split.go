package codegen

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/bf16split"
)

// Outputs stored as splits are what float32 products on tensor cores read: three BF16 numbers that add up to each element, and the range of the elements. A kernel that
// stores them saves the launch that would split its output, which reads the output again.
const (
	splitPlanes = 3
	// Vectors of a thread of a Map, twice as many if there would be too many ranges. A step of GPT-2 124M, ms    2        4        8
	// H100                                                                                                       81.58    81.53
	// H200                                                                                                                77.26    77.92
	splitVectors = 4
	rangeBytes   = 8
	sizesBytes   = 32 * rangeBytes // shared memory, at most, for the ranges of a block's warps
)

// MaxRanges is the largest number of blocks of a launch that stores splits.
const MaxRanges = 1 << 14

// SplitBytes returns the bytes of elements that are stored as splits:
//
//	three matrices in BF16, each with the first, second or third split of all elements, encoded as package bf16split does
//	the range of the elements that each block has stored, as [Ranges] counts them
func SplitBytes(elements int64) int64 {
	return splitPlanes*elements*expr.BF16.Size() + MaxRanges*rangeBytes
}

// Ranges returns the number of ranges that are stored with splits by a plan.
func Ranges(p *kernels.Plan) int64 {
	if p == nil || len(p.Launches) == 0 {
		return 0
	}
	return int64(p.Launches[0].Grid[0]) * int64(max(p.Launches[0].Grid[1], 1))
}

// Split is how a float32 output is stored as splits.
type Split uint8

const (
	Unsplit           Split = iota // it is stored as elements
	SplitInOrder                   // each matrix has the elements in row-major order of the shape
	SplitChannelsLast              // the shape is (images, channels, ...), and each matrix has those of an image with channels contiguous
)

func (c call) splitOf(k int) Split {
	if c.split == nil {
		return Unsplit
	}
	return c.split[k]
}

func (c call) isSplit(k int) bool { return c.splitOf(k) != Unsplit }

// splits reports whether outputs are stored as splits.
func (c call) splits() bool {
	return slices.ContainsFunc(c.split, func(s Split) bool { return s != Unsplit })
}

// splitLetters returns a letter for each output, or "" if none is stored as splits.
func (c call) splitLetters() string {
	if !c.splits() {
		return ""
	}
	letters := bytes.Repeat([]byte("-"), len(c.f.Outputs()))
	for k, s := range c.split {
		letters[k] = "-sc"[s]
	}
	return string(letters)
}

// storedOutputs returns the types of the outputs in memory.
func (c call) storedOutputs() []expr.Dtype {
	return (&layout{splitOutputs: c.splitLetters()}).storedOutputs(c.f)
}

func (l *layout) storedOutputs(f expr.Func) []expr.Dtype {
	list := f.Outputs()
	for k, letter := range l.splitOutputs {
		if letter != '-' {
			list[k] = expr.BF16
		}
	}
	return list
}

// isSplit reports whether output k is stored as splits.
func (n *nest) isSplit(k int) bool {
	return n.layout.splitOutputs != "" && n.layout.splitOutputs[k] != '-'
}

// checkSplit returns an error if outputs cannot be stored as splits on a device.
func (c call) checkSplit(dev kernels.Device) error {
	if !c.splits() {
		return nil
	}
	if len(c.split) != len(c.f.Outputs()) || slices.Max(c.split) > SplitChannelsLast {
		return fmt.Errorf("got splits %v of %d outputs", c.split, len(c.f.Outputs()))
	}
	for k, d := range c.f.Outputs() {
		if c.isSplit(k) && (d != expr.Float32 || c.perRow != nil && c.perRow[k]) {
			return fmt.Errorf("output %d: got %v, want splits of float32 elements for each index", k, d)
		}
	}
	if dev.Kind == kernels.GPU && dev.Major < 8 {
		return errors.New("splits are stored by devices of compute capability 8.0 and later ones")
	}
	if c.storesChannelsLast() {
		return c.checkChannelsLast()
	}
	return nil
}

// checkSplits returns an error if a launch of so many blocks does not store splits.
func (n *nest) checkSplits(blocks int64) error {
	for k := range n.outputs {
		if !n.isSplit(k) {
			continue
		}
		switch l := &n.layout; {
		case l.place(len(n.types)+k).lanes != aligned || l.width%2 != 0 || n.rows*n.columns%int64(l.width) != 0 || n.isMap() && n.rows%int64(l.width) != 0:
			return fmt.Errorf("output %d of splits is not stored in vectors", k)
		case l.threadsPerRow*l.rowsPerBlock%32 != 0 || blocks*max(n.grid.splits, 1) > MaxRanges:
			return fmt.Errorf("output %d of splits is stored by %d blocks of %d threads", k, blocks, l.threadsPerRow*l.rowsPerBlock)
		}
	}
	return nil
}

// splitOutput is an output that is stored as splits, in registers.
type splitOutput struct {
	plane, ranges       string // bytes of a matrix, and where the ranges begin
	most, least, others string // of the thread: sizes of its finite elements, the least of them less 1, and whether there are others, in the sign's bit
}

// Sizes of elements, their bits without the sign; less 1 where 0 is not to be the least one.
const (
	sizeLimit = 0x7f800000
	sizeHuge  = 0x7f7f8000
	sizeTiny  = (bf16split.MinExact+127)<<23 - 1
)

// splitParameters adds the parameters of outputs that are stored as splits.
func (w *kernelWriter) splitParameters() {
	for k, letter := range w.splitOutputs {
		if letter != '-' {
			s := &splitOutput{plane: w.parameter("u64", expr.B64), ranges: w.pointer()}
			s.most, s.least, s.others = w.result(expr.B32, "mov.b32 %s, 0"), w.result(expr.B32, "mov.b32 %s, %d", sizeLimit-1), w.result(expr.B32, "mov.b32 %s, 0")
			w.places[len(w.types)+k].split = s
		}
	}
}

// storeSplit stores the splits of a vector, if it exists, and adds its elements to the thread's range. Elements that splits don't hold are rare: code that is jumped over
// encodes them.
func (w *kernelWriter) storeSplit(s *splitOutput, at location, values []string, exists string) {
	w.splitStores++
	done, usual := fmt.Sprintf("split%d", w.splitStores), fmt.Sprintf("usual%d", w.splitStores)
	if exists != "" {
		w.Line("@!%s bra %s", exists, done)
	}
	b32 := func(format string, args ...any) string { return w.result(expr.B32, format, args...) }
	n := len(values)
	bits, sizes, less := make([]string, n), make([]string, n), make([]string, n)
	rest := make([]string, n)
	var most, least string
	for k, v := range values {
		bits[k] = b32("mov.b32 %s, %s", v)
		sizes[k] = b32("and.b32 %s, %s, 0x7fffffff", bits[k])
		less[k] = b32("sub.u32 %s, %s, 1", sizes[k])
		rest[k] = bits[k]
		if k == 0 {
			most, least = sizes[0], less[0]
			continue
		}
		most, least = b32("max.u32 %s, %s, %s", most, sizes[k]), b32("min.u32 %s, %s, %s", least, less[k])
	}
	w.Line("min.u32 %s, %s, %s", s.least, s.least, least)
	var planes [splitPlanes][]string
	for q := range planes {
		for k := 0; k < n; k += 2 {
			p := b32("cvt.rn.bf16x2.f32 %s, %s, %s", rest[k+1], rest[k])
			planes[q] = append(planes[q], p)
			if q == splitPlanes-1 {
				continue
			}
			low, high := b32("shl.b32 %s, %s, 16", p), b32("and.b32 %s, %s, 0xffff0000", p)
			rest[k], rest[k+1] = b32("sub.rn.f32 %s, %s, %s", rest[k], low), b32("sub.rn.f32 %s, %s, %s", rest[k+1], high)
		}
	}
	rare := w.result(expr.Pred, "setp.lt.u32 %s, %s, %d", least, sizeTiny)
	w.Line("setp.ge.or.u32 %s, %s, %d, %s", rare, most, sizeHuge, rare)
	w.Line("@!%s max.u32 %s, %s, %s", rare, s.most, s.most, most)
	w.Line("@!%s bra %s", rare, usual)
	for k := range values {
		tiny := w.result(expr.Pred, "setp.lt.u32 %s, %s, %d", less[k], sizeTiny)
		encoded := w.result(expr.Pred, "setp.lt.or.u32 %s, %s, %d, %s", b32("sub.u32 %s, %s, %d", sizes[k], sizeHuge), sizeLimit-sizeHuge, tiny)
		for q, from := range [splitPlanes]string{b32("shr.u32 %s, %s, 16", bits[k]), bits[k], "0"} {
			when, p := encoded, planes[q][k/2]
			if q == 0 {
				when = tiny
			}
			w.Line("@%s bfi.b32 %s, %s, %s, %d, 16", when, p, from, p, k%2*16)
		}
		finite := w.result(expr.Pred, "setp.lt.u32 %s, %s, %d", sizes[k], sizeLimit)
		w.Line("@%s max.u32 %s, %s, %s", finite, s.most, s.most, sizes[k])
		w.Line("@!%s mov.b32 %s, 0x80000000", finite, s.others)
	}
	w.Label(usual)
	to := at
	for q := range planes {
		if q > 0 {
			to.register = w.result(expr.B64, "add.u64 %s, %s, %s", to.register, s.plane)
		}
		op, from := "st.global.b32", planes[q][0]
		if len(planes[q]) > 1 {
			op, from = fmt.Sprintf("st.global.v%d.b32", len(planes[q])), "{"+strings.Join(planes[q], ", ")+"}"
		}
		w.Line("%s %s, %s", op, to, from)
	}
	w.Label(done)
}

// storeRanges stores the range of the elements of the block, for each output that is stored as splits. All threads of the block come here.
func (w *kernelWriter) storeRanges() {
	first := true
	for _, p := range w.places[len(w.types):] {
		s := p.split
		if s == nil {
			continue
		}
		warps := w.threadsPerRow * w.rowsPerBlock / 32
		if first {
			w.Line(".shared .align 8 .b8 sizes[%d]", rangeBytes*warps)
		} else {
			w.Line("bar.sync 0")
		}
		b32 := func(format string, args ...any) string { return w.result(expr.B32, format, args...) }
		reduce := func(most, least, others string) [3]string {
			return [3]string{b32("redux.sync.max.u32 %s, %s, 0xffffffff", most), b32("redux.sync.min.u32 %s, %s, 0xffffffff", least), b32("redux.sync.or.b32 %s, %s, 0xffffffff", others)}
		}
		thread, at := b32("mov.u32 %s, %%tid.x"), b32("mov.u32 %s, sizes")
		warp := reduce(s.most, s.least, s.others)
		lane := b32("and.b32 %s, %s, 31", thread)
		leader := w.result(expr.Pred, "setp.eq.u32 %s, %s, 0", lane)
		w.Line("@%s st.shared.v2.b32 [%s], {%s, %s}", leader, b32("mad.lo.u32 %s, %s, %d, %s", b32("shr.u32 %s, %s, 5", thread), rangeBytes, at), b32("or.b32 %s, %s, %s", warp[0], warp[2]), warp[1])
		w.Line("bar.sync 0")
		most, least, others := b32("mov.b32 %s, 0"), b32("mov.b32 %s, %d", sizeLimit-1), b32("mov.b32 %s, 0")
		has := w.result(expr.Pred, "setp.lt.u32 %s, %s, %d", lane, warps)
		w.Line("@%s ld.shared.v2.b32 {%s, %s}, [%s]", has, most, least, b32("mad.lo.u32 %s, %s, %d, %s", lane, rangeBytes, at))
		w.Line("and.b32 %s, %s, 0x80000000", others, most)
		w.Line("and.b32 %s, %s, 0x7fffffff", most, most)
		all := reduce(most, least, others)
		block := b32("mov.u32 %s, %%ctaid.y")
		w.Line("mad.lo.u32 %s, %s, %s, %s", block, block, b32("mov.u32 %s, %%nctaid.x"), b32("mov.u32 %s, %%ctaid.x"))
		to := w.result(expr.B64, "mad.wide.u32 %s, %s, %d, %s", block, rangeBytes, s.ranges)
		writer := w.result(expr.Pred, "setp.eq.u32 %s, %s, 0", thread)
		w.Line("@%s st.global.v2.b32 [%s], {%s, %s}", writer, to, b32("or.b32 %s, %s, %s", all[0], all[2]), b32("add.u32 %s, %s, 1", all[1]))
		first = false
	}
}

// splitRanges are those of the outputs of a call of the Go body.
type splitRanges struct {
	*nest
	call  kernels.Call
	mutex sync.Mutex
	all   []bf16split.Magnitudes
}

func newSplitRanges(n *nest, c kernels.Call) *splitRanges {
	r := &splitRanges{nest: n, call: c}
	if n.layout.splitOutputs != "" {
		for range n.outputs {
			r.all = append(r.all, bf16split.None)
		}
	}
	return r
}

// join adds the ranges of a tile, and clears them.
func (r *splitRanges) join(t *rowTile) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for k := range r.all {
		r.all[k].Join(t.ranges[k].Packed())
		t.ranges[k] = bf16split.None
	}
}

// write writes the ranges: that of all elements as the one of the first block.
func (r *splitRanges) write() {
	for k, at := 0, len(r.call.Args); k < len(r.all); k++ {
		if !r.isSplit(k) {
			continue
		}
		for j := range r.outputs[k:] { // the arguments of the outputs are at the end, in order
			if r.isSplit(k + j) {
				at -= 2
			}
		}
		to := kernels.Slice[uint32](r.call, r.call.Args[at+1].(kernels.Ref))
		for block := range int64(r.call.Grid[0]) * max(r.grid.splits, 1) {
			to[2*block], to[2*block+1] = bf16split.None.Packed()
		}
		to[0], to[1] = r.all[k].Packed()
		at = len(r.call.Args)
	}
}

// storeSplits stores a block of an output as splits.
func (t *rowTile) storeSplits(output int, block []byte) {
	s, plane, x := &t.stored[len(t.types)+output], t.nest.rows*t.nest.columns, kernels.Elements[float32](block)
	to, r := kernels.Elements[uint16](s.memory), &t.ranges[output]
	t.runs(s, t.inner, t.outer, func(k, at, stride, n int64) {
		for j := range n {
			r.Add(x[k+j])
			for q, p := range bf16split.Encode(x[k+j]) {
				to[int64(q)*plane+at+j*stride] = p
			}
		}
	})
}
