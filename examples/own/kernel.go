package own

import (
	"embed"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

//go:embed images *.cu
var files embed.FS

var library = kernels.NewLibrary("example.com/own", files)

// A kernel is an entry point of swish.cu and a Go function of the same arguments.
var (
	swishKernel = library.Pair("swish", "swish", swishBody[float32], swishBody[float64])
	gradKernel = library.Pair("swish", "swish_grad", gradBody[float32], gradBody[float64])
)

func swishBody[T kernels.Float](c kernels.Call) {
	x, out := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1)
	for i := range c.Int(2) {
		out[i] = T(float64(x[i]) * sigmoid(float64(x[i])))
	}
}

func gradBody[T kernels.Float](c kernels.Call) {
	x, g, out := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1), kernels.Slice[T](c, 2)
	for i := range c.Int(3) {
		s := sigmoid(float64(x[i]))
		out[i] = T(float64(g[i]) * s * (1 + float64(x[i])*(1-s)))
	}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// plan launches a kernel over n elements of each input: blocks of 256 threads,
// 16 for each multiprocessor at most, which then take further turns.
func plan(name string, k *kernels.Kernel, dev kernels.Device, dt kernels.Dtype, inputs int, n int64) *kernels.Plan {
	p := &kernels.Plan{Op: fmt.Sprintf("%s_%v(%d)", name, dt, n), Out: n * dt.Size(), Flops: 4 * n}
	var args []any
	for i := range inputs {
		p.Inputs = append(p.Inputs, n*dt.Size())
		args = append(args, kernels.Ref{Operand: kernels.Operand(i)})
	}
	args = append(args, kernels.Ref{Operand: kernels.Out}, n)
	if n > 0 {
		p.Launch(k, int(min(kernels.CeilDiv(n, 256), int64(16*dev.SMs))), 256, args...)
	}
	return p
}
