package window

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var (
	poolMax         = poolKernels("max", maxPoolBody[float32], maxPoolBody[float64])
	poolAverage     = poolKernels("average", averagePoolBody[float32], averagePoolBody[float64])
	poolAverageDiff = poolKernels("average_diff", averagePoolDiffBody[float32], averagePoolDiffBody[float64])
	poolMaxDiff     = poolKernels("max_diff", maxPoolDiffBody[float32], maxPoolDiffBody[float64])
	poolMaxDiffFar  = own.Pair("pool", "pool_max_diff_far", maxPoolDiffFarBody[float32], maxPoolDiffFarBody[float64])
)

// poolKernels returns the kernels for windows of 2 x 2 with stride 2, of 3 x 3 with stride 1 and 2, and for all others: see maxVariant and [appendWalk] for those that are not there.
func poolKernels(op string, f32, f64 func(kernels.Call)) (k [4][2]*kernels.Kernel) {
	for i, windows := range []string{"_2x2_2", "_3x3_1", "_3x3_2", ""} {
		if (op != "max_diff" || i != walked) && (i > 0 || !strings.HasPrefix(op, "max")) {
			k[i] = own.Pair("pool", "pool_"+op+windows, f32, f64)
		}
	}
	return k
}

type poolArgs struct {
	In, Out         kernels.Ref
	Total           int64 `arg:"int32"` // threads: strips x columns of each plane
	Axes            axes
	Div             float64
	Strips, Columns arith.Divide
}

func (a poolArgs) planes() int64 { return a.Total / (a.Strips.D * a.Columns.D) }

// maxPoolDiffArgs are the first arguments of the kernels of tiles and of warps that walk.
type maxPoolDiffArgs struct {
	In, Grad, Out kernels.Ref
	Planes        int64
	Axes          axes
}

type maxPoolDiffFarArgs struct {
	In, Grad, Out                 kernels.Ref
	Total                         int64 `arg:"int32"`
	Axes                          axes
	Strips, Columns, Down, Across arith.Divide
}

// Constants of pool.cu, and the tiles of the gradient of a maximum.
const (
	poolThreads  = 256
	poolStrip    = 8                       // rows of a plane for a thread, if windows have their own kernel
	poolShared   = 32 << 10                // bytes of shared memory of a tile: several blocks share an SM
	poolElements = 1 << 13                 // max elements of a tile of several planes
	poolMost     = 1<<31 - 1 - poolThreads // max threads of a launch: they are counted in 31 bits
)

// MaxPool plans the maximum of each window of planes, at least the least finite number. Elements outside the plane are ignored. NaN
// is no maximum, since a later element replaces the maximum only if it is greater.
func MaxPool(dev kernels.Device, dt kernels.Dtype, planes int64, w Windows) (*kernels.Plan, error) {
	p, err := newPool("maxpool", dt, planes, w)
	if err != nil {
		return nil, err
	}
	k := maxVariant(w)
	if pair := (MaxPooling{Dtype: dt, Images: planes, Channels: 1, Windows: w}); pair.pairs(dev) {
		return pair.plan(p), nil
	} else if t, ok := newPoolMaxTile(dev, dt, planes, w); ok && !known(k) {
		return appendPoolMax(p, dt, t)
	}
	return appendPool(p, poolMax[k][dt], planes, windowStrips(k, w, w.Rows.Out()), int64(w.Columns.Out()), w, 1), nil
}

// AveragePool plans the sum of each window of planes, in row-major order, divided by div. Elements outside the plane are ignored.
func AveragePool(dev kernels.Device, dt kernels.Dtype, planes int64, w Windows, div float64) (*kernels.Plan, error) {
	p, err := newPool("averagepool", dt, planes, w)
	if err != nil {
		return nil, err
	}
	k := poolVariant(w)
	return appendPool(p, poolAverage[k][dt], planes, windowStrips(k, w, w.Rows.Out()), int64(w.Columns.Out()), w, div), nil
}

