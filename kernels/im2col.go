package kernels

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// im2colKernels are, for im2col, those of one element and of 16 bytes of a thread; for
// col2im, those for up to three windows of a row around an element, for more, and for windows that have no room in shared memory.
type im2colKernels struct {
	im2col    [2]*Kernel
	col2im    [2]*Kernel
	col2imFar *Kernel
}

var im2colKernel = [...]im2colKernels{Float32: im2colOf[float32](Float32), Float64: im2colOf[float64](Float64)}

func im2colOf[T Float](dt Dtype) im2colKernels {
	kernel := func(name string, body func(Call)) *Kernel {
		return own.Kernel("im2col", fmt.Sprintf("%s_%v", name, dt), body)
	}
	return im2colKernels{
		[2]*Kernel{kernel("im2col", im2colBody[T]), kernel("im2col_vector", im2colBody[T])},
		[2]*Kernel{kernel("col2im_few", col2imBody[T]), kernel("col2im", col2imBody[T])},
		kernel("col2im_far", col2imFarBody[T]),
	}
}

// Sizes of blocks of im2col.cu.
const (
	im2colThreads  = 256
	im2colChannels = 64 // of a block, at most
	// Bytes of a tile that are aimed at, for kernels of few elements and of more: several blocks share a multiprocessor. H200, us for 2^26 elements, with 8, 16, 32 kB:
	// 3 x 3, 64 channels of 56 152, 84.6, 93.0, of 7 170, 83.1, 83.2, 32 of 14 98.5, 85.2, 90.1; 7 x 7 by 2, 3 of 224 84.1, 89.1, 96.8; 5 x 5, 16 of 60 79.9, 85.5, 92.7
	im2colShared  = 16 << 10
	im2colLess    = 8 << 10
	im2colFew     = 9
	im2colMost    = 48 << 10 // bytes that every device has
	im2colBlocks  = 8        // blocks wanted for each multiprocessor
	im2colPiece   = 1 << 10  // bytes of a window that a block writes, if it has as many
	col2imShared  = 48 << 10
	col2imWide    = 108 << 10 // where a row would not fit otherwise
	col2imPiece   = 256       // bytes of a window that a block reads, if it has as many and there is room
	col2imThreads = 512       // of a block, at most
	col2imLeast   = 8         // rows of a tile, if there are as many
	col2imFew     = 3         // windows of a row around an element that a kernel knows
	sharedBanks   = 128       // bytes, of shared memory
	sectorBytes   = 32        // of memory that are read together
)

// reach returns the elements of an image that windows cover, side by side.
func (a WindowAxis) reach(windows int64) int64 {
	return (windows-1)*int64(a.Stride) + int64(a.Size-1)*int64(a.Dilation) + 1
}

// Im2Col plans the windows of images, those of all channels one after the other,
//
//	out[b][y][x][c][i][j] = in[b][c][y + i][x + j]
//
// with y, x, i and j spaced as w describes, and zeros outside of the image.
func Im2Col(dev Device, dt Dtype, images, channels int64, w Windows) (*Plan, error) {
	p, err := newIm2Col("im2col", dt, images, channels, w)
	if err != nil || p.Out == 0 {
		return p, err
	}
	if w.isPoints() {
		return p, p.exchange(dev, dt, images, channels, w.plane())
	}
	size, kernel, aim := dt.Size(), w.elements(), int64(im2colShared)
	if kernel > im2colFew {
		aim = im2colLess
	}
	bytes := func(part, down, across int64) int64 { // including the most that im2colPitch adds
		return part * (w.Rows.reach(down)*(w.Columns.reach(across)+3) + sharedBanks/size) * size
	}
	if bytes(1, 1, 1) > im2colMost {
		return nil, fmt.Errorf("kernels: %s: got windows of %d x %d elements, want at most %d bytes from corner to corner",
			p.Op, w.Rows.reach(1), w.Columns.reach(1), im2colMost)
	}
	part := evenly(channels, min(CeilDiv(im2colPiece, kernel*size), im2colChannels))
	for part > 1 && bytes(part, 1, 1) > aim {
		part = CeilDiv(part, 2)
	}
	if aligned := (part + 3) &^ 3; aligned < channels && bytes(aligned, 1, 1) <= im2colMost { // windows of which begin at multiples of 16 bytes
		part = aligned
	}
	down, across := int64(1), int64(w.Columns.Out())
	for across > 1 && bytes(part, 1, across) > aim {
		across = CeilDiv(across, 2)
	}
	for down < int64(w.Rows.Out()) && bytes(part, down+1, across) <= aim {
		down++
	}
	down, across = evenly(int64(w.Rows.Out()), down), evenly(int64(w.Columns.Out()), across)
	k, width, group := im2colKernel[dt].im2col[0], int64(1), int64(1)
	if wide := 16 / size; channels*kernel%wide == 0 && part*kernel%wide == 0 {
		k, width = im2colKernel[dt].im2col[1], wide
	} else if g, ok := w.im2colGroup(channels*kernel, wide); ok && part == channels {
		k, width, group = im2colKernel[dt].im2col[1], wide, g
		across = (across + g - 1) / g * g
	}
	tilesDown, tilesAcross, parts := CeilDiv(int64(w.Rows.Out()), down), CeilDiv(int64(w.Columns.Out()), across), CeilDiv(channels, part)
	batch := int64(1)
	if tilesDown*tilesAcross*parts == 1 { // several small images
		batch = max(min(aim/bytes(part, down, across), images/(im2colBlocks*max(int64(dev.SMs), 1))), 1)
	}
	if images > 1<<31-1 {
		return nil, fmt.Errorf("kernels: %s: got %d images, want fewer than 2^31", p.Op, images)
	}
	tiles := CeilDiv(images, batch) * tilesDown * tilesAcross * parts
	if err := CheckGrid(tiles); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	high := w.Rows.reach(down)
	span, plane := w.im2colPitch(high, w.Columns.reach(across), part*kernel, sharedBanks/size, width)
	args := append([]any{Ref{0, 0}, Ref{Out, 0}, int32(channels)}, w.arguments()...)
	args = append(args, int32(part), int32(down), int32(across), int32(span), int32(plane), int32(bits.TrailingZeros64(uint64(group))), int32(images), int32(batch))
	for _, d := range []int64{high, kernel, int64(w.Columns.Size), tilesDown, tilesAcross, parts} {
		args = append(args, divideBy(d)...)
	}
	threads := int64(2 * im2colThreads)
	if pieces := part * kernel * group / width; pieces < threads { // some windows at once, without threads that have none
		threads = (max(im2colThreads/pieces, 1)*pieces + 31) &^ 31
	}
	p.Launch(k, int(tiles), int(threads), args...).Shared = int(batch * part * plane * size)
	return p, nil
}

