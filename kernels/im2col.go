package kernels

import "fmt"

var im2colKernel = [...]*Kernel{
	Float32: own.Kernel("im2col", "im2col_f32", im2colBody[float32]),
	Float64: own.Kernel("im2col", "im2col_f64", im2colBody[float64]),
}

// col2imKernel are for windows of 3 x 3, and others.
var col2imKernel = [...][2]*Kernel{
	Float32: {own.Kernel("im2col", "col2im_3x3_f32", col2imBody[float32]), own.Kernel("im2col", "col2im_f32", col2imBody[float32])},
	Float64: {own.Kernel("im2col", "col2im_3x3_f64", col2imBody[float64]), own.Kernel("im2col", "col2im_f64", col2imBody[float64])},
}

// Sizes of blocks of im2col.cu.
const (
	im2colThreads = 512
	im2colShared  = 24 << 10 // bytes that are aimed at: several blocks share a multiprocessor
	im2colMost    = 48 << 10 // bytes that every device has
	col2imThreads = 256
	col2imLanes   = 32 // channels of neighbouring threads
)

// Im2Col plans the windows of images, those of all channels one behind the other,
//
//	out[b][y][x][c][i][j] = in[b][c][y + i][x + j]
//
// with y, x, i and j spaced as w says, and zeros outside of the image.
func Im2Col(dev Device, dt Dtype, images, channels int64, w Windows) (*Plan, error) {
	p, err := newIm2Col("im2col", dt, images, channels, w)
	if err != nil || p.Out == 0 {
		return p, err
	}
	size, all, kw := dt.Size(), channels*int64(w.Rows.Size), int64(w.Columns.Size)
	span := func(windows int64) int64 { // elements of an image row, an odd number: rows begin in other banks
		return ((windows-1)*int64(w.Columns.Stride) + (kw-1)*int64(w.Columns.Dilation) + 1) | 1
	}
	if span(1)*size > im2colMost {
		return nil, fmt.Errorf("kernels: %s: got windows of %d columns, dilation %d, want at most %d bytes from end to end", p.Op, kw, w.Columns.Dilation, im2colMost)
	}
	rows := evenly(all, max(1, min(im2colThreads/kw, im2colShared/(span(1)*size))))
	room := max(im2colShared/(rows*size), span(1)) // for span
	across := int64(1)
	for across < min(64, int64(w.Columns.Out())) && span(across+1) <= room {
		across++
	}
	across = evenly(int64(w.Columns.Out()), across)
	down := evenly(int64(w.Rows.Out()), max(1, room/span(across)))
	tilesDown, tilesAcross, parts := CeilDiv(int64(w.Rows.Out()), down), CeilDiv(int64(w.Columns.Out()), across), CeilDiv(all, rows)
	blocks := images * tilesDown * tilesAcross * parts
	if err := CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	threads := int64(im2colThreads)
	if width := rows * kw; width < threads {
		threads = min(threads, CeilDiv(threads/width*width, 32)*32)
	}
	args := append([]any{Ref{0, 0}, Ref{Out, 0}, int32(channels)}, w.arguments()...)
	args = append(args, int32(down), int32(across), int32(span(across)))
	for _, d := range []int64{rows, int64(w.Rows.Size), span(across)} {
		args = append(args, divideBy(d)...)
	}
	l := p.Launch(im2colKernel[dt], int(blocks), int(threads), append(args, int32(tilesDown), int32(tilesAcross), int32(parts))...)
	l.Shared = int(down * rows * span(across) * size)
	return p, nil
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
	part := evenly(channels, col2imLanes)
	run := evenly(w.plane(), max(1, im2colShared/(part*dt.Size())-1))
	runs, parts := CeilDiv(w.plane(), run), CeilDiv(channels, part)
	blocks := images * runs * parts
	if err := CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	args := append([]any{Ref{0, 0}, Ref{Out, 0}, int32(channels)}, w.arguments()...)
	args = append(args, int32(run))
	for _, d := range []int64{part, int64(w.Columns.In), int64(w.Rows.Stride), int64(w.Columns.Stride)} {
		args = append(args, divideBy(d)...)
	}
	kernel := col2imKernel[dt][1]
	if w.Rows.Size == 3 && w.Columns.Size == 3 {
		kernel = col2imKernel[dt][0]
	}
	p.Launch(kernel, int(blocks), col2imThreads, append(args, int32(runs), int32(parts))...).Shared = int(part * (run + 1) * dt.Size())
	return p, nil
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
	images := int64(c.Grid[0]) / (c.Int(27) * c.Int(28) * c.Int(29))
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
	in, out, channels := Slice[T](c, 0), Slice[T](c, 1), c.Int(2)
	v, h := windowAxes(c, 3)
	images := int64(c.Grid[0]) / (c.Int(28) * c.Int(29))
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