// AveragePoolDiff plans the gradient w.r.t. the input of [AveragePool], from the gradient w.r.t. its output.
func AveragePoolDiff(dev kernels.Device, dt kernels.Dtype, planes int64, w Windows, div float64) (*kernels.Plan, error) {
	p, err := newPool("averagepooldiff", dt, planes, w)
	if err != nil {
		return nil, err
	}
	p.Inputs[0], p.Out = p.Out, p.Inputs[0]
	rows, k := w.Rows.In, poolVariant(w)
	if known(k) {
		rows += w.Rows.Before % w.Rows.Stride
	}
	return appendPool(p, poolAverageDiff[k][dt], planes, poolStrips(k, rows), int64(w.Columns.In), w, div, arith.DivideBy(int64(w.Rows.Stride)), arith.DivideBy(int64(w.Columns.Stride))), nil
}

// MaxPoolDiff plans the gradient w.r.t. the input of [MaxPool]. Inputs are the input of MaxPool and the gradient w.r.t. its
// output. Each element of the latter is added to the maximum of its window, the first of equal elements.
func MaxPoolDiff(dev kernels.Device, dt kernels.Dtype, planes int64, w Windows) (*kernels.Plan, error) {
	p, err := newPool("maxpooldiff", dt, planes, w)
	if err != nil {
		return nil, err
	}
	x, y := p.Inputs[0], p.Out
	p.Inputs, p.Out = []int64{x, y}, x
	k := maxVariant(w)
	if pair := (MaxPooling{Dtype: dt, Images: planes, Channels: 1, Windows: w, Gradient: true}); pair.pairs(dev) {
		return pair.plan(p), nil
	} else if k == walked {
		return appendWalk(p, dev, dt, planes, w), nil
	}
	down, across := arith.DivideBy(int64(w.Rows.Stride)), arith.DivideBy(int64(w.Columns.Stride))
	tile, ok := newPoolTile(k, w, poolShared/(2*dt.Size()))
	if !ok {
		rows, columns := int64(w.Rows.In), int64(w.Columns.In)
		inParts(p, planes, poolMost/(rows*columns), func(part int64, at func(kernels.Operand) kernels.Ref) {
			threads := part * rows * columns
			p.Launch(poolMaxDiffFar[dt], int(kernels.CeilDiv(threads, poolThreads)), poolThreads,
				maxPoolDiffFarArgs{at(0), at(1), at(kernels.Out), threads, w.axes(), arith.DivideBy(rows), arith.DivideBy(columns), down, across})
		})
		return p, nil
	}
	if x == 0 {
		return p, nil
	}
	blocks := kernels.CeilDiv(planes, tile.Planes) * tile.Down * tile.Across
	p.Launch(poolMaxDiff[k][dt], int(blocks), poolThreads, maxPoolDiffArgs{kernels.In(0), kernels.In(1), kernels.At(kernels.Out, 0), planes, w.axes()},
		down, across, tile).Shared = int(tile.Planes * tile.High * tile.Wide * 2 * dt.Size())
	return p.Or(kernels.CheckGrid(blocks))
}

// poolTile is pool.cu's Tile.
type poolTile struct {
	Planes, Rows, Columns, Down, Across, AroundRows, AroundColumns, High, Wide int64 `arg:"int32"`
	ByWindowStrips, ByWindowColumns, ByStrips, ByColumns                       arith.Divide
}

// newPoolTile returns a tile of kernel k with room for a number of windows. It returns false if none fits.
// Its rows and columns are counted from the first element of a window on.
func newPoolTile(k int, w Windows, room int64) (t poolTile, ok bool) {
	around := func(a WindowAxis) int64 { return kernels.CeilDiv(int64(a.Size), int64(a.Stride)) }
	extent := func(a WindowAxis, unit int64) int64 { // in units
		return kernels.CeilDiv(int64(a.In)+int64(a.Before%a.Stride), unit)
	}
	t.AroundRows, t.AroundColumns = around(w.Rows), around(w.Columns)
	unitRows, unitColumns := int64(w.Rows.Stride), int64(w.Columns.Stride)
	if known(k) {
		unitRows = poolStrip
	}
	windowsOf := unitRows / int64(w.Rows.Stride) // of a unit of rows
	if least := (windowsOf + t.AroundRows - 1) * t.AroundColumns; least > room {
		return t, false
	}
	columns := evenly(extent(w.Columns, unitColumns), room/(windowsOf+t.AroundRows-1)-(t.AroundColumns-1))
	t.Wide = columns + t.AroundColumns - 1
	rows := evenly(extent(w.Rows, unitRows), (room/t.Wide-(t.AroundRows-1))/windowsOf)
	t.High = rows*windowsOf + t.AroundRows - 1
	t.Rows, t.Columns = rows*unitRows, columns*unitColumns
	t.Down, t.Across = kernels.CeilDiv(extent(w.Rows, unitRows), rows), kernels.CeilDiv(extent(w.Columns, unitColumns), columns)
	t.Planes = 1
	if t.Down*t.Across == 1 {
		t.Planes = max(1, min(room/(t.High*t.Wide), poolElements/w.plane()))
	}
	t.ByWindowStrips, t.ByWindowColumns = arith.DivideBy(windowStrips(k, w, int(t.High))), arith.DivideBy(t.Wide)
	t.ByStrips, t.ByColumns = arith.DivideBy(poolStrips(k, int(t.Rows))), arith.DivideBy(t.Columns)
	return t, true
}

