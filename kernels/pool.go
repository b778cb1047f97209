package kernels

import (
	"fmt"
	"math"
	"unsafe"
)

// poolKernels are for windows of 2 x 2, of 3 x 3, and others; those of derivatives for
// elements that are in one window along an axis, in two at most, and others.
type poolKernels struct{ max, average, maxDiff, averageDiff [3]*Kernel }

var poolKernel = [...]poolKernels{Float32: poolOf[float32](Float32), Float64: poolOf[float64](Float64)}

func poolOf[T Float](dt Dtype) (k poolKernels) {
	for i, size := range []string{"2x2_", "3x3_", ""} {
		k.max[i] = own.Kernel("pool", fmt.Sprintf("pool_max_%s%v", size, dt), maxPoolBody[T])
		k.average[i] = own.Kernel("pool", fmt.Sprintf("pool_average_%s%v", size, dt), averagePoolBody[T])
	}
	for i, most := range []string{"1_", "2_", ""} {
		k.maxDiff[i] = own.Kernel("pool", fmt.Sprintf("pool_max_diff_%s%v", most, dt), maxPoolDiffBody[T])
		k.averageDiff[i] = own.Kernel("pool", fmt.Sprintf("pool_average_diff_%s%v", most, dt), averagePoolDiffBody[T])
	}
	return k
}

// Blocks of pool.cu: threads, and the elements of a thread, those of derivatives by kernel.
const (
	poolThreads = 256
	poolEach    = 4
)

var poolDiffEach = [...]int64{4, 2, 1}

// MaxPool plans the greatest element of each window of planes: the first one by > that
// no later one exceeds, from the least finite number on. Elements outside of the plane
// are left out.
func MaxPool(dev Device, dt Dtype, planes int64, w Windows) (*Plan, error) {
	p, err := newPool("maxpool", dt, planes, w)
	if err == nil {
		err = p.pool(poolKernel[dt].max[poolVariant(w)], poolEach, p.Out/dt.Size(), w, 1, w.out(), int64(w.Columns.Out()))
	}
	return p, err
}

// AveragePool plans the sum of each window of planes, in the order in which its
// elements lie, divided by div. Elements outside of the plane are left out.
func AveragePool(dev Device, dt Dtype, planes int64, w Windows, div float64) (*Plan, error) {
	p, err := newPool("averagepool", dt, planes, w)
	if err == nil {
		err = p.pool(poolKernel[dt].average[poolVariant(w)], poolEach, p.Out/dt.Size(), w, div, w.out(), int64(w.Columns.Out()))
	}
	return p, err
}

// MaxPoolDiff plans the derivative of [MaxPool] by its input. Inputs are that, the
// output, and the derivative by the output: each element of this goes to the window's
// greatest element, the first of equal ones.
func MaxPoolDiff(dev Device, dt Dtype, planes int64, w Windows) (*Plan, error) {
	p, err := newPool("maxpooldiff", dt, planes, w)
	if err != nil {
		return nil, err
	}
	x, y, overlap := p.Inputs[0], p.Out, poolOverlap(w)
	p.Inputs, p.Out = []int64{x, y, y}, x
	return p, p.pool(poolKernel[dt].maxDiff[overlap], poolDiffEach[overlap], x/dt.Size(), w, 1, w.plane(), int64(w.Columns.In), int64(w.Rows.Stride), int64(w.Columns.Stride))
}

// AveragePoolDiff plans the derivative of [AveragePool] by its input, from that by its
// output.
func AveragePoolDiff(dev Device, dt Dtype, planes int64, w Windows, div float64) (*Plan, error) {
	p, err := newPool("averagepooldiff", dt, planes, w)
	if err != nil {
		return nil, err
	}
	overlap := poolOverlap(w)
	p.Inputs[0], p.Out = p.Out, p.Inputs[0]
	return p, p.pool(poolKernel[dt].averageDiff[overlap], poolDiffEach[overlap], p.Out/dt.Size(), w, div, w.plane(), int64(w.Columns.In), int64(w.Rows.Stride), int64(w.Columns.Stride))
}

