package window

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// poolKernels are for windows of 2 x 2 with stride 2, of 3 x 3 with stride 1 and 2, and for all others.
type poolKernels struct {
	max, average, maxDiff, averageDiff [4]*kernels.Kernel
	maxDiffFar                         *kernels.Kernel
}

var poolKernel = [...]poolKernels{kernels.Float32: poolOf[float32](kernels.Float32), kernels.Float64: poolOf[float64](kernels.Float64)}

func poolOf[T kernels.Float](dt kernels.Dtype) (k poolKernels) {
	for i, windows := range []string{"2x2_2_", "3x3_1_", "3x3_2_", ""} {
		kernel := func(op string, body func(kernels.Call)) *kernels.Kernel {
			return own.Kernel("pool", fmt.Sprintf("pool_%s_%s%v", op, windows, dt), body)
		}
		k.max[i], k.average[i] = kernel("max", maxPoolBody[T](stripPlanes)), kernel("average", averagePoolBody[T])
		if k.averageDiff[i] = kernel("average_diff", averagePoolDiffBody[T]); i != walked {
			k.maxDiff[i] = kernel("max_diff", maxPoolDiffBody[T](false))
		}
	}
	k.maxDiffFar = own.Kernel("pool", fmt.Sprintf("pool_max_diff_far_%v", dt), maxPoolDiffBody[T](true))
	return k
}

// Constants of pool.cu, and the tiles of the derivative of a maximum.
const (
	poolThreads  = 256
	poolStrip    = 8                       // rows of a plane that a thread takes, where windows have a kernel of their own
	poolShared   = 32 << 10                // bytes of shared memory of a tile: several blocks share a multiprocessor
	poolElements = 1 << 13                 // most elements of a tile of several planes
	poolMost     = 1<<31 - 1 - poolThreads // most threads of a launch: they are counted in 31 bits
)

// MaxPool plans the greatest element of each window of planes: the first one by > that
// no later one exceeds, from the least finite number on. Elements outside of the plane
// are left out.
func MaxPool(dev kernels.Device, dt kernels.Dtype, planes int64, w Windows) (*kernels.Plan, error) {
	p, err := newPool("maxpool", dt, planes, w)
	if err != nil {
		return nil, err
	}
	if t, ok := newPoolMaxTile(dev, dt, planes, w); ok && !known(w) {
		return appendPoolMax(p, dt, planes, w, t)
	}
	return appendPool(p, poolKernel[dt].max[poolVariant(w)], planes, windowStrips(w, w.Rows.Out()), int64(w.Columns.Out()), w, 1), nil
}

// AveragePool plans the sum of each window of planes, in the order in which its
// elements lie, divided by div. Elements outside of the plane are left out.
func AveragePool(dev kernels.Device, dt kernels.Dtype, planes int64, w Windows, div float64) (*kernels.Plan, error) {
	p, err := newPool("averagepool", dt, planes, w)
	if err != nil {
		return nil, err
	}
	return appendPool(p, poolKernel[dt].average[poolVariant(w)], planes, windowStrips(w, w.Rows.Out()), int64(w.Columns.Out()), w, div), nil
}

// AveragePoolDiff plans the derivative of [AveragePool] by its input, from that by its
// output.
func AveragePoolDiff(dev kernels.Device, dt kernels.Dtype, planes int64, w Windows, div float64) (*kernels.Plan, error) {
	p, err := newPool("averagepooldiff", dt, planes, w)
	if err != nil {
		return nil, err
	}
	p.Inputs[0], p.Out = p.Out, p.Inputs[0]
	rows := w.Rows.In
	if known(w) {
		rows += w.Rows.Before % w.Rows.Stride
	}
	return appendPool(p, poolKernel[dt].averageDiff[poolVariant(w)], planes, poolStrips(w, rows), int64(w.Columns.In), w, div, w.strides()...), nil
}

// MaxPoolDiff plans the derivative of [MaxPool] by its input. Inputs are that, and the
// derivative by the output: each element of this goes to the window's greatest element,
// the first of equal ones.
func MaxPoolDiff(dev kernels.Device, dt kernels.Dtype, planes int64, w Windows) (*kernels.Plan, error) {
	p, err := newPool("maxpooldiff", dt, planes, w)
	if err != nil {
		return nil, err
	}
	x, y := p.Inputs[0], p.Out
	p.Inputs, p.Out = []int64{x, y}, x
	if poolVariant(w) == walked {
		return appendWalk(p, dev, dt, planes, w), nil
	}
	tile, ok := newPoolTile(w, poolShared/(2*dt.Size()))
	if !ok {
		return appendPool(p, poolKernel[dt].maxDiffFar, planes, int64(w.Rows.In), int64(w.Columns.In), w, 1, w.strides()...), nil
	}
	if x == 0 {
		return p, nil
	}
	blocks := kernels.CeilDiv(planes, tile.planes) * tile.down * tile.across
	if err := kernels.CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	args := append([]any{kernels.In(0), kernels.In(1), kernels.At(kernels.Out, 0), planes}, w.arguments()...)
	for _, d := range w.strides() {
		args = append(args, arith.Divide(d)...)
	}
	p.Launch(poolKernel[dt].maxDiff[poolVariant(w)], int(blocks), poolThreads, append(args, tile.arguments(w)...)...).Shared = int(tile.windows() * 2 * dt.Size())
	return p, nil
}

