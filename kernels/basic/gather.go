package basic

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// gatherKernels are the kernels by bytes of the word that a thread copies.
var gatherKernels = map[int64]*kernels.Kernel{
	1:  own.Kernel("gather", "gather_b8", gatherBody(1)),
	4:  own.Kernel("gather", "gather_b32", gatherBody(4)),
	8:  own.Kernel("gather", "gather_b64", gatherBody(8)),
	16: own.Kernel("gather", "gather_b128", gatherBody(16)),
}

const (
	gatherEach   = 4   // words of a thread: as in gather.cu
	indicesBlock = 256 // threads of a block
)

type gatherArgs struct {
	X, Indices, Out kernels.Ref
	Words, Rows     int64
	Count, Inner    wideDivide
}

// wideDivide holds the arguments of a division by D of indices of 63 bits.
type wideDivide struct {
	D, Magic int64
	Shift    int32
}

func wideDivideBy(d int64) wideDivide {
	magic, shift := arith.Divisor(max(d, 2), true)
	return wideDivide{d, int64(magic), int32(shift)}
}

// Gather plans out = the elements of x at indices along an axis: out has the shape of x,
// but count elements along the axis. The inputs are x and the indices, of Int64. Where an
// index is outside the axis, out is 0.
func Gather(dev kernels.Device, dt kernels.Dtype, shape []int, axis int, count int64) (*kernels.Plan, error) {
	outer, rows, inner, err := alongAxis(shape, axis, count)
	p := &kernels.Plan{Op: fmt.Sprintf("gather_%v(%v, %d along %d)", dt, shape, count, axis)}
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	size := inner * dt.Size() // of a row
	p.Inputs, p.Out = []int64{outer * rows * size, count * kernels.Int64.Size()}, outer*count*size
	if p.Out == 0 {
		return p, nil
	}
	word := int64(16)
	for gatherKernels[word] == nil || size%word != 0 {
		word /= 2
	}
	words := p.Out / word
	blocks := kernels.CeilDiv(words, gatherEach*indicesBlock)
	if err := kernels.CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	p.Launch(gatherKernels[word], int(blocks), indicesBlock,
		gatherArgs{kernels.In(0), kernels.In(1), kernels.At(kernels.Out, 0), words, rows, wideDivideBy(count), wideDivideBy(size / word)})
	return p, nil
}

// alongAxis returns a shape as three axes, the second of which is the given axis.
func alongAxis(shape []int, axis int, count int64) (outer, rows, inner int64, err error) {
	const most = 1<<31 - 1 // lists of indices are of int32
	switch {
	case axis < 0 || axis >= len(shape):
		err = fmt.Errorf("got axis %d of shape %v", axis, shape)
	case count < 0 || count > most:
		err = fmt.Errorf("got %d indices, want at most %d", count, most)
	default:
		outer, rows, inner = kernels.Count(shape[:axis]), int64(shape[axis]), kernels.Count(shape[axis+1:])
	}
	return outer, rows, inner, err
}

// gatherBody is the Go body for words of that many bytes.
func gatherBody(word int64) func(kernels.Call) {
	return func(c kernels.Call) {
		args := kernels.Args[gatherArgs](c)
		x, indices, out := kernels.Slice[uint8](c, args.X), kernels.Slice[int64](c, args.Indices), kernels.Slice[uint8](c, args.Out)
		rows, count, size := args.Rows, args.Count.D, args.Inner.D*word
		kernels.Parallel(args.Words*word/size, max(kernels.Grain/size, 1), func(lo, hi int64) {
			for row := lo; row < hi; row++ {
				to, index := out[row*size:(row+1)*size], indices[row%count]
				if index < 0 || index >= rows {
					clear(to)
					continue
				}
				copy(to, x[(row/count*rows+index)*size:])
			}
		})
	}
}