// newPool returns a plan of planes to windows without launches.
func newPool(name string, dt Dtype, planes int64, w Windows) (*Plan, error) {
	p := &Plan{Op: fmt.Sprintf("%s_%v(%d planes, %+v)", name, dt, planes, w)}
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

// poolVariant returns the place in poolKernels of the kernel for a size.
func poolVariant(w Windows) int {
	switch size := [2]int{w.Rows.Size, w.Columns.Size}; size {
	case [2]int{2, 2}:
		return 0
	case [2]int{3, 3}:
		return 1
	}
	return 2
}

// poolOverlap returns the place in poolKernels of the kernel for the number of windows
// that have an element.
func poolOverlap(w Windows) int {
	along := func(a WindowAxis) int64 { return CeilDiv(int64(a.Size), int64(a.Stride)) }
	return int(min(max(along(w.Rows), along(w.Columns)), 3)) - 1
}

// pool appends the launch that computes so many elements, each of a thread, with the
// numbers that it divides by. Averages have a divisor of their own.
func (p *Plan) pool(k *Kernel, each, elements int64, w Windows, div float64, divisors ...int64) error {
	if elements == 0 {
		return nil
	}
	blocks := CeilDiv(elements, poolThreads*each)
	if err := CheckGrid(blocks); err != nil {
		return fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	var args []any
	for i := range p.Inputs {
		args = append(args, Ref{Operand(i), 0})
	}
	args = append(args, Ref{Out, 0}, elements)
	args = append(args, w.arguments()...)
	if len(p.Inputs) == 1 {
		args = append(args, div)
	}
	for _, d := range divisors {
		args = append(args, divideBy(d)...)
	}
	p.Launch(k, int(blocks), poolThreads, args...)
	return nil
}

// forPlanes calls f for rows of planes of that many, from lo to hi.
func forPlanes(planes, rows, columns int64, f func(plane, row int64)) {
	Parallel(planes*rows, max(Grain/columns, 1), func(lo, hi int64) {
		for at := lo; at < hi; at++ {
			f(at/rows, at%rows)
		}
	})
}

// least returns the least finite number.
func least[T Float]() T {
	if unsafe.Sizeof(T(0)) == 4 {
		return T(-math.MaxFloat32)
	}
	most := math.MaxFloat64
	return T(-most)
}

func maxPoolBody[T Float](c Call) {
	in, out := Slice[T](c, 0), Slice[T](c, 1)
	v, h := windowAxes(c, 3)
	forPlanes(c.Int(2)/(v.out*h.out), v.out, h.out, func(plane, y int64) {
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

// eachOf calls f for the elements of a window of a plane, each with its place, until it
// returns false.
func eachOf[T Float](plane []T, v, h axis, y, x int64, f func(at int64, e T) bool) {
	top, first, last := v.windowed(y)
	left, lo, hi := h.windowed(x)
	for i := top + first; i < top+last; i++ {
		for at := i*h.in + left + lo; at < i*h.in+left+hi; at++ {
			if !f(at, plane[at]) {
				return
			}
		}
	}
}

func averagePoolBody[T Float](c Call) {
	in, out, div := Slice[T](c, 0), Slice[T](c, 1), T(c.Float(15))
	v, h := windowAxes(c, 3)
	forPlanes(c.Int(2)/(v.out*h.out), v.out, h.out, func(plane, y int64) {
		from, to := in[plane*v.in*h.in:], out[(plane*v.out+y)*h.out:][:h.out]
		for x := range to {
			sum := T(0)
			eachOf(from, v, h, y, int64(x), func(_ int64, e T) bool { sum += e; return true })
			to[x] = sum / div
		}
	})
}

func maxPoolDiffBody[T Float](c Call) {
	in, pooled, grad, out := Slice[T](c, 0), Slice[T](c, 1), Slice[T](c, 2), Slice[T](c, 3)
	v, h := windowAxes(c, 5)
	forPlanes(c.Int(4)/(v.in*h.in), 1, v.in*h.in, func(plane, _ int64) {
		from, to := in[plane*v.in*h.in:], out[plane*v.in*h.in:][:v.in*h.in]
		clear(to)
		for o := range v.out * h.out {
			greatest := pooled[plane*v.out*h.out+o]
			if greatest == least[T]() {
				continue
			}
			eachOf(from, v, h, o/h.out, o%h.out, func(at int64, e T) bool {
				if e == greatest {
					to[at] += grad[plane*v.out*h.out+o]
				}
				return e != greatest
			})
		}
	})
}

func averagePoolDiffBody[T Float](c Call) {
	grad, out, div := Slice[T](c, 0), Slice[T](c, 1), T(c.Float(15))
	v, h := windowAxes(c, 3)
	forPlanes(c.Int(2)/(v.in*h.in), 1, v.in*h.in, func(plane, _ int64) {
		to := out[plane*v.in*h.in:][:v.in*h.in]
		clear(to)
		for o := range v.out * h.out {
			slope := grad[plane*v.out*h.out+o]
			eachOf(to, v, h, o/h.out, o%h.out, func(at int64, _ T) bool { to[at] += slope; return true })
		}
		for i := range to {
			to[i] /= div
		}
	})
}
