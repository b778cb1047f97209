package window

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// im2colKernels are the entry points. Those of im2col write one element a thread, or 16 bytes. Those of
// col2im are for elements in at most three windows of a row, for elements in more, and (far) for
// windows that do not fit into shared memory.
type im2colKernels struct {
	im2col    [2]*kernels.Kernel
	col2im    [2]*kernels.Kernel
	col2imFar *kernels.Kernel
}

var im2colKernel = [...]im2colKernels{kernels.Float32: im2colOf[float32](kernels.Float32), kernels.Float64: im2colOf[float64](kernels.Float64)}

func im2colOf[T kernels.Float](dt kernels.Dtype) im2colKernels {
	kernel := func(name string, body func(kernels.Call)) *kernels.Kernel {
		return own.Kernel("im2col", fmt.Sprintf("%s_%v", name, dt), body)
	}
	return im2colKernels{
		[2]*kernels.Kernel{kernel("im2col", im2colBody[T]), kernel("im2col_vector", im2colBody[T])},
		[2]*kernels.Kernel{kernel("col2im_few", col2imBody[T]), kernel("col2im", col2imBody[T])},
		kernel("col2im_far", col2imFarBody[T]),
	}
}

// Sizes of blocks of im2col.cu. H200, us for 2^28 elements of columns, of channels x rows x columns of windows a block; * by elements, the others by 16 bytes:
// 3 x 3, 64 channels of 56: 16 x 3 x 14 313, 16 x 4 x 14 315 *, 8 x 7 x 14 314 *, 32 x 2 x 14 316 *, 32 x 3 x 14 322, 24 x 2 x 28 334 *, 32 x 1 x 7 642; 32 of 14:
// 16 x 4 x 14 315 *, 32 x 3 x 14 322 *; 64 of 7: 64 x 7 x 4 323 *, 32 x 7 x 7 323 *, 16 x 7 x 7 373 *; 1 of 28: one image 311, two 322 *; 3 x 3 by 2, 128 of 28:
// 16 x 3 x 14 407, 16 x 4 x 14 412, 8 x 7 x 14 415, 8 channels 456 *; 5 x 5, 16 of 60: 16 x 2 x 8 306, 8 x 2 x 14 307; 7 x 7 by 2, 3 of 224: 3 x 8 313, 1 x 28 315, 2 x 16 317. Two tiles
// a block, the second on its way: 3 to 5 % slower. Blocks of 128 threads: 3 to 8 % slower, of 384: 10 to 27 %. Tiles of rows before parts of channels: up to 40 % slower.
const (
	im2colThreads = 256
	im2colColumns = 32 << 10 // bytes that a block writes, and most of a tile that it reads
	im2colAcross  = 16       // windows of a row, at most, or as many as are this many bytes, where all channels are one part
	im2colRow     = 4 << 10
	im2colMost    = 48 << 10 // bytes that every device has
	im2colBlocks  = 8        // blocks wanted for each multiprocessor, if there are several images
	im2colPlace   = 8        // bytes of im2col.cu's Place
	im2colPiece   = 576      // bytes of a window that a block writes, if it has as many
	col2imShared  = 48 << 10
	col2imWide    = 108 << 10 // where a row would not fit otherwise
	col2imPiece   = 256       // bytes of a window that a block reads, if it has as many and there is room
	col2imThreads = 512       // of a block, at most
	col2imLeast   = 8         // rows of a tile, if there are as many
	col2imFew     = 3         // windows of a row around an element that a kernel knows
	sharedBanks   = 128       // bytes, of shared memory
)

// reach returns how many elements along the axis so many neighbouring windows span.
func (a WindowAxis) reach(windows int64) int64 {
	return (windows-1)*int64(a.Stride) + int64(a.Size-1)*int64(a.Dilation) + 1
}

