package kernels

import (
	"fmt"
	"slices"
)

// im2colKernels are, for im2col, those of one element and of 16 bytes of a thread; for
// col2im, those for windows of 3 x 3, for others, and for what has no room in shared memory.
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
		[2]*Kernel{kernel("col2im_3x3", col2imBody[T]), kernel("col2im", col2imBody[T])},
		kernel("col2im_far", col2imFarBody[T]),
	}
}

// Sizes of blocks of im2col.cu.
const (
	im2colThreads  = 256
	im2colChannels = 64       // of a block, at most
	im2colShared   = 16 << 10 // bytes that are aimed at: several blocks share a multiprocessor. H200: 83 % of a copy for 64 channels of 7 x 7, with 48 kB too; 81 and 65 of 56 x 56
	im2colMost     = 48 << 10 // bytes that every device has
	im2colPiece    = 1 << 10  // bytes of a window that a block writes, if it has as many
	col2imShared   = 36 << 10
	col2imPiece    = 256 // bytes of a window that a block reads, if it has as many and there is room
	col2imStep     = 2   // rows, if there is room
	sharedBanks    = 128 // bytes, of shared memory
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
	size, kernel := dt.Size(), w.elements()
	bytes := func(part, down, across int64) int64 { // including the most that im2colPitch adds
		return part * (w.Rows.reach(down)*(w.Columns.reach(across)+3) + sharedBanks/size) * size
	}
	if bytes(1, 1, 1) > im2colMost {
		return nil, fmt.Errorf("kernels: %s: got windows of %d x %d elements, want at most %d bytes from corner to corner",
			p.Op, w.Rows.reach(1), w.Columns.reach(1), im2colMost)
	}
	part := evenly(channels, min(CeilDiv(im2colPiece, kernel*size), im2colChannels))
	for part > 1 && bytes(part, 1, 1) > im2colShared {
		part = CeilDiv(part, 2)
	}
	if aligned := (part + 3) &^ 3; aligned < channels && bytes(aligned, 1, 1) <= im2colMost { // windows of which begin at multiples of 16 bytes
		part = aligned
	}
	down, across := int64(1), int64(w.Columns.Out())
	for across > 1 && bytes(part, 1, across) > im2colShared {
		across = CeilDiv(across, 2)
	}
	for down < int64(w.Rows.Out()) && bytes(part, down+1, across) <= im2colShared {
		down++
	}
	down, across = evenly(int64(w.Rows.Out()), down), evenly(int64(w.Columns.Out()), across)
	tilesDown, tilesAcross, parts := CeilDiv(int64(w.Rows.Out()), down), CeilDiv(int64(w.Columns.Out()), across), CeilDiv(channels, part)
	blocks := images * tilesDown * tilesAcross * parts
	if err := CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	k, width := im2colKernel[dt].im2col[0], int64(1)
	if wide := 16 / size; channels*kernel%wide == 0 && part*kernel%wide == 0 {
		k, width = im2colKernel[dt].im2col[1], wide
	}
	high := w.Rows.reach(down)
	span, plane := w.im2colPitch(high, w.Columns.reach(across), sharedBanks/size, width)
	args := append([]any{Ref{0, 0}, Ref{Out, 0}, int32(channels)}, w.arguments()...)
	args = append(args, int32(part), int32(down), int32(across), int32(plane))
	for _, d := range []int64{high, span, kernel, int64(w.Columns.Size)} {
		args = append(args, divideBy(d)...)
	}
	threads := int64(2 * im2colThreads)
	if window := part * kernel / width; window < threads { // some windows at once, without threads that have none
		threads = (max(im2colThreads/window, 1)*window + 31) &^ 31
	}
	l := p.Launch(k, int(blocks), int(threads), append(args, int32(tilesDown), int32(tilesAcross), int32(parts))...)
	l.Shared = int(part * plane * size)
	return p, nil
}

// im2colPitch returns how many elements rows and planes of high x wide elements lie apart in shared
// memory, such that as few as can be of what threads read at once, each from width elements of
// its own, lie in one of its banks.
func (w Windows) im2colPitch(high, wide, banks, width int64) (span, plane int64) {
	best := int64(-1)
	for s := wide; s < wide+4; s++ {
		for p := high * s; p < high*s+banks; p++ {
			if c := w.conflicts(s, p, banks, width); best < 0 || c < best {
				best, span, plane = c, s, p
			}
		}
	}
	return span, plane
}

// conflicts returns how many times banks are read for the first elements of a window, one of each thread
// at once.
func (w Windows) conflicts(span, plane, banks, width int64) (n int64) {
	kernel, columns := w.elements(), int64(w.Columns.Size)
	for first := range int64(4) {
		var reads [sharedBanks / 4]int64
		for thread := range banks {
			k := (first/width*banks+thread)*width + first%width
			c, rest := k/kernel, k%kernel
			reads[(c*plane+rest/columns*int64(w.Rows.Dilation)*span+rest%columns*int64(w.Columns.Dilation))%banks]++
		}
		n += slices.Max(reads[:])
	}
	return n
}

