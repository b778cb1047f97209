package codegen

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Maps of images (count, channels, pixels) that store an output as splits with channels contiguous, as convolutions read them. A block computes squares of channels by pixels: it loads and
// stores elements along pixels, and stores those of the output to shared memory, from which each thread loads vectors of channels.

const (
	squareSide      = 64
	squareBlock     = 256
	squareVector    = 4                         // pixels of a vector
	squareLanes     = squareSide / squareVector // threads along pixels
	squareRows      = squareBlock / squareLanes // channels that a block loads at a time
	squareChannels  = 8                         // of a vector of splits
	squareMaxBlocks = 1 << 12                   // convolutions read a range for each block
)

// storesChannelsLast reports whether an output is stored as splits with channels contiguous.
func (c call) storesChannelsLast() bool { return slices.Contains(c.split, SplitChannelsLast) }

func (l *layout) channelsLast() bool { return strings.Contains(l.splitOutputs, "c") }

// channelsLast returns the output with that order as a view.
func channelsLast(shape []int) View {
	v := Dense(shape)
	for a := range v.Strides[2:] {
		v.Strides[2+a] *= shape[1]
	}
	v.Strides[1] = 1
	return v
}

// StoresChannelsLast reports whether kernels store splits with channels last of images of so many channels and pixels.
func StoresChannelsLast(channels, pixels int64) bool {
	return channels%squareChannels == 0 && pixels%squareVector == 0
}

// checkChannelsLast returns an error if kernels do not store an output of a shape with channels contiguous.
func (c call) checkChannelsLast() error {
	if len(c.shape) < 3 || !StoresChannelsLast(int64(c.shape[1]), kernels.Count(c.shape[2:])) || kernels.Count(c.shape) > 1<<30 {
		return fmt.Errorf("got shape %v of splits with channels last, want images, multiples of %d channels and of %d pixels, and 2^30 elements at most", c.shape, squareChannels, squareVector)
	}
	others := slices.Clone(c.split)
	k := slices.Index(others, SplitChannelsLast)
	if others = slices.Delete(others, k, k+1); (call{split: others}).splits() {
		return fmt.Errorf("got splits %v, want one output of splits with channels last", c.split)
	}
	return nil
}

// layOutSquares lays the mapping out in squares, with the axes images, channels and pixels.
func (n *nest) layOutSquares(shape []int) error {
	if n.layout.wide {
		return errors.New("got indices of 64 bits")
	}
	axes := make([]int, len(shape)-2)
	for k := range axes {
		axes[k] = 2 + k
	}
	pixels, merged, strides := mergeAxes(shape, axes, n.views, nil)
	if len(merged) != 1 {
		return fmt.Errorf("got operands that have pixels of shape %v, want one stride along them", merged)
	}
	n.rowShape = []int64{int64(shape[0]), int64(shape[1]), pixels}
	places := make([]place, len(n.views))
	for i, v := range n.views {
		stride := strides[i][0]
		n.rowStrides[i] = []int64{int64(v.Strides[0]), int64(v.Strides[1]), stride}
		if i >= len(n.types) {
			places[i] = place{unitStride, fixed, aligned, plain}
			continue
		}
		unit := func(elements int64) bool {
			return elements*n.types[i].Size()%min(16, squareVector*n.types[i].Size()) == 0
		}
		switch p := &places[i]; {
		case v.Iota || v.Stream.Number != 0 || n.bounds[i].extent > 0:
			return fmt.Errorf("operand %d: want elements in memory", i)
		case slices.Max(n.rowStrides[i]) == 0:
			*p = place{fixed, fixed, single, plain}
		case stride == 0:
			*p = place{indexed, fixed, single, plain}
		case stride == 1 && unit(v.Offset) && unit(int64(v.Strides[0])) && unit(int64(v.Strides[1])):
			*p = place{indexed, fixed, aligned, plain}
		default:
			return fmt.Errorf("operand %d: got strides %v, want vectors along pixels", i, v.Strides)
		}
	}
	l := &n.layout
	l.setPlaces(places)
	l.inner, l.width, l.vectors, l.rowsPerBlock, l.rowAxes = true, squareVector, squareSide/squareRows, squareBlock, 3
	return nil
}