// Im2Col plans the windows of images, those of all channels one after the other,
//
//	out[b][y][x][c][i][j] = in[b][c][y + i][x + j]
//
// with y, x, i and j spaced as w describes, and zeros outside of the image.
func Im2Col(dev kernels.Device, dt kernels.Dtype, images, channels int64, w Windows) (*kernels.Plan, error) {
	p, err := newIm2Col("im2col", dt, images, channels, w)
	if err != nil || p.Out == 0 {
		return p, err
	}
	if w.isPoints() {
		return p, appendExchange(p, dev, dt, images, channels, w.plane())
	}
	t, err := newIm2ColTile(dev, dt, images, channels, w)
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	blocks := kernels.CeilDiv(images, t.batch) * t.tilesDown * t.tilesAcross * t.parts
	if err := kernels.CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	size, kernel, high := dt.Size(), w.elements(), w.Rows.reach(t.down)
	span, plane := w.im2colPitch(high, w.Columns.reach(t.across), t.part*kernel, sharedBanks/size, t.width, t.vectors)
	lines, lanes := span/t.vectors, 3
	for bits := 4; bits <= 5; bits++ { // as many threads of a line as leave few without an element
		if (lines+(1<<bits)-1)>>bits<<bits <= (lines+(1<<lanes)-1)>>lanes<<lanes {
			lanes = bits
		}
	}
	args := append([]any{kernels.In(0), kernels.At(kernels.Out, 0), int32(channels)}, w.arguments()...)
	for _, n := range []int64{t.part, t.down, t.across, span, plane, int64(bits.TrailingZeros64(uint64(t.group))), images, t.batch, t.vectors, int64(lanes)} {
		args = append(args, int32(n))
	}
	for _, d := range []int64{high, kernel, int64(w.Columns.Size), t.tilesDown, t.tilesAcross, t.parts} {
		args = append(args, arith.Divide(d)...)
	}
	threads := int64(2 * im2colThreads)
	if pieces := t.part * kernel * t.group / t.width; pieces < threads { // some windows at once, without threads that have none
		threads = (max(im2colThreads/pieces, 1)*pieces + 31) &^ 31
	}
	k := im2colKernel[dt].im2col[min(t.width-1, 1)]
	p.Launch(k, int(blocks), int(threads), args...).Shared = int((t.batch*t.part*plane*size+15)&^15 + t.batch*t.down*(t.across/t.group)*im2colPlace)
	return p, nil
}

// im2colTile is the share of a block of im2col: windows of part channels, down rows and across columns, of a batch of images.
// A thread writes width elements of a group of windows. vectors is the number of elements in 16 bytes where lines of the
// image are loaded by 16 bytes, else 1.
type im2colTile struct {
	part, down, across, batch     int64
	parts, tilesDown, tilesAcross int64
	width, group, vectors         int64
}

func newIm2ColTile(dev kernels.Device, dt kernels.Dtype, images, channels int64, w Windows) (t im2colTile, err error) {
	size, kernel := dt.Size(), w.elements()
	wide := 16 / size
	t.width, t.group, t.vectors, t.batch = 1, 1, 1, 1
	if int64(w.Columns.In)%wide == 0 {
		t.vectors = wide
	}
	bytes := func(part, down, across int64) int64 { // about, and most with what im2colPitch adds
		return part * (w.Rows.reach(down)*(w.Columns.reach(across)+2*(t.vectors-1)) + sharedBanks/size) * size
	}
	if images > 1<<31-1 || bytes(1, 1, 1) > im2colMost {
		return t, fmt.Errorf("got %d images and windows of %d x %d elements, want fewer than 2^31, and at most %d bytes from corner to corner",
			images, w.Rows.reach(1), w.Columns.reach(1), im2colMost)
	}
	sectors := kernels.SectorBytes / gcd(kernels.SectorBytes, kernel*size)
	t.part = min(kernels.CeilDiv(kernels.CeilDiv(im2colPiece, kernel*size), sectors)*sectors, channels)
	for t.part > 1 && bytes(t.part, 1, 1) > im2colColumns {
		t.part = kernels.CeilDiv(t.part, 2)
	}
	if aligned := (t.part + 3) &^ 3; aligned < channels && bytes(aligned, 1, 1) <= im2colMost { // windows of which begin at multiples of 16 bytes
		t.part = aligned
	}
	rows, columns := int64(w.Rows.Out()), int64(w.Columns.Out())
	most := int64(im2colAcross)
	if t.part == channels {
		most = max(most, kernels.CeilDiv(im2colRow, channels*kernel*size))
	}
	t.across = evenly(columns, most)
	for t.across > 1 && bytes(t.part, 1, t.across) > im2colColumns {
		t.across = kernels.CeilDiv(t.across, 2)
	}
	t.down = max(min(im2colColumns/(t.part*kernel*size*t.across), rows), 1)
	for t.down > 1 && bytes(t.part, t.down, t.across) > im2colColumns {
		t.down = kernels.CeilDiv(t.down, 2)
	}
	t.down = evenly(rows, t.down)
	if twice := min(2*t.part, channels); t.down*t.across == rows*columns && bytes(twice, t.down, t.across) <= im2colColumns { // whole small images
		t.part = twice
	}
	if channels*kernel%wide == 0 && t.part*kernel%wide == 0 {
		t.width = wide
	} else if g, ok := w.im2colGroup(channels*kernel, wide); ok && t.part == channels {
		t.width, t.group = wide, g
		t.across = (t.across + g - 1) / g * g
	}
	t.tilesDown, t.tilesAcross, t.parts = kernels.CeilDiv(rows, t.down), kernels.CeilDiv(columns, t.across), kernels.CeilDiv(channels, t.part)
	if t.tilesDown*t.tilesAcross*t.parts == 1 { // several small images
		room := min(im2colColumns/(channels*kernel*size*rows*columns), im2colColumns/bytes(t.part, t.down, t.across))
		t.batch = max(min(room, images/(im2colBlocks*max(int64(dev.SMs), 1))), 1)
	}
	return t, nil
}

