package window

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/internal/policy"
)

// col2imArgs has the share of a block of col2im: Part channels, Rows and Columns of an image. Shared memory holds two rows of windows, Line elements
// apart, whose windows are Pitch elements apart, and accumulators of a Ring of image rows. A warp sums elements of Beside channels. Windows of a row
// that contain the same element are Apart windows from each other, and its copies Leap elements of shared memory.
type col2imArgs struct {
	imageArgs
	Part, Rows, Columns, Ring, Line, Pitch, How, Beside, Apart, Leap int64 `arg:"int32"`
	Units, Down, Across                                              arith.Divide
	TilesDown, TilesAcross, Parts                                    int64 `arg:"int32"`
}

type col2imFarArgs struct {
	imageArgs
	Row, Down, Across arith.Divide
	Runs              int64 `arg:"int32"`
}

// Col2Im plans the adjoint of [Im2Col]: each element of the images is the sum of its copies by Im2Col, in the order of the output of Im2Col.
func Col2Im(dev kernels.Device, dt kernels.Dtype, images, channels int64, w Windows) (*kernels.Plan, error) {
	p, err := newIm2Col("col2im", dt, images, channels, w)
	if p.Inputs[0], p.Out = p.Out, p.Inputs[0]; err != nil || p.Out == 0 {
		return p.Or(err)
	}
	p.Flops = p.Inputs[0] / dt.Size()
	if w.isPoints() {
		return p, appendExchange(p, dev, dt, images, w.plane(), channels)
	}
	down, across := arith.DivideBy(int64(w.Rows.Stride)), arith.DivideBy(int64(w.Columns.Stride))
	t, bytes, ok := newCol2ImTile(dev, dt, images, channels, w)
	if !ok {
		runs := kernels.CeilDiv(w.plane(), im2colThreads)
		p.Launch(col2imFar[dt], int(images*channels*runs), im2colThreads, col2imFarArgs{w.imageArgs(channels), arith.DivideBy(int64(w.Columns.In)), down, across, runs})
		return p.Or(kernels.CheckGrid(images * channels * runs))
	}
	blocks := images * t.TilesDown * t.TilesAcross * t.Parts
	common := gcd(int64(w.Columns.Dilation), int64(w.Columns.Stride))
	apart := int64(w.Columns.Dilation) / common
	k := col2imKernel[dt]
	if kernels.CeilDiv(w.Columns.around(1), apart) <= col2imTaps {
		k = col2imFew[dt]
	}
	t.Apart, t.Leap = apart, apart*t.Pitch-int64(w.Columns.Stride)/common
	t.Units, t.Down, t.Across = arith.DivideBy(t.units()), down, across
	p.Launch(k, int(blocks), int(t.threads()), t).Shared = int(bytes)
	return p.Or(kernels.CheckGrid(blocks))
}

// around returns the max number of windows along the axis that cover n neighbouring elements.
func (a WindowAxis) around(n int64) int64 {
	return min(kernels.CeilDiv(n+int64(a.Size-1)*int64(a.Dilation), int64(a.Stride)), int64(a.Out()))
}

// gcd returns the greatest common divisor.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// How a row of windows is loaded into shared memory: as in im2col.cu.
const (
	col2imElements = iota
	col2imVectors
	col2imWhole
)

// units returns the warps of a row of the tile, threads the threads of a block.
func (t col2imArgs) units() int64 { return kernels.CeilDiv(t.Columns, 32/t.Beside) }

func (t col2imArgs) threads() int64 { return 32 * t.units() * kernels.CeilDiv(t.Part, t.Beside) }