func (n *nest) squares() int64 {
	return n.rowShape[0] * kernels.CeilDiv(n.rowShape[1], squareSide) * kernels.CeilDiv(n.rowShape[2], squareSide)
}

// squareWriter writes the code of squares. A thread has the pixels of a vector of every squareRows-th channel, then channels of two pixels.
type squareWriter struct {
	*mapWriter
	lane, row, group, pixel string // places in a square: along pixels and channels, and along both again
	image, channel, first   string // of the square: its image, its first channel and its first pixel
	channels, pixels, start string // extents, and the shared memory
}

// squares writes a kernel of squares.
func (w *mapWriter) squares() {
	t := squareWriter{mapWriter: w, channels: w.rowDivide[1].extent, pixels: w.rowDivide[2].extent}
	b32 := func(format string, args ...any) string { return w.result(expr.B32, format, args...) }
	w.Declare(fmt.Sprintf(".shared .align 16 .b8 square[%d]", squareSide*squareSide*4))
	thread := b32("mov.u32 %s, %%tid.x")
	t.lane, t.row = b32("and.b32 %s, %s, %d", thread, squareLanes-1), b32("shr.u32 %s, %s, %s", thread, shift(squareLanes))
	t.group, t.pixel = b32("and.b32 %s, %s, %d", thread, squareSide/squareChannels-1), b32("shr.u32 %s, %s, %s", thread, shift(squareSide/squareChannels))
	t.start = b32("mov.u32 %s, square")
	across := b32("shr.u32 %s, %s, %s", b32("add.u32 %s, %s, %d", t.pixels, squareSide-1), shift(squareSide))
	down := b32("shr.u32 %s, %s, %s", b32("add.u32 %s, %s, %d", t.channels, squareSide-1), shift(squareSide))
	plane := b32("mul.lo.u32 %s, %s, %s", t.channels, t.pixels)
	all := b32("mul.lo.u32 %s, %s, %s", b32("div.u32 %s, %s, %s", w.n, plane), b32("mul.lo.u32 %s, %s, %s", across, down))
	w.loadScalars()
	w.launchDependents()
	square := b32("mov.u32 %s, %%ctaid.x")
	w.Label("square")
	w.Line("@%s bra done", w.result(expr.Pred, "setp.ge.u32 %s, %s, %s", square, all))
	above := b32("div.u32 %s, %s, %s", square, across)
	t.first = b32("mul.lo.u32 %s, %s, %d", b32("sub.u32 %s, %s, %s", square, b32("mul.lo.u32 %s, %s, %s", above, across)), squareSide)
	t.image = b32("div.u32 %s, %s, %s", above, down)
	t.channel = b32("mul.lo.u32 %s, %s, %d", b32("sub.u32 %s, %s, %s", above, b32("mul.lo.u32 %s, %s, %s", t.image, down)), squareSide)
	t.compute()
	w.Line("bar.sync 0")
	t.store()
	w.Line("bar.sync 0") // all have loaded the square
	w.Line("add.u32 %s, %s, %s", square, square, b32("mov.u32 %s, %%nctaid.x"))
	w.Line("bra square")
	w.Label("done")
}

// at returns the index of an element of the square's image, and whether it exists.
func (t *squareWriter) at(channel, pixel string) (index, exists string) {
	index = t.result(expr.B32, "mad.lo.u32 %s, %s, %s, %s", t.image, t.channels, channel)
	index = t.result(expr.B32, "mad.lo.u32 %s, %s, %s, %s", index, t.pixels, pixel)
	exists = t.result(expr.Pred, "setp.lt.u32 %s, %s, %s", channel, t.channels)
	t.Line("setp.lt.and.u32 %s, %s, %s, %s", exists, pixel, t.pixels, exists)
	return index, exists
}