// newPool returns the plan of planes to windows, with no launches yet.
func newPool(name string, dt kernels.Dtype, planes int64, w Windows) (*kernels.Plan, error) {
	p, err := &kernels.Plan{Op: fmt.Sprintf("%s_%v(%d planes, %+v)", name, dt, planes, w)}, w.check(1)
	if most := max(w.Rows.Dilation, w.Columns.Dilation); err == nil && most != 1 {
		err = fmt.Errorf("got dilation %d, want 1", most)
	}
	if err == nil {
		p.Inputs, p.Out, p.Flops = []int64{planes * w.plane() * dt.Size()}, planes*w.out()*dt.Size(), planes*w.out()*w.elements()
	}
	return p.Or(err)
}

// walked is the index of windows of 3 x 3 with stride 1. Warps that walk compute the gradient of their maximum: see [appendWalk].
const walked = 1

// poolVariant returns the index in the results of poolKernels of the kernel for windows.
func poolVariant(w Windows) int {
	size, stride := w.Rows.Size, w.Rows.Stride
	switch square := size == w.Columns.Size && stride == w.Columns.Stride; {
	case square && size == 2 && stride == 2:
		return 0
	case square && size == 3 && (stride == 1 || stride == 2):
		return stride
	}
	return 3
}

// maxVariant is poolVariant for maxima: of windows of 2 x 2 poolpair.cu has the kernels, and those that it does not take have the kernel for all.
func maxVariant(w Windows) int {
	if k := poolVariant(w); k > 0 {
		return k
	}
	return 3
}

// known reports whether kernel k is one for windows of known sizes.
func known(k int) bool { return k < 3 }

// poolStrips returns the number of strips of kernel k of `rows` rows of a plane, windowStrips the number of strips of `rows` rows of windows.
func poolStrips(k, rows int) int64 {
	if known(k) {
		return kernels.CeilDiv(int64(rows), poolStrip)
	}
	return int64(rows)
}

func windowStrips(k int, w Windows, rows int) int64 {
	if known(k) {
		rows *= w.Rows.Stride
	}
	return poolStrips(k, rows)
}

// appendPool appends launches with a thread for each column of strips of planes. The gradient of the average also divides by strides.
func appendPool(p *kernels.Plan, k *kernels.Kernel, planes, strips, columns int64, w Windows, div float64, strides ...any) *kernels.Plan {
	inParts(p, planes, poolMost/(strips*columns), func(part int64, at func(kernels.Operand) kernels.Ref) {
		threads := part * strips * columns
		args := poolArgs{at(0), at(kernels.Out), threads, w.axes(), div, arith.DivideBy(strips), arith.DivideBy(columns)}
		p.Launch(k, int(kernels.CeilDiv(threads, poolThreads)), poolThreads, append([]any{args}, strides...)...)
	})
	return p
}

// inParts calls launch for parts of planes, of at most most planes each. at returns where the part begins in an operand of the plan.
func inParts(p *kernels.Plan, planes, most int64, launch func(part int64, at func(kernels.Operand) kernels.Ref)) {
	for first := int64(0); first < planes; first += most {
		launch(min(planes-first, most), func(o kernels.Operand) kernels.Ref {
			bytes := p.Out
			if o >= 0 {
				bytes = p.Inputs[o]
			}
			return kernels.At(o, bytes/planes*first)
		})
	}
}