// poolTile is pool.cu's Tile.
type poolTile struct{ planes, rows, columns, down, across, aroundRows, aroundColumns, high, wide int64 }

// newPoolTile returns a tile with room for a number of windows. It returns false if none fits.
// Its rows and columns are counted from the first element of a window on.
func newPoolTile(w Windows, room int64) (t poolTile, ok bool) {
	around := func(a WindowAxis) int64 { return kernels.CeilDiv(int64(a.Size), int64(a.Stride)) }
	extent := func(a WindowAxis, unit int64) int64 { // in units
		return kernels.CeilDiv(int64(a.In)+int64(a.Before%a.Stride), unit)
	}
	t.aroundRows, t.aroundColumns = around(w.Rows), around(w.Columns)
	unitRows, unitColumns := int64(w.Rows.Stride), int64(w.Columns.Stride)
	if known(w) {
		unitRows = poolStrip
	}
	windowsOf := unitRows / int64(w.Rows.Stride) // of a unit of rows
	if least := (windowsOf + t.aroundRows - 1) * t.aroundColumns; least > room {
		return t, false
	}
	columns := evenly(extent(w.Columns, unitColumns), room/(windowsOf+t.aroundRows-1)-(t.aroundColumns-1))
	t.wide = columns + t.aroundColumns - 1
	rows := evenly(extent(w.Rows, unitRows), (room/t.wide-(t.aroundRows-1))/windowsOf)
	t.high = rows*windowsOf + t.aroundRows - 1
	t.rows, t.columns = rows*unitRows, columns*unitColumns
	t.down, t.across = kernels.CeilDiv(extent(w.Rows, unitRows), rows), kernels.CeilDiv(extent(w.Columns, unitColumns), columns)
	t.planes = 1
	if t.down*t.across == 1 {
		t.planes = max(1, min(room/(t.high*t.wide), poolElements/w.plane()))
	}
	return t, true
}

// windows returns the windows of all planes of a tile.
func (t poolTile) windows() int64 { return t.planes * t.high * t.wide }

// arguments returns the arguments of a kernel that make up its Tile.
func (t poolTile) arguments(w Windows) (args []any) {
	for _, n := range []int64{t.planes, t.rows, t.columns, t.down, t.across, t.aroundRows, t.aroundColumns, t.high, t.wide} {
		args = append(args, int32(n))
	}
	for _, d := range []int64{windowStrips(w, int(t.high)), t.wide, poolStrips(w, int(t.rows)), t.columns} {
		args = append(args, arith.Divide(d)...)
	}
	return args
}

// newPool returns the plan of planes to windows, with no launches yet.
func newPool(name string, dt kernels.Dtype, planes int64, w Windows) (*kernels.Plan, error) {
	p := &kernels.Plan{Op: fmt.Sprintf("%s_%v(%d planes, %+v)", name, dt, planes, w)}
	if err := w.check(1); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	for _, a := range []WindowAxis{w.Rows, w.Columns} {
		if a.Dilation != 1 {
			return nil, fmt.Errorf("kernels: %s: got dilation %d, want 1", p.Op, a.Dilation)
		}
	}
	p.Inputs, p.Out = []int64{planes * w.plane() * dt.Size()}, planes*w.out()*dt.Size()
	p.Flops = p.Out / dt.Size() * w.elements()
	return p, nil
}

// walked is the index of windows of 3 x 3 by 1, whose derivative of a maximum is made by warps that walk: see [Plan.walk].
const walked = 1

// poolVariant returns the index in the arrays of poolKernels of the kernel for windows.
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

// known reports whether windows have a kernel of their own.
func known(w Windows) bool { return poolVariant(w) < 3 }

// poolStrips returns the number of strips of `rows` rows of a plane, windowStrips that of strips of
// `rows` rows of windows.
func poolStrips(w Windows, rows int) int64 {
	if known(w) {
		return kernels.CeilDiv(int64(rows), poolStrip)
	}
	return int64(rows)
}

func windowStrips(w Windows, rows int) int64 {
	if known(w) {
		rows *= w.Rows.Stride
	}
	return poolStrips(w, rows)
}

// strides returns the divisors that kernels need to find the windows of an element.
func (w Windows) strides() []int64 { return []int64{int64(w.Rows.Stride), int64(w.Columns.Stride)} }

