package own

import (
	"embed"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

//go:embed images *.cu
var files embed.FS

var library = kernels.NewLibrary("example.com/own", files)

// A kernel is an entry point of swish.cu and a Go function of the same arguments.
var (
	swishKernel = library.Pair("swish", "swish", swishBody[float32], swishBody[float64])
	gradKernel  = library.Pair("swish", "swish_grad", gradBody[float32], gradBody[float64])
)

// Arguments of the kernels, in the order of their parameters.
type (
	swishArgs struct {
		X, Out kernels.Ref
		N      int64
	}
	gradArgs struct {
		X, G, Out kernels.Ref
		N         int64
	}
)

func swishBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[swishArgs](c)
	x, out := kernels.Slice[T](c, args.X), kernels.Slice[T](c, args.Out)
	for i := range args.N {
		out[i] = T(float64(x[i]) * sigmoid(float64(x[i])))
	}
}

func gradBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[gradArgs](c)
	x, g, out := kernels.Slice[T](c, args.X), kernels.Slice[T](c, args.G), kernels.Slice[T](c, args.Out)
	for i := range args.N {
		s := sigmoid(float64(x[i]))
		out[i] = T(float64(g[i]) * s * (1 + float64(x[i])*(1-s)))
	}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func swishPlan(dev kernels.Device, dt kernels.Dtype, n int64) *kernels.Plan {
	return plan("swish", swishKernel[dt], dev, dt, 1, n, swishArgs{kernels.In(0), kernels.At(kernels.Out, 0), n})
}

func gradPlan(dev kernels.Device, dt kernels.Dtype, n int64) *kernels.Plan {
	return plan("swish_grad", gradKernel[dt], dev, dt, 2, n, gradArgs{kernels.In(0), kernels.In(1), kernels.At(kernels.Out, 0), n})
}

// plan launches a kernel over n elements of each input: blocks of 256 threads,
// at most 16 for each SM. Each thread then computes several elements.
func plan(name string, k *kernels.Kernel, dev kernels.Device, dt kernels.Dtype, inputs int, n int64, args any) *kernels.Plan {
	size := n * dt.Size()
	p := &kernels.Plan{Op: fmt.Sprintf("%s_%v(%d)", name, dt, n), Inputs: slices.Repeat([]int64{size}, inputs), Out: size, Flops: 4 * n}
	if n > 0 {
		p.Launch(k, int(min(kernels.CeilDiv(n, 256), int64(16*dev.SMs))), 256, args)
	}
	return p
}