// isPoints reports whether the windows are the elements of an image.
func (w Windows) isPoints() bool {
	point := func(a WindowAxis) bool { return a.Size == 1 && a.Stride == 1 && a.Out() == a.In && a.Before == 0 }
	return point(w.Rows) && point(w.Columns)
}

// exchange appends the launch that exchanges rows and columns of matrices.
func (p *Plan) exchange(dev Device, dt Dtype, matrices, rows, columns int64) error {
	b := expr.NewBuilder(dt)
	f, err := b.Func(b.Operand(0))
	if err != nil {
		return err
	}
	shape := []int{int(matrices), int(columns), int(rows)}
	view := View{Elements: Count(shape), Strides: []int{int(rows * columns), 1, int(columns)}}
	return p.launchMap(newMapping(dev, f, shape, []View{view}, nil), f)
}

// im2colGroup returns the least number of neighbouring windows, of window elements each, that together take a multiple of wide elements;
// false if a row cannot be divided into such groups.
func (w Windows) im2colGroup(window, wide int64) (group int64, ok bool) {
	for group = 1; group*window%wide != 0; group *= 2 {
	}
	return group, int64(w.Columns.Out())%group == 0
}

// im2colPitch returns how many elements rows and planes of high x wide elements lie apart in shared
// memory, such that as few as can be of what threads read at once, each from width elements of
// its own of windows of so many, lie in one of its banks.
func (w Windows) im2colPitch(high, wide, window, banks, width int64) (span, plane int64) {
	best := int64(-1)
	for s := wide; s < wide+4; s++ {
		for p := high * s; p < high*s+banks; p++ {
			if c := w.conflicts(s, p, window, banks, width); best < 0 || c < best {
				best, span, plane = c, s, p
			}
		}
	}
	return span, plane
}

// conflicts returns how many times banks are read for the first elements of windows, one of each thread
// at once.
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

// newIm2Col returns a plan of images to columns without launches.
func newIm2Col(name string, dt Dtype, images, channels int64, w Windows) (*Plan, error) {
	p := &Plan{Op: fmt.Sprintf("%s_%v(%d images, %d channels, %+v)", name, dt, images, channels, w)}
	if err := w.check(channels); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	p.Inputs = []int64{images * channels * w.plane() * dt.Size()}
	p.Out = images * w.out() * channels * w.elements() * dt.Size()
	return p, nil
}

// evenly returns the size of the parts when n is divided into as few parts of at most that size as possible, all of
// about one size.
func evenly(n, most int64) int64 { return CeilDiv(n, CeilDiv(n, most)) }

func im2colBody[T Float](c Call) {
	in, out, channels := Slice[T](c, 0), Slice[T](c, 1), c.Int(2)
	v, h := windowAxes(c, 3)
	images := c.Int(21)
	width := channels * v.size * h.size
	Parallel(images*v.out, max(Grain/(h.out*width), 1), func(from, to int64) {
		for line := from; line < to; line++ { // of windows
			image, y := line/v.out, line%v.out
			for x := range h.out {
				windowElements(in[image*channels*v.in*h.in:], out[(line*h.out+x)*width:][:width], v, h, y, x)
			}
		}
	})
}

// windowElements sets to to the elements of a window.
func windowElements[T Float](in, to []T, v, h axis, y, x int64) {
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