// isPoints reports whether the windows are the elements of an image.
func (w Windows) isPoints() bool {
	point := func(a WindowAxis) bool { return a.Size == 1 && a.Stride == 1 && a.Out() == a.In && a.Before == 0 }
	return point(w.Rows) && point(w.Columns)
}

// appendExchange appends the launch that exchanges rows and columns of matrices.
func appendExchange(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, matrices, rows, columns int64) error {
	b := expr.NewBuilder(dt)
	f, err := b.Func(b.Operand(0))
	if err != nil {
		return err
	}
	shape := []int{int(matrices), int(columns), int(rows)}
	view := codegen.View{Elements: kernels.Count(shape), Strides: []int{int(rows * columns), 1, int(columns)}}
	q, err := codegen.Map(dev, f, shape, view)
	if err == nil {
		p.Launches = append(p.Launches, q.Launches...)
	}
	return err
}

// im2colGroup returns the least number of neighbouring windows, of window elements each, that together have a multiple of wide
// elements. It returns false if a row of windows cannot be divided into such groups.
func (w Windows) im2colGroup(window, wide int64) (group int64, ok bool) {
	for group = 1; group*window%wide != 0; group *= 2 {
	}
	return group, int64(w.Columns.Out())%group == 0
}

// im2colPitch returns how far apart, in elements, the rows and the planes of a tile of high x wide elements lie in shared
// memory: the distances with the fewest bank conflicts where the threads of a warp read windows of window elements, width
// elements each. Rows have room for whole vectors at both ends.
func (w Windows) im2colPitch(high, wide, window, banks, width, vectors int64) (span, plane int64) {
	best := int64(-1)
	whole := (wide + 2*(vectors-1)) / vectors * vectors
	for s := whole; s < whole+4*vectors; s += vectors {
		for p := high * s; p < high*s+banks; p += vectors {
			if c := w.conflicts(s, p, window, banks, width); best < 0 || c < best {
				best, span, plane = c, s, p
			}
		}
	}
	return span, plane
}

// conflicts returns how many turns shared memory takes to serve four reads of a warp's threads, at the start of their windows.
func (w Windows) conflicts(span, plane, window, banks, width int64) (n int64) {
	kernel, columns := w.elements(), int64(w.Columns.Size)
	for first := range int64(4) {
		var reads [sharedBanks / 4]int64
		for thread := range banks {
			k := (first/width*banks+thread)*width + first%width
			x, k := k/window, k%window
			c, rest := k/kernel, k%kernel
			reads[(x*int64(w.Columns.Stride)+c*plane+rest/columns*int64(w.Rows.Dilation)*span+rest%columns*int64(w.Columns.Dilation))%banks]++
		}
		n += slices.Max(reads[:])
	}
	return n
}

// newIm2Col returns the plan of images to columns, with no launches yet.
func newIm2Col(name string, dt kernels.Dtype, images, channels int64, w Windows) (*kernels.Plan, error) {
	p := &kernels.Plan{Op: fmt.Sprintf("%s_%v(%d images, %d channels, %+v)", name, dt, images, channels, w)}
	if err := w.check(channels); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	p.Inputs = []int64{images * channels * w.plane() * dt.Size()}
	p.Out = images * w.out() * channels * w.elements() * dt.Size()
	return p, nil
}

// evenly returns the size of a part where n is divided evenly into as few parts as possible, of most elements at most.
func evenly(n, most int64) int64 { return kernels.CeilDiv(n, kernels.CeilDiv(n, most)) }

func im2colBody[T kernels.Float](c kernels.Call) {
	in, out, channels := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1), c.Int(2)
	v, h := windowAxes(c, 3)
	images := c.Int(21)
	width := channels * v.size * h.size
	kernels.Parallel(images*v.out, max(kernels.Grain/(h.out*width), 1), func(from, to int64) {
		for line := from; line < to; line++ { // of windows
			image, y := line/v.out, line%v.out
			for x := range h.out {
				windowElements(in[image*channels*v.in*h.in:], out[(line*h.out+x)*width:][:width], v, h, y, x)
			}
		}
	})
}

// windowElements copies the elements of a window to to.
func windowElements[T kernels.Float](in, to []T, v, h axis, y, x int64) {
	clear(to)
	top, first, last := v.windowed(y)
	left, lo, hi := h.windowed(x)
	for c := range int64(len(to)) / (v.size * h.size) {
		for i := first; i < last; i++ {
			row := in[(c*v.in+top+i*v.dilation)*h.in:]
			for j := lo; j < hi; j++ {
				to[(c*v.size+i)*h.size+j] = row[left+j*h.dilation]
			}
		}
	}
}
