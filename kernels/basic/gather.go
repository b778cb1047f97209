package basic

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// gatherKernels are the kernels by bytes of the word that a thread copies, and gatherIndexKernels those for indices of any type.
var (
	gatherKernels      = byWord("gather", "gather", gatherBody)
	gatherIndexKernels = byWord("gather_index", "gather_index", gatherIndexBody)
)

// byWord returns the kernels of the entry points name_b8 to name_b128.
func byWord(stem, name string, body func(word int64) func(kernels.Call)) map[int64]*kernels.Kernel {
	all := map[int64]*kernels.Kernel{}
	for _, word := range []int64{1, 4, 8, 16} {
		all[word] = own.Kernel(stem, fmt.Sprintf("%s_b%d", name, 8*word), body(word))
	}
	return all
}

// wordOf returns the bytes of the largest word that divides rows of size bytes.
func wordOf(size int64) int64 {
	word := int64(16)
	for word == 2 || size%word != 0 {
		word /= 2
	}
	return word
}

const (
	gatherEach   = 4   // words of a thread: as in gather.cu
	indicesBlock = 256 // threads of a block
)

type gatherArgs struct {
	X, Indices, Out kernels.Ref
	gatherShape
}

type gatherIndexArgs struct {
	X       kernels.Ref
	Indices indexArgs
	Out     kernels.Ref
	gatherShape
}

type gatherShape struct {
	Words, Rows  int64
	Count, Inner wideDivide
}

// indexArgs is indices.cuh's Indices: indices of Bytes bytes each.
type indexArgs struct {
	At    kernels.Ref
	Bytes int64 `arg:"int32"`
}

// load returns n indices as int64.
func (a indexArgs) load(c kernels.Call, n int64) []int64 {
	switch a.Bytes {
	case 1:
		return converted(kernels.Slice[uint8](c, a.At)[:n])
	case 4:
		return converted(kernels.Slice[int32](c, a.At)[:n])
	}
	return kernels.Slice[int64](c, a.At)[:n]
}

func converted[T uint8 | int32](x []T) []int64 {
	list := make([]int64, len(x))
	for i, v := range x {
		list[i] = int64(v)
	}
	return list
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

// Gather plans out = the elements of x at indices along an axis: out has the shape of x, but count elements along the axis. The inputs are x and the
// indices, of Int64. Where an index is outside the axis, out is 0.
func Gather(dev kernels.Device, dt kernels.Dtype, shape []int, axis int, count int64) (*kernels.Plan, error) {
	return GatherBy(dev, dt, kernels.Int64, shape, axis, count)
}

// GatherBy is [Gather] with indices of type index: Uint8, Int32, Int64 or Int.
func GatherBy(dev kernels.Device, dt, index kernels.Dtype, shape []int, axis int, count int64) (*kernels.Plan, error) {
	p, outer, rows, inner, err := newIndexed("gather", dt, index, shape, axis, count)
	size, each := inner*dt.Size(), index.Size() // of a row, of an index
	if p.Inputs, p.Out = []int64{outer * rows * size, count * each}, outer*count*size; err != nil || p.Out == 0 {
		return p.Or(err)
	}
	p.Accessed = []int64{outer * min(rows, count) * size, count * each, p.Out}
	word := wordOf(size)
	words := p.Out / word
	blocks := kernels.CeilDiv(words, gatherEach*indicesBlock)
	from, indices, to := kernels.In(0), kernels.In(1), kernels.At(kernels.Out, 0)
	by := gatherShape{words, rows, wideDivideBy(count), wideDivideBy(size / word)}
	if each == kernels.Int64.Size() {
		p.Launch(gatherKernels[word], int(blocks), indicesBlock, gatherArgs{from, indices, to, by})
	} else {
		p.Launch(gatherIndexKernels[word], int(blocks), indicesBlock, gatherIndexArgs{from, indexArgs{indices, each}, to, by})
	}
	return p.Or(kernels.CheckGrid(blocks))
}

// newIndexed returns the plan, without sizes and launches, of an op on a tensor and on count indices along an axis, and the tensor as three
// axes, the second of which is the given axis.
func newIndexed(name string, dt, index kernels.Dtype, shape []int, axis int, count int64) (p *kernels.Plan, outer, rows, inner int64, err error) {
	p = &kernels.Plan{Op: fmt.Sprintf("%s_%v(%v, %d along %d)", name, dt, shape, count, axis)}
	outer, rows, inner, err = alongAxis(shape, axis, count)
	if err == nil && !slices.Contains([]kernels.Dtype{kernels.Uint8, kernels.Int32, kernels.Int64, kernels.Int}, index) {
		err = fmt.Errorf("got indices of %v, want uint8, int32, int64 or int", index)
	}
	return p, outer, rows, inner, err
}

// errZeroDevice is the error for a device of no properties.
var errZeroDevice = errors.New("got the zero Device, want HostDevice or the properties of a CUDA device")

// checkFloats returns an error unless an op of floating-point numbers alone runs on a device.
func checkFloats(dev kernels.Device, dt kernels.Dtype) error {
	switch {
	case !dt.IsFloat():
		return errors.New("want float32 or float64")
	case dev.SMs < 1:
		return errZeroDevice
	}
	return nil
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

// gatherBody is the Go body for words of that many bytes, gatherIndexBody that for indices of any type.
func gatherBody(word int64) func(kernels.Call) {
	return func(c kernels.Call) {
		args := kernels.Args[gatherArgs](c)
		args.gather(c, word, args.X, args.Out, kernels.Slice[int64](c, args.Indices))
	}
}

func gatherIndexBody(word int64) func(kernels.Call) {
	return func(c kernels.Call) {
		args := kernels.Args[gatherIndexArgs](c)
		args.gather(c, word, args.X, args.Out, args.Indices.load(c, args.Count.D))
	}
}

func (s gatherShape) gather(c kernels.Call, word int64, from, to kernels.Ref, indices []int64) {
	x, out := kernels.Slice[uint8](c, from), kernels.Slice[uint8](c, to)
	rows, count, size := s.Rows, s.Count.D, s.Inner.D*word
	kernels.Parallel(s.Words*word/size, max(kernels.Grain/size, 1), func(lo, hi int64) {
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