// forPlanes calls f for every row of every plane.
func forPlanes(planes, rows, columns int64, f func(plane, row int64)) {
	kernels.Parallel(planes*rows, max(kernels.Grain/columns, 1), func(lo, hi int64) {
		for at := lo; at < hi; at++ {
			f(at/rows, at%rows)
		}
	})
}

// least returns the least finite number.
func least[T kernels.Float]() T {
	if unsafe.Sizeof(T(0)) == 4 {
		return T(-math.MaxFloat32)
	}
	most := math.MaxFloat64
	return T(-most)
}

func maxPoolBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[poolArgs](c)
	maxPool[T](c, args.In, args.Out, args.planes(), args.Axes)
}

// maxPool computes the maximum of each window of planes.
func maxPool[T kernels.Float](c kernels.Call, from, to kernels.Ref, planes int64, w axes) {
	in, out, v, h := kernels.Slice[T](c, from), kernels.Slice[T](c, to), w.Rows, w.Columns
	forPlanes(planes, v.Out, h.Out, func(plane, y int64) {
		from, to := in[plane*v.In*h.In:], out[(plane*v.Out+y)*h.Out:][:h.Out]
		top, first, last := v.windowed(y)
		for x := range to {
			greatest := least[T]()
			left, lo, hi := h.windowed(int64(x))
			for i := top + first; i < top+last && lo < hi; i++ {
				for _, e := range from[i*h.In+left+lo : i*h.In+left+hi] {
					if e > greatest {
						greatest = e
					}
				}
			}
			to[x] = greatest
		}
	})
}

// eachOf calls f for each element of a window of a plane, with its index.
func eachOf[T kernels.Float](plane []T, v, h axis, y, x int64, f func(at int64, e T)) {
	top, first, last := v.windowed(y)
	left, lo, hi := h.windowed(x)
	for i := top + first; i < top+last; i++ {
		for at := i*h.In + left + lo; at < i*h.In+left+hi; at++ {
			f(at, plane[at])
		}
	}
}

func averagePoolBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[poolArgs](c)
	in, out, div, v, h := kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Out), T(args.Div), args.Axes.Rows, args.Axes.Columns
	forPlanes(args.planes(), v.Out, h.Out, func(plane, y int64) {
		from, to := in[plane*v.In*h.In:], out[(plane*v.Out+y)*h.Out:][:h.Out]
		for x := range to {
			sum := T(0)
			eachOf(from, v, h, y, int64(x), func(_ int64, e T) { sum += e })
			to[x] = sum / div
		}
	})
}

func maxPoolDiffBody[T kernels.Float](c kernels.Call) {
	maxPoolDiff[T](c, kernels.Args[maxPoolDiffArgs](c))
}

func maxPoolDiffFarBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[maxPoolDiffFarArgs](c)
	maxPoolDiff[T](c, maxPoolDiffArgs{args.In, args.Grad, args.Out, args.Total / (args.Strips.D * args.Columns.D), args.Axes})
}

// maxPoolDiff computes the gradient of the maximum of each window of planes.
func maxPoolDiff[T kernels.Float](c kernels.Call, args maxPoolDiffArgs) {
	in, grad, out, v, h := kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Grad), kernels.Slice[T](c, args.Out), args.Axes.Rows, args.Axes.Columns
	forPlanes(args.Planes, 1, v.In*h.In, func(plane, _ int64) {
		from, to := in[plane*v.In*h.In:], out[plane*v.In*h.In:][:v.In*h.In]
		clear(to)
		for o := range v.Out * h.Out {
			greatest, place := least[T](), int64(-1)
			eachOf(from, v, h, o/h.Out, o%h.Out, func(at int64, e T) {
				if e > greatest {
					greatest, place = e, at
				}
			})
			if place >= 0 {
				to[place] += grad[plane*v.Out*h.Out+o]
			}
		}
	})
}

func averagePoolDiffBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[poolArgs](c)
	grad, out, div, v, h := kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Out), T(args.Div), args.Axes.Rows, args.Axes.Columns
	forPlanes(args.planes(), 1, v.In*h.In, func(plane, _ int64) {
		to := out[plane*v.In*h.In:][:v.In*h.In]
		clear(to)
		for o := range v.Out * h.Out {
			slope := grad[plane*v.Out*h.Out+o]
			eachOf(to, v, h, o/h.Out, o%h.Out, func(at int64, _ T) { to[at] += slope })
		}
		for i := range to {
			to[i] /= div
		}
	})
}