// newCol2ImTile returns arguments with the tile, and its bytes of shared memory. It returns false if no tile fits.
func newCol2ImTile(dev kernels.Device, dt kernels.Dtype, images, channels int64, w Windows) (t col2imArgs, bytes int64, ok bool) {
	kernel, size := w.elements(), dt.Size()
	t.imageArgs = w.imageArgs(channels)
	even := policy.SectorBytes / gcd(policy.SectorBytes, kernel*size) // channels whose elements of a window begin and end with sectors
	t.Columns = int64(w.Columns.In)
	t.Part = min(channels, even*max(kernels.CeilDiv(col2imPiece, even*kernel*size), col2imThreads/(even*((t.Columns+7)&^7))))
tile:
	for {
		bytes = t.lay(dt, channels, w)
		if bytes <= col2imShared && t.threads() <= col2imThreads {
			break
		}
		switch half := kernels.CeilDiv(t.Part/2, even) * even; {
		case t.Part > even && half < t.Part && half*kernel*size >= col2imPiece:
			t.Part = half
		case bytes <= min(col2imWide, int64(dev.SharedOptin)) && t.threads() <= col2imThreads: // windows between tiles of columns would be read twice
			break tile
		case t.Columns > 16:
			t.Columns = kernels.CeilDiv(t.Columns, 2)
		case t.Part > 1:
			t.Part = kernels.CeilDiv(t.Part, 2)
		case t.Columns > 1:
			t.Columns = kernels.CeilDiv(t.Columns, 2)
		default:
			return t, 0, false
		}
	}
	t.Parts, t.TilesAcross = kernels.CeilDiv(channels, t.Part), kernels.CeilDiv(int64(w.Columns.In), t.Columns)
	t.Rows = int64(w.Rows.In)
	if wanted := kernels.CeilDiv(4*int64(dev.SMs), images*t.Parts*t.TilesAcross); wanted > 1 { // rows of windows between them are read twice
		t.Rows = max(kernels.CeilDiv(t.Rows, wanted), min(col2imLeast, t.Rows))
	}
	t.TilesDown = kernels.CeilDiv(int64(w.Rows.In), t.Rows)
	return t, bytes, true
}

// lay lays out the rows of windows and the accumulators for the channels and columns of the tile, and returns their bytes.
func (t *col2imArgs) lay(dt kernels.Dtype, channels int64, w Windows) (bytes int64) {
	kernel, size := w.elements(), dt.Size()
	wide, width := 16/size, t.Part*kernel
	t.Ring = int64(w.Rows.Size-1)*int64(w.Rows.Dilation) + 1
	windows := w.Columns.around(t.Columns)
	switch {
	case width%wide == 0 && channels*kernel%wide == 0: // windows begin in other banks, and channels in those between
		t.How, t.Beside, t.Pitch = col2imVectors, 4, (width/wide|1)*wide
		t.Line = windows * t.Pitch
		if t.Part < t.Beside {
			t.Beside = 1
		}
	case t.Part == channels:
		t.How, t.Beside, t.Pitch = col2imWhole, 1, width
		t.Line = (windows*width+wide-1)/wide*wide + wide
	default:
		t.How, t.Beside, t.Pitch = col2imElements, 1, width|1
		t.Line = windows * t.Pitch
	}
	return (2*t.Line + t.Ring*t.threads()) * size
}

func col2imBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[imageArgs](c)
	in, out, channels, v, h := kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Out), args.Channels, args.Axes.Rows, args.Axes.Columns
	width, plane := channels*v.Size*h.Size, v.In*h.In
	kernels.Parallel(int64(len(out))/plane, max(kernels.Grain/plane, 1), func(from, to int64) {
		for p := from; p < to; p++ {
			image, c := p/channels, p%channels
			sums := out[p*plane : (p+1)*plane]
			clear(sums)
			for y := range v.Out {
				top, first, last := v.windowed(y)
				for x := range h.Out {
					left, lo, hi := h.windowed(x)
					window := in[((image*v.Out+y)*h.Out+x)*width+c*v.Size*h.Size:]
					for i := first; i < last && lo < hi; i++ {
						to := sums[(top+i*v.Dilation)*h.In+left+lo*h.Dilation:]
						for j, e := range window[i*h.Size+lo : i*h.Size+hi] {
							to[int64(j)*h.Dilation] += e
						}
					}
				}
			}
		}
	})
}