// compute computes the thread's vectors along pixels, and stores the outputs and, to shared memory, the one that is stored as splits.
func (t *squareWriter) compute() {
	pixel := t.result(expr.B32, "mad.lo.u32 %s, %s, %d, %s", t.lane, squareVector, t.first)
	vectors := make([]*vector, t.vectors)
	for j := range vectors {
		v := &vector{number: j}
		channel := t.result(expr.B32, "add.u32 %s, %s, %s", t.channel, t.result(expr.B32, "add.u32 %s, %s, %d", t.row, j*squareRows))
		v.first, v.full = t.at(channel, pixel)
		for i, p := range t.places[:len(t.types)] {
			var regs []string
			if p.rows == fixed {
				regs = slices.Repeat([]string{p.base}, squareVector)
			} else {
				regs = t.lanes(p, squareVector)
				at := t.Register(expr.B64)
				t.address(at, p.base, t.offset([]string{t.image, channel, pixel}, p.ofRow), p.size())
				if p.lanes == single {
					t.loadElement(t.types[i], regs[0], "["+at+"]", v.full)
				} else {
					for _, r := range regs {
						t.clear(p.dtype, r)
					}
					t.vectorAccess("@"+v.full+" ld.global", p.dtype, location{at, 0}, regs)
				}
			}
			v.elements = append(v.elements, regs)
		}
		vectors[j] = v
	}
	for _, v := range vectors {
		v.results = t.results(v.elements, squareVector)
	}
	for j, v := range vectors {
		for out, d := range t.outputs {
			p := t.places[len(t.types)+out]
			if p.split == nil {
				at := t.Register(expr.B64)
				t.address(at, p.base, v.first, p.size())
				t.vectorAccess("@"+v.full+" st.global", d, location{at, 0}, v.results[out])
				continue
			}
			channel := t.result(expr.B32, "add.u32 %s, %s, %d", t.row, j*squareRows)
			group := t.result(expr.B32, "shr.u32 %s, %s, %s", channel, shift(squareChannels))
			at := t.result(expr.B32, "mad.lo.u32 %s, %s, %d, %s", channel, squareSide*4, t.start)
			at = t.result(expr.B32, "mad.lo.u32 %s, %s, 16, %s", t.result(expr.B32, "xor.b32 %s, %s, %s", t.lane, group), at)
			t.vectorAccess("st.shared", expr.Float32, location{at, 0}, v.results[out])
		}
	}
}

// store stores the splits of vectors of channels. Vectors of pixels are at their place XOR the group of channels in shared memory, so that the accesses of a warp have no bank conflicts.
func (t *squareWriter) store() {
	for out, p := range t.places[len(t.types):] {
		if p.split == nil {
			continue
		}
		channel := t.result(expr.B32, "mad.lo.u32 %s, %s, %d, %s", t.group, squareChannels, t.channel)
		for u := range squareSide * squareSide / squareChannels / squareBlock {
			within := t.result(expr.B32, "add.u32 %s, %s, %d", t.pixel, u*squareBlock*squareChannels/squareSide)
			pixel := t.result(expr.B32, "add.u32 %s, %s, %s", t.first, within)
			_, exists := t.at(channel, pixel)
			index := t.result(expr.B32, "mad.lo.u32 %s, %s, %s, %s", t.image, t.pixels, pixel)
			index = t.result(expr.B32, "mad.lo.u32 %s, %s, %s, %s", index, t.channels, channel)
			to := t.Register(expr.B64)
			t.address(to, p.base, index, t.outputs[out].Size())
			from := t.result(expr.B32, "xor.b32 %s, %s, %s", t.result(expr.B32, "shr.u32 %s, %s, %s", within, shift(squareVector)), t.group)
			from = t.result(expr.B32, "mad.lo.u32 %s, %s, 16, %s", from, t.start)
			from = t.result(expr.B32, "mad.lo.u32 %s, %s, 4, %s", t.result(expr.B32, "and.b32 %s, %s, %d", within, squareVector-1), from)
			from = t.result(expr.B32, "mad.lo.u32 %s, %s, %d, %s", t.group, squareChannels*squareSide*4, from)
			values := t.registers(expr.Float32, squareChannels)
			for e, r := range values {
				t.Line("ld.shared.f32 %s, %s", r, location{from, int64(e * squareSide * 4)})
			}
			t.storeSplit(p.split, location{to, 0}, values, exists)
		}
	}
}
