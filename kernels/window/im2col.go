package window

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/internal/policy"
)

var (
	im2colKernels = [2][2]*kernels.Kernel{ // a thread writes one element, or 16 bytes
		own.Pair("im2col", "im2col", im2colBody[float32], im2colBody[float64]),
		own.Pair("im2col", "im2col_vector", im2colBody[float32], im2colBody[float64]),
	}
	col2imFew    = own.Pair("im2col", "col2im_few", col2imBody[float32], col2imBody[float64]) // elements in at most col2imTaps windows of a row
	col2imKernel = own.Pair("im2col", "col2im", col2imBody[float32], col2imBody[float64])
	col2imFar    = own.Pair("im2col", "col2im_far", col2imBody[float32], col2imBody[float64]) // windows that do not fit in shared memory
)

// Sizes of blocks of im2col.cu, measured on an H200: bench/notes/window.md.
const (
	im2colThreads = 256
	im2colColumns = 32 << 10 // bytes that a block writes, and max bytes of a tile that it reads
	im2colAcross  = 16       // max windows of a row, or im2colRow bytes of windows if all channels are one part
	im2colRow     = 4 << 10
	im2colMost    = 48 << 10 // bytes of shared memory that every device has
	im2colBlocks  = 8        // blocks wanted for each SM, if there are several images
	im2colPlace   = 8        // bytes of im2col.cu's Place
	im2colPiece   = 576      // bytes of a window that a block writes, if the window has as many
	col2imShared  = 48 << 10
	col2imWide    = 108 << 10 // where a row does not fit in col2imShared
	col2imPiece   = 256       // bytes of a window that a block reads, if the window has as many and shared memory has room
	col2imThreads = 512       // max of a block
	col2imLeast   = 8         // min rows of a tile, if the image has as many
	col2imTaps    = 3         // max windows of a row around an element for the kernel that unrolls them
	sharedBanks   = 128       // bytes of the banks of shared memory
)

// imageArgs are the first arguments of all kernels of im2col.cu.
type imageArgs struct {
	In, Out  kernels.Ref
	Channels int64 `arg:"int32"`
	Axes     axes
}

type im2colArgs struct {
	imageArgs
	Part, Down, Across, Span, Plane, Group, Images, Batch, Vectors, Lanes int64 `arg:"int32"`
	High, Kernel, Row, TilesDown, TilesAcross, Parts                      arith.Divide
}

// reach returns the number of elements along the axis that neighbouring windows span.
func (a WindowAxis) reach(windows int64) int64 {
	return (windows-1)*int64(a.Stride) + int64(a.Size-1)*int64(a.Dilation) + 1
}

// Im2Col plans the windows of images, each with all channels consecutively,
//
//	out[b][y][x][c][i][j] = in[b][c][y + i][x + j]
//
// with y, x, i and j spaced as w describes, and zeros outside the image.
func Im2Col(dev kernels.Device, dt kernels.Dtype, images, channels int64, w Windows) (*kernels.Plan, error) {
	p, err := newIm2Col("im2col", dt, images, channels, w)
	if err != nil || p.Out == 0 {
		return p.Or(err)
	}
	if w.isPoints() {
		return p, appendExchange(p, dev, dt, images, channels, w.plane())
	}
	t, err := newIm2ColTile(dev, dt, images, channels, w)
	if err != nil {
		return p.Or(err)
	}
	blocks := kernels.CeilDiv(images, t.batch) * t.tilesDown * t.tilesAcross * t.parts
	size, kernel, high := dt.Size(), w.elements(), w.Rows.reach(t.down)
	places := t.batch * t.down * (t.across / t.group) * im2colPlace
	span, plane := w.im2colPitch(high, w.Columns.reach(t.across), t.part*kernel, sharedBanks/size, t.width, t.vectors, (t.shared-places-15)/(t.batch*t.part*size))
	lines, lanes := span/t.vectors, 3
	for bits := 4; bits <= 5; bits++ { // the number of threads of a line that leaves the fewest idle
		if (lines+(1<<bits)-1)>>bits<<bits <= (lines+(1<<lanes)-1)>>lanes<<lanes {
			lanes = bits
		}
	}
	args := im2colArgs{imageArgs: w.imageArgs(channels), Part: t.part, Down: t.down, Across: t.across, Span: span, Plane: plane,
		Group: int64(bits.TrailingZeros64(uint64(t.group))), Images: images, Batch: t.batch, Vectors: t.vectors, Lanes: int64(lanes),
		High: arith.DivideBy(high), Kernel: arith.DivideBy(kernel), Row: arith.DivideBy(int64(w.Columns.Size)),
		TilesDown: arith.DivideBy(t.tilesDown), TilesAcross: arith.DivideBy(t.tilesAcross), Parts: arith.DivideBy(t.parts)}
	threads := int64(2 * im2colThreads)
	if pieces := t.part * kernel * t.group / t.width; pieces < threads { // several windows at once, with no idle threads
		threads = (max(im2colThreads/pieces, 1)*pieces + 31) &^ 31
	}
	k := im2colKernels[min(t.width-1, 1)][dt]
	p.Launch(k, int(blocks), int(threads), args).Shared = int((t.batch*t.part*plane*size+15)&^15 + places)
	return p.Or(kernels.CheckGrid(blocks))
}

func (w Windows) imageArgs(channels int64) imageArgs {
	return imageArgs{kernels.In(0), kernels.At(kernels.Out, 0), channels, w.axes()}
}

