package attention

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// A block of attention_mma.cuh has mmaThreads threads and tiles of mmaTile rows of its own.
const (
	mmaThreads = 128
	mmaTile    = 64
)

var (
	mmaForward = mma("attention_mma", forward[float32], mmaRows{1, [2]int64{64, 64}, [2]int64{64, 32}})
	mmaDQ      = mma("attention_mma_dq", gradientOfQueries[float32], mmaRows{2, [2]int64{64, 64}, [2]int64{32, 16}})
	mmaDKV     = mma("attention_mma_dkv", gradientOfKeys[float32], mmaRows{2, [2]int64{64, 32}, [2]int64{32, 16}})
)

// tensorKernels are kernels of tensor cores by the width of rows that they are for, 64 and 128, and kind of operands: bf16, f16, tf32, f32.
type tensorKernels [2]map[string]*kernels.Kernel

func (k tensorKernels) of(p Problem) *kernels.Kernel { return k[p.wide()][p.kind()] }

// add adds the kernels prefix + width + kind of a source, for operands of a type.
func add[A any](k *tensorKernels, stem, prefix, kind string, dt kernels.Dtype, body func(kernels.Call, kernels.Dtype, A)) {
	for i := range k {
		if k[i] == nil {
			k[i] = map[string]*kernels.Kernel{}
		}
		k[i][kind] = own.Kernel(stem, fmt.Sprintf("%s_%d_%s", prefix, 64<<i, kind), func(c kernels.Call) { body(c, dt, kernels.Args[A](c)) })
	}
}

// halves returns the kernels of 16-bit operands of a source.
func halves[A any](stem, prefix string, body func(kernels.Call, kernels.Dtype, A)) (k tensorKernels) {
	for _, dt := range []kernels.Dtype{expr.BF16, expr.F16} {
		add(&k, stem, prefix, dt.String(), dt, body)
	}
	return k
}

// mmaKernels are kernels of attention_mma.cuh.
type mmaKernels struct {
	tensorKernels
	mmaRows
}

// mmaRows says what a block has in shared memory: own tiles of mmaTile rows, and two stages of two tiles of half or, of float32, whole rows, by the width of rows.
type mmaRows struct {
	own         int64
	half, whole [2]int64
}

func mma[A any](prefix string, body func(kernels.Call, kernels.Dtype, A), rows mmaRows) mmaKernels {
	k := halves("attention_mma", prefix, body)
	for _, kind := range []string{"tf32", "f32"} { // the Go body computes in float32
		add(&k, "attention_mma_float", prefix, kind, kernels.Float32, body)
	}
	return mmaKernels{k, rows}
}

// shared is the shared memory of a block.
func (r mmaRows) shared(p Problem) int64 {
	rows := r.half[p.wide()]
	if p.Dtype == kernels.Float32 {
		rows = r.whole[p.wide()]
	}
	return p.tileBytes(r.own*mmaTile + 4*rows)
}

// kind names the kind of operands of kernels of tensor cores.
func (p Problem) kind() string {
	if p.Dtype == kernels.Float32 && p.Round != kernels.FullPrecision {
		return "tf32"
	}
	return p.Dtype.String()
}

// Rounded returns Forward or Backward p with operands that may be rounded, and false if these are not of float32.
func Rounded(p kernels.Planner, by kernels.Precision) (_ kernels.Planner, ok bool) {
	switch p := p.(type) {
	case Forward:
		p.Round = by
		return p, p.Dtype == kernels.Float32
	case Backward:
		p.Round = by
		return p, p.Dtype == kernels.Float32
	}
	return nil, false
}

// wide is 1 for kernels of rows of more than 64 elements.
func (p Problem) wide() int64 { return (p.Dim - 1) / 64 }

// tileBytes is the shared memory of a tile of rows.
func (p Problem) tileBytes(rows int64) int64 { return rows * 64 * (p.wide() + 1) * p.Dtype.Size() }

// inPieces reports whether the kernels of tensor cores compute the problem on some device: elements of at most 32 bits, rows of whole 16-byte pieces, and a positive scale, since they take
// the maximum before they scale.
func (p Problem) inPieces() bool {
	return p.Dtype != kernels.Float64 && p.Dim <= 128 && p.rowsInPieces() && p.Scale > 0
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

// byMMA reports whether the kernels of attention_mma.cuh compute the problem on a device: the PTX that devices without an image load has no tensor cores. Three products of TF32 for one of
// float32 are faster than FMA units on 8.0 and 9.0 alone.
func (p Problem) byMMA(dev kernels.Device) bool {
	if p.kind() == "f32" && (dev.Major > 9 || dev.Minor > 0) {
		return false
	}
	return dev.Kind == kernels.GPU && (dev.Major == 8 || dev.HasClusters()) && p.inPieces()
}
