package kernels

import "fmt"

var addKernel = [...]*Kernel{
	Float32: own.Kernel("add", "add_f32", AddBody[float32]),
	Float64: own.Kernel("add", "add_f64", AddBody[float64]),
}

// Add plans out[i] = a[i] + b[i] for n elements.
func Add(dev Device, dt Dtype, n int64) *Plan {
	size := n * dt.Size()
	p := &Plan{Op: fmt.Sprintf("add_%v(%d)", dt, n), Inputs: []int64{size, size}, Out: size, Flops: n}
	if n > 0 {
		p.stream(addKernel[dt], streaming.on(dev), n*dt.Size(), Ref{0, 0}, Ref{1, 0}, Ref{Out, 0}, n)
	}
	return p
}

// AddBody is the Go body of kernels that compute out[i] = a[i] + b[i] for n
// elements; the arguments are a, b, out, n.
func AddBody[T Float](c Call) {
	a, b, out := Slice[T](c, 0), Slice[T](c, 1), Slice[T](c, 2)
	Parallel(c.Int(3), Grain, func(lo, hi int64) {
		a, b, out := a[lo:hi], b[lo:hi], out[lo:hi]
		for i := range out {
			out[i] = a[i] + b[i]
		}
	})
}