// im2colTile is the share of a block of im2col: windows of part channels, down rows and across columns, of a batch of images. A thread writes width
// elements of a group of windows. vectors is the number of elements in 16 bytes if lines of the image are loaded by 16 bytes, else 1.
type im2colTile struct {
	part, down, across, batch     int64
	parts, tilesDown, tilesAcross int64
	width, group, vectors         int64
	shared                        int64 // bytes that a block can have
}

func newIm2ColTile(dev kernels.Device, dt kernels.Dtype, images, channels int64, w Windows) (t im2colTile, err error) {
	size, kernel := dt.Size(), w.elements()
	wide := 16 / size
	t.width, t.group, t.vectors, t.batch = 1, 1, 1, 1
	if int64(w.Columns.In)%wide == 0 {
		t.vectors = wide
	}
	bytes := func(part, down, across int64) int64 { // an upper bound that includes what im2colPitch adds
		return part * (w.Rows.reach(down)*(w.Columns.reach(across)+2*(t.vectors-1)) + sharedBanks/size) * size
	}
	if images > 1<<31-1 || bytes(1, 1, 1) > im2colMost {
		return t, fmt.Errorf("got %d images and windows of %d x %d elements, want fewer than 2^31, and at most %d bytes from corner to corner",
			images, w.Rows.reach(1), w.Columns.reach(1), im2colMost)
	}
	if t.shared = max(int64(dev.SharedOptin), im2colMost); dev.Kind == kernels.CPU {
		t.shared = math.MaxInt32
	}
	sectors := policy.SectorBytes / gcd(policy.SectorBytes, kernel*size)
	t.part = min(kernels.CeilDiv(kernels.CeilDiv(im2colPiece, kernel*size), sectors)*sectors, channels)
	for t.part > 1 && bytes(t.part, 1, 1) > im2colColumns {
		t.part = kernels.CeilDiv(t.part, 2)
	}
	if aligned := (t.part + 3) &^ 3; aligned < channels && bytes(aligned, 1, 1) <= im2colMost { // windows of this many channels begin at multiples of 16 bytes
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
		across := (t.across + g - 1) / g * g
		if bytes(t.part, t.down, across)+t.down*across/g*im2colPlace <= t.shared { // not windows with long strides
			t.width, t.group, t.across = wide, g, across
		}
	}
	image := func() int64 { return bytes(t.part, t.down, t.across) + t.down*t.across/t.group*im2colPlace }
	for t.down > 1 && image() > t.shared {
		t.down = evenly(rows, kernels.CeilDiv(t.down, 2))
	}
	t.tilesDown, t.tilesAcross, t.parts = kernels.CeilDiv(rows, t.down), kernels.CeilDiv(columns, t.across), kernels.CeilDiv(channels, t.part)
	if t.tilesDown*t.tilesAcross*t.parts == 1 { // several small images
		room := min(im2colColumns/(channels*kernel*size*rows*columns), im2colColumns/bytes(t.part, t.down, t.across), t.shared/image())
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
	f, err := expr.Identity(dt)
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

// im2colPitch returns the distances in elements between rows and between planes of a tile of high x wide elements in shared
// memory. They have the fewest bank conflicts when the threads of a warp read windows of window elements, width
// elements each. Rows have room for whole vectors at both ends. A plane has at most so many elements, if that leaves a choice.
func (w Windows) im2colPitch(high, wide, window, banks, width, vectors, most int64) (span, plane int64) {
	best := int64(-1)
	whole := (wide + 2*(vectors-1)) / vectors * vectors
	for s := whole; s < whole+4*vectors; s += vectors {
		for p := high * s; p < high*s+banks; p += vectors {
			if c := w.conflicts(s, p, window, banks, width); best < 0 || c < best && p <= most {
				best, span, plane = c, s, p
			}
		}
	}
	return span, plane
}

// conflicts returns the number of transactions of four reads of shared memory by a warp, at the start of its windows.
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
	p := &kernels.Plan{Op: fmt.Sprintf("%s_%v(%d images, %d channels, %+v)", name, dt, images, channels, w), Inputs: []int64{0}}
	err := w.check(channels)
	if err == nil {
		p.Inputs[0], p.Out = images*channels*w.plane()*dt.Size(), images*w.out()*channels*w.elements()*dt.Size()
	}
	return p, err
}

// evenly returns the size of a part when n is split evenly into the fewest parts of at most most elements.
func evenly(n, most int64) int64 { return kernels.CeilDiv(n, kernels.CeilDiv(n, most)) }

func im2colBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[im2colArgs](c)
	in, out, v, h := kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Out), args.Axes.Rows, args.Axes.Columns
	width := args.Channels * v.Size * h.Size
	kernels.Parallel(args.Images*v.Out, max(kernels.Grain/(h.Out*width), 1), func(from, to int64) {
		for line := from; line < to; line++ { // of windows
			image, y := line/v.Out, line%v.Out
			for x := range h.Out {
				windowElements(in[image*args.Channels*v.In*h.In:], out[(line*h.Out+x)*width:][:width], v, h, y, x)
			}
		}
	})
}

// windowElements copies the elements of a window to to.
func windowElements[T kernels.Float](in, to []T, v, h axis, y, x int64) {
	clear(to)
	top, first, last := v.windowed(y)
	left, lo, hi := h.windowed(x)
	for c := range int64(len(to)) / (v.Size * h.Size) {
		for i := first; i < last; i++ {
			row := in[(c*v.In+top+i*v.Dilation)*h.In:]
			for j := lo; j < hi; j++ {
				to[(c*v.Size+i)*h.Size+j] = row[left+j*h.Dilation]
			}
		}
	}
}