// Col2Im plans the adjoint of [Im2Col]: each element of the images is the sum of what
// Im2Col made of it, in the order in which that lies.
func Col2Im(dev Device, dt Dtype, images, channels int64, w Windows) (*Plan, error) {
	p, err := newIm2Col("col2im", dt, images, channels, w)
	if err != nil {
		return nil, err
	}
	if p.Inputs[0], p.Out = p.Out, p.Inputs[0]; p.Out == 0 {
		return p, nil
	}
	p.Flops = p.Inputs[0] / dt.Size()
	args := append([]any{Ref{0, 0}, Ref{Out, 0}, int32(channels)}, w.arguments()...)
	t, ok := newCol2ImTile(dev, dt, images, channels, w)
	k, blocks, shared := im2colKernel[dt].col2im[1], images*t.tilesDown*t.tilesAcross*t.parts, t.bytes
	divisors, threads := []int64{t.columns, t.ring, int64(w.Rows.Stride), int64(w.Columns.Stride)}, min(max((t.part*t.columns+31)&^31, 64), im2colThreads)
	rest := []any{int32(t.tilesDown), int32(t.tilesAcross), int32(t.parts)}
	switch {
	case !ok:
		threads = im2colThreads
		runs := CeilDiv(w.plane(), threads)
		k, blocks = im2colKernel[dt].col2imFar, images*channels*runs
		divisors, rest = []int64{int64(w.Columns.In), int64(w.Rows.Stride), int64(w.Columns.Stride)}, []any{int32(runs)}
	case w.Rows.Size == 3 && w.Columns.Size == 3:
		k = im2colKernel[dt].col2im[0]
	}
	if err := CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	if ok {
		args = append(args, int32(t.part), int32(t.rows), int32(t.step), int32(t.wide), int32(t.pitch))
	}
	for _, d := range divisors {
		args = append(args, divideBy(d)...)
	}
	p.Launch(k, int(blocks), int(threads), append(args, rest...)...).Shared = int(shared)
	return p, nil
}

// col2imTile is the part of an image that a block of col2im computes: its channels, rows and columns, a
// few rows in each step, with a ring of rows of wide windows in shared memory, each of pitch
// elements.
type col2imTile struct {
	part, rows, columns, step, ring, wide, pitch int64
	parts, tilesDown, tilesAcross                int64
	bytes                                        int64
}

// newCol2ImTile returns the tile, false if nothing fits into shared memory.
func newCol2ImTile(dev Device, dt Dtype, images, channels int64, w Windows) (t col2imTile, ok bool) {
	around := func(a WindowAxis, n int64) int64 { // most windows over n elements
		return min(CeilDiv(n+int64(a.Size-1)*int64(a.Dilation), int64(a.Stride)), int64(a.Out()))
	}
	kernel := w.elements()
	t.part, t.columns = evenly(channels, CeilDiv(col2imPiece, kernel*dt.Size())), int64(w.Columns.In)
	t.step = min(col2imStep, int64(w.Rows.In))
	for {
		t.pitch = t.part*kernel | 1 // neighbouring windows begin in other banks
		t.ring, t.wide = around(w.Rows, 2*t.step), around(w.Columns, t.columns)
		if t.bytes = t.ring*t.wide*t.pitch*dt.Size() + t.step*int64(w.Rows.Size)*Int32.Size(); t.bytes <= col2imShared {
			break
		}
		switch {
		case t.step > 1:
			t.step = CeilDiv(t.step, 2)
		case t.part > 1 && (t.part*kernel*dt.Size() > col2imPiece/2 || t.columns < 32):
			t.part = CeilDiv(t.part, 2)
		case t.columns > 1:
			t.columns = CeilDiv(t.columns, 2)
		case t.part > 1:
			t.part = CeilDiv(t.part, 2)
		default:
			return col2imTile{}, false
		}
	}
	t.parts, t.tilesAcross = CeilDiv(channels, t.part), CeilDiv(int64(w.Columns.In), t.columns)
	t.rows = int64(w.Rows.In)
	if wanted := CeilDiv(4*int64(dev.SMs), images*t.parts*t.tilesAcross); wanted > 1 { // rows of windows between them are read twice
		t.rows = max(CeilDiv(t.rows, wanted), min(4*t.step, t.rows))
	}
	t.tilesDown = CeilDiv(int64(w.Rows.In), t.rows)
	return t, true
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

// evenly returns the size, most at most, of as few parts of n as there can be, all of
// about one size.
func evenly(n, most int64) int64 { return CeilDiv(n, CeilDiv(n, most)) }

func im2colBody[T Float](c Call) {
	in, out, channels := Slice[T](c, 0), Slice[T](c, 1), c.Int(2)
	v, h := windowAxes(c, 3)
	images := int64(c.Grid[0]) / (c.Int(31) * c.Int(32) * c.Int(33))
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

func col2imBody[T Float](c Call) {
	images := int64(c.Grid[0]) / (c.Int(32) * c.Int(33) * c.Int(34))
	col2imImages[T](c, images)
}

func col2imFarBody[T Float](c Call) {
	col2imImages[T](c, int64(c.Grid[0])/(c.Int(24)*c.Int(2)))
}

// col2imImages is the Go body for n images.
func col2imImages[T Float](c Call, images int64) {
	in, out, channels := Slice[T](c, 0), Slice[T](c, 1), c.Int(2)
	v, h := windowAxes(c, 3)
	width, plane := channels*v.size*h.size, v.in*h.in
	Parallel(images*channels, max(Grain/plane, 1), func(from, to int64) {
		for p := from; p < to; p++ {
			image, c := p/channels, p%channels
			sums := out[p*plane : (p+1)*plane]
			clear(sums)
			for y := range v.out {
				top, first, last := v.windowed(y)
				for x := range h.out {
					left, lo, hi := h.windowed(x)
					window := in[((image*v.out+y)*h.out+x)*width+c*v.size*h.size:]
					for i := first; i < last && lo < hi; i++ {
						to := sums[(top+i*v.dilation)*h.in+left+lo*h.dilation:]
						for j, e := range window[i*h.size+lo : i*h.size+hi] {
							to[int64(j)*h.dilation] += e
						}
					}
				}
			}
		}
	})
}
