package attention

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// A block of attention_mma.cu has mmaThreads threads and mmaTile rows of its own.
const (
	mmaThreads = 128
	mmaTile    = 64
)

var (
	mmaForward = halves("attention_mma", "attention_mma", forward[float32])
	mmaDQ      = halves("attention_mma", "attention_mma_dq", gradientOfQueries[float32])
	mmaDKV     = halves("attention_mma", "attention_mma_dkv", gradientOfKeys[float32])
)

// halfKernels are kernels of 16-bit operands by the width of rows that they are for, 64 and 128, and element type.
type halfKernels [2]map[kernels.Dtype]*kernels.Kernel

// halves returns the kernels prefix + width + type of a source.
func halves[A any](stem, prefix string, body func(kernels.Call, kernels.Dtype, A)) (list halfKernels) {
	for i := range list {
		list[i] = map[kernels.Dtype]*kernels.Kernel{}
		for _, dt := range []kernels.Dtype{expr.BF16, expr.F16} {
			list[i][dt] = own.Kernel(stem, fmt.Sprintf("%s_%d_%v", prefix, 64<<i, dt), func(c kernels.Call) { body(c, dt, kernels.Args[A](c)) })
		}
	}
	return list
}

func (k halfKernels) of(p Problem) *kernels.Kernel { return k[p.wide()][p.Dtype] }

// wide is 1 for kernels of rows of more than 64 elements.
func (p Problem) wide() int64 { return (p.Dim - 1) / 64 }

// tileBytes is the shared memory of a tile of rows.
func (p Problem) tileBytes(rows int64) int64 { return rows * 64 * (p.wide() + 1) * 2 }

// inPieces reports whether the kernels of tensor cores compute the problem on some device: 16-bit operands, rows of whole 16-byte pieces, and a positive scale, since they take the maximum before
// they scale.
func (p Problem) inPieces() bool {
	return p.Dtype.Size() == 2 && p.Dim <= 128 && p.rowsInPieces() && p.Scale > 0
}

// rowsInPieces reports whether each row of q, k and v is whole 16-byte pieces of memory.
func (p Problem) rowsInPieces() bool {
	for _, in := range p.inputs() {
		if (in.Batch|in.Head|in.Row|p.Dim)*p.Dtype.Size()%16 != 0 {
			return false
		}
	}
	return true
}

// byMMA reports whether the kernels of attention_mma.cu compute the problem on a device: the PTX that devices without an image load has no tensor cores.
func (p Problem) byMMA(dev kernels.Device) bool {
	return dev.Kind == kernels.GPU && (dev.Major == 8 || dev.HasClusters()) && p.inPieces()
}