// appendPool appends launches of a thread for each column of strips of planes, with the numbers
// that it divides by. All but the derivative of a maximum divide by div.
func appendPool(p *kernels.Plan, k *kernels.Kernel, planes, strips, columns int64, w Windows, div float64, divisors ...int64) *kernels.Plan {
	most := poolMost / (strips * columns) // planes of a launch
	for first := int64(0); first < planes; first += most {
		part := min(planes-first, most)
		var args []any
		for i, bytes := range p.Inputs {
			args = append(args, kernels.At(kernels.Operand(i), bytes/planes*first))
		}
		args = append(args, kernels.At(kernels.Out, p.Out/planes*first), int32(part*strips*columns))
		args = append(args, w.arguments()...)
		if len(p.Inputs) == 1 {
			args = append(args, div)
		}
		for _, d := range append([]int64{strips, columns}, divisors...) {
			args = append(args, arith.Divide(d)...)
		}
		p.Launch(k, int(kernels.CeilDiv(part*strips*columns, poolThreads)), poolThreads, args...)
	}
	return p
}

// poolPlanes returns the number of planes of a launch of strips, given which argument has the total of its threads and which is
// the first of its divisors.
func poolPlanes(c kernels.Call, total, divisors int) int64 {
	return c.Int(total) / (c.Int(divisors) * c.Int(divisors+3))
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

// stripPlanes returns the number of planes of a launch of pool.
func stripPlanes(c kernels.Call) int64 { return poolPlanes(c, 2, 16) }

// maxPoolBody is the Go body of a kernel of a maximum; planes returns the number of planes of a call.
func maxPoolBody[T kernels.Float](planes func(kernels.Call) int64) func(kernels.Call) {
	return func(c kernels.Call) {
		in, out := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1)
		v, h := windowAxes(c, 3)
		forPlanes(planes(c), v.out, h.out, func(plane, y int64) {
			from, to := in[plane*v.in*h.in:], out[(plane*v.out+y)*h.out:][:h.out]
			top, first, last := v.windowed(y)
			for x := range to {
				greatest := least[T]()
				left, lo, hi := h.windowed(int64(x))
				for i := top + first; i < top+last && lo < hi; i++ {
					for _, e := range from[i*h.in+left+lo : i*h.in+left+hi] {
						if e > greatest {
							greatest = e
						}
					}
				}
				to[x] = greatest
			}
		})
	}
}

// eachOf calls f for each element of a window of a plane, with its index.
func eachOf[T kernels.Float](plane []T, v, h axis, y, x int64, f func(at int64, e T)) {
	top, first, last := v.windowed(y)
	left, lo, hi := h.windowed(x)
	for i := top + first; i < top+last; i++ {
		for at := i*h.in + left + lo; at < i*h.in+left+hi; at++ {
			f(at, plane[at])
		}
	}
}

func averagePoolBody[T kernels.Float](c kernels.Call) {
	in, out, div := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1), T(c.Float(15))
	v, h := windowAxes(c, 3)
	forPlanes(stripPlanes(c), v.out, h.out, func(plane, y int64) {
		from, to := in[plane*v.in*h.in:], out[(plane*v.out+y)*h.out:][:h.out]
		for x := range to {
			sum := T(0)
			eachOf(from, v, h, y, int64(x), func(_ int64, e T) { sum += e })
			to[x] = sum / div
		}
	})
}

// maxPoolDiffBody is the Go body of the kernel of tiles, or of the one for windows far apart.
func maxPoolDiffBody[T kernels.Float](far bool) func(kernels.Call) {
	return func(c kernels.Call) {
		in, grad, out, planes := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1), kernels.Slice[T](c, 2), c.Int(3)
		if far {
			planes = poolPlanes(c, 3, 16)
		}
		v, h := windowAxes(c, 4)
		forPlanes(planes, 1, v.in*h.in, func(plane, _ int64) {
			from, to := in[plane*v.in*h.in:], out[plane*v.in*h.in:][:v.in*h.in]
			clear(to)
			for o := range v.out * h.out {
				greatest, place := least[T](), int64(-1)
				eachOf(from, v, h, o/h.out, o%h.out, func(at int64, e T) {
					if e > greatest {
						greatest, place = e, at
					}
				})
				if place >= 0 {
					to[place] += grad[plane*v.out*h.out+o]
				}
			}
		})
	}
}

func averagePoolDiffBody[T kernels.Float](c kernels.Call) {
	grad, out, div := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1), T(c.Float(15))
	v, h := windowAxes(c, 3)
	forPlanes(stripPlanes(c), 1, v.in*h.in, func(plane, _ int64) {
		to := out[plane*v.in*h.in:][:v.in*h.in]
		clear(to)
		for o := range v.out * h.out {
			slope := grad[plane*v.out*h.out+o]
			eachOf(to, v, h, o/h.out, o%h.out, func(at int64, _ T) { to[at] += slope })
		}
		for i := range to {
			to[i] /= div
		}
	})
}
