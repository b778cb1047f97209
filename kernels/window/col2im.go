package window

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// Windows of a row that contain the same element are Apart windows from each other, and its copies Leap elements of shared memory.
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

// Col2Im plans the adjoint of [Im2Col]: each element of the images is the sum of its copies by
// Im2Col, in the order of the output of Im2Col.
func Col2Im(dev kernels.Device, dt kernels.Dtype, images, channels int64, w Windows) (*kernels.Plan, error) {
	p, err := newIm2Col("col2im", dt, images, channels, w)
	if err != nil {
		return nil, err
	}
	if p.Inputs[0], p.Out = p.Out, p.Inputs[0]; p.Out == 0 {
		return p, nil
	}
	p.Flops = p.Inputs[0] / dt.Size()
	if w.isPoints() {
		return p, appendExchange(p, dev, dt, images, w.plane(), channels)
	}
	down, across := arith.DivideBy(int64(w.Rows.Stride)), arith.DivideBy(int64(w.Columns.Stride))
	t, ok := newCol2ImTile(dev, dt, images, channels, w)
	if !ok {
		runs := kernels.CeilDiv(w.plane(), im2colThreads)
		if err := kernels.CheckGrid(images * channels * runs); err != nil {
			return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
		}
		p.Launch(im2colKernel[dt].col2imFar, int(images*channels*runs), im2colThreads, col2imFarArgs{w.imageArgs(channels), arith.DivideBy(int64(w.Columns.In)), down, across, runs})
		return p, nil
	}
	blocks := images * t.tilesDown * t.tilesAcross * t.parts
	if err := kernels.CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	common := gcd(int64(w.Columns.Dilation), int64(w.Columns.Stride))
	apart := int64(w.Columns.Dilation) / common
	k := im2colKernel[dt].col2im[1]
	if kernels.CeilDiv(w.Columns.around(1), apart) <= col2imFew {
		k = im2colKernel[dt].col2im[0]
	}
	p.Launch(k, int(blocks), int(t.threads()), col2imArgs{imageArgs: w.imageArgs(channels), Part: t.part, Rows: t.rows, Columns: t.columns, Ring: t.ring, Line: t.line, Pitch: t.pitch,
		How: t.how, Beside: t.beside, Apart: apart, Leap: apart*t.pitch - int64(w.Columns.Stride)/common, Units: arith.DivideBy(t.units()), Down: down, Across: across,
		TilesDown: t.tilesDown, TilesAcross: t.tilesAcross, Parts: t.parts}).Shared = int(t.bytes)
	return p, nil
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

// col2imTile is the share of a block of col2im: part channels, rows and columns of an image. Shared memory holds two rows of
// windows, line elements apart, whose windows are pitch elements apart, and accumulators of a ring of image rows. A warp sums
// elements of beside channels.
type col2imTile struct {
	part, rows, columns, ring, line, pitch, how, beside int64
	parts, tilesDown, tilesAcross                       int64
	bytes                                               int64
}

// units returns the warps of a row of the tile, threads the threads of a block.
func (t col2imTile) units() int64 { return kernels.CeilDiv(t.columns, 32/t.beside) }

func (t col2imTile) threads() int64 { return 32 * t.units() * kernels.CeilDiv(t.part, t.beside) }

// newCol2ImTile returns the tile. It returns false if none fits into shared memory.
func newCol2ImTile(dev kernels.Device, dt kernels.Dtype, images, channels int64, w Windows) (t col2imTile, ok bool) {
	kernel, size := w.elements(), dt.Size()
	even := kernels.SectorBytes / gcd(kernels.SectorBytes, kernel*size) // channels whose elements of a window begin and end with sectors
	t.columns = int64(w.Columns.In)
	t.part = min(channels, even*max(kernels.CeilDiv(col2imPiece, even*kernel*size), col2imThreads/(even*((t.columns+7)&^7))))
tile:
	for {
		t.lay(dt, channels, w)
		if t.bytes <= col2imShared && t.threads() <= col2imThreads {
			break
		}
		switch half := kernels.CeilDiv(t.part/2, even) * even; {
		case t.part > even && half < t.part && half*kernel*size >= col2imPiece:
			t.part = half
		case t.bytes <= min(col2imWide, int64(dev.SharedOptin)) && t.threads() <= col2imThreads: // windows between tiles of columns would be read twice
			break tile
		case t.columns > 16:
			t.columns = kernels.CeilDiv(t.columns, 2)
		case t.part > 1:
			t.part = kernels.CeilDiv(t.part, 2)
		case t.columns > 1:
			t.columns = kernels.CeilDiv(t.columns, 2)
		default:
			return col2imTile{}, false
		}
	}
	t.parts, t.tilesAcross = kernels.CeilDiv(channels, t.part), kernels.CeilDiv(int64(w.Columns.In), t.columns)
	t.rows = int64(w.Rows.In)
	if wanted := kernels.CeilDiv(4*int64(dev.SMs), images*t.parts*t.tilesAcross); wanted > 1 { // rows of windows between them are read twice
		t.rows = max(kernels.CeilDiv(t.rows, wanted), min(col2imLeast, t.rows))
	}
	t.tilesDown = kernels.CeilDiv(int64(w.Rows.In), t.rows)
	return t, true
}

// lay lays out the rows of windows and the sums for the channels and columns of the tile.
func (t *col2imTile) lay(dt kernels.Dtype, channels int64, w Windows) {
	kernel, size := w.elements(), dt.Size()
	wide, width := 16/size, t.part*kernel
	t.ring = int64(w.Rows.Size-1)*int64(w.Rows.Dilation) + 1
	windows := w.Columns.around(t.columns)
	switch {
	case width%wide == 0 && channels*kernel%wide == 0: // windows begin in other banks, and channels in those between
		t.how, t.beside, t.pitch = col2imVectors, 4, (width/wide|1)*wide
		t.line = windows * t.pitch
		if t.part < t.beside {
			t.beside = 1
		}
	case t.part == channels:
		t.how, t.beside, t.pitch = col2imWhole, 1, width
		t.line = (windows*width+wide-1)/wide*wide + wide
	default:
		t.how, t.beside, t.pitch = col2imElements, 1, width|1
		t.line = windows * t.pitch
	}
	t.bytes = (2*t.line + t.ring*t.threads()) * size
}

func col2imBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[col2imArgs](c)
	col2im[T](c, args.imageArgs, int64(c.Grid[0])/(args.TilesDown*args.TilesAcross*args.Parts))
}

func col2imFarBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[col2imFarArgs](c)
	col2im[T](c, args.imageArgs, int64(c.Grid[0])/(args.Runs*args.Channels))
}

func col2im[T kernels.Float](c kernels.Call, args imageArgs, images int64) {
	in, out, channels, v, h := kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Out), args.Channels, args.Axes.Rows, args.Axes.Columns
	width, plane := channels*v.Size*h.Size, v.In*h.In
	kernels.Parallel(images*channels, max(kernels.Grain/plane, 1), func(from, to int64) {
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
