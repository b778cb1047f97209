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
	mmaForward = halves("attention_mma", "attention_mma", portable(forward[float32]))
	mmaDQ      = halves("attention_mma", "attention_mma_dq", portable(gradientOfQueries[float32]))
	mmaDKV     = halves("attention_mma", "attention_mma_dkv", portable(gradientOfKeys[float32]))
)

// halfKernels are kernels of 16-bit operands by the width of rows that they are for, 64 and 128, and element type.
type halfKernels [2]map[kernels.Dtype]*kernels.Kernel

// halves returns the kernels prefix + width + type of a source.
func halves(stem, prefix string, body func(kernels.Dtype) func(kernels.Call)) (list halfKernels) {
	for i := range list {
		list[i] = map[kernels.Dtype]*kernels.Kernel{}
		for _, dt := range []kernels.Dtype{expr.BF16, expr.F16} {
			list[i][dt] = own.Kernel(stem, fmt.Sprintf("%s_%d_%v", prefix, 64<<i, dt), body(dt))
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
	return p.Dtype.Size() == 2 && p.Dim <= 128 && p.Dim%8 == 0 && p.Scale > 0
}

// byMMA reports whether the kernels of attention_mma.cu compute the problem on a device: the PTX that devices without an image load has no tensor cores.
func (p Problem) byMMA(dev kernels.Device) bool {
	return dev.Kind == kernels.GPU && (dev.Major == 8 || dev.HasClusters()) && p.inPieces()
}

// form is a kernel of one of the sources, which take the same arguments, with the rows of a block.
type form struct {
	kernel  *kernels.Kernel
	rows    int64
	threads int
	shared  int64
}

// launch launches a block for each tile of rows of heads.
func (f form) launch(p *kernels.Plan, heads, rows int64, args any) {
	p.Launch(f.kernel, int(heads*kernels.CeilDiv(rows, f.rows)), f.threads, args).Shared = int(f.shared)
}

// choose returns the kernel of tensor cores, whose blocks have that many tiles of 64 rows in shared memory, or the portable one.
func (p Problem) choose(dev kernels.Device, mma halfKernels, tiles int64, other byDim) form {
	if p.byMMA(dev) {
		return form{mma.of(p), mmaTile, mmaThreads, tiles * p.tileBytes(mmaTile)}
	}
	return form{other.of(p), 16 * tileRows[p.Dtype], portableThreads, 0}
}
