package attention

import (
	"fmt"
	"math/bits"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// A block of attention_mma.cuh has mmaThreads threads and tiles of mmaTile rows of its own.
const (
	mmaThreads = 128
	mmaTile    = 64
)

var (
	mmaForward = mma("attention_mma", forward[float32], mmaRows{1, []int64{64, 64, 32}, []int64{64, 32}, 1})
	mmaDQ      = mma("attention_mma_dq", gradientOfQueries[float32], mmaRows{2, []int64{64, 64, 16}, []int64{32, 16}, 1})
	mmaDKV     = mma("attention_mma_dkv", gradientOfKeys[float32], mmaRows{2, []int64{64, 32, 16}, []int64{32, 16}, 2})
)

// tensorKernels are kernels of tensor cores by the width of rows that they are for, 64, 128 and 256, and kind of operands: bf16, f16, tf32, f32.
type tensorKernels [3]map[string]*kernels.Kernel

func (k tensorKernels) of(p *Problem) *kernels.Kernel { return k[p.width()][p.kind()] }

// add adds the kernels prefix + width + kind of the sources with these stems, one for each of the first widths, for operands of a type.
func add[A any](k *tensorKernels, stems []string, prefix, kind string, dt kernels.Dtype, body func(kernels.Call, kernels.Dtype, A)) {
	for i, stem := range stems {
		if k[i] == nil {
			k[i] = map[string]*kernels.Kernel{}
		}
		k[i][kind] = own.Kernel(stem, fmt.Sprintf("%s_%d_%s", prefix, 64<<i, kind), func(c kernels.Call) { body(c, dt, kernels.Args[A](c)) })
	}
}

// halves returns the kernels of 16-bit operands of the sources with these stems, one for each of the first widths.
func halves[A any](stems []string, prefix string, body func(kernels.Call, kernels.Dtype, A)) (k tensorKernels) {
	for _, dt := range []kernels.Dtype{expr.BF16, expr.F16} {
		add(&k, stems, prefix, dt.String(), dt, body)
	}
	return k
}

// mmaKernels are kernels of attention_mma.cuh.
type mmaKernels struct {
	tensorKernels
	mmaRows
}

// mmaRows says what a block has in shared memory: own tiles of mmaTile rows, and two stages of two tiles of half or, of float32, whole rows, by the width of rows. Of rows of 256 elements,
// wideBlocks blocks compute a tile.
type mmaRows struct {
	own         int64
	half, whole []int64
	wideBlocks  int64
}

func mma[A any](prefix string, body func(kernels.Call, kernels.Dtype, A), rows mmaRows) mmaKernels {
	stems := []string{"attention_mma", "attention_mma", "attention_mma_wide"}
	k := halves(stems, prefix, body)
	for _, kind := range []string{"tf32", "f32"} { // the Go body computes in float32
		add(&k, stems[1:], prefix, kind, kernels.Float32, body)
	}
	return mmaKernels{k, rows}
}

// blocks is the number of blocks for each tile of rows.
func (r mmaRows) blocks(p *Problem) int64 {
	if p.width() == 2 {
		return r.wideBlocks
	}
	return 1
}

// shared is the shared memory of a block.
func (r mmaRows) shared(p *Problem) int64 {
	rows := r.half
	if p.Dtype == kernels.Float32 {
		rows = r.whole
	}
	return p.tileBytes(r.own*mmaTile + 4*rows[p.width()])
}

// kind names the kind of operands of kernels of tensor cores.
func (p *Problem) kind() string {
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

// width selects kernels of rows of up to 64 elements (0), 128 (1) or 256 (2).
func (p *Problem) width() int { return bits.Len64(uint64(p.Dim-1) / 64) }

// tileBytes is the shared memory of a tile of rows.
func (p *Problem) tileBytes(rows int64) int64 { return rows << p.width() * 64 * p.Dtype.Size() }

// inPieces reports whether the kernels of tensor cores compute the problem on some device: elements of at most 32 bits, rows of whole 16-byte pieces, of at most 128 elements in float32, and
// a positive scale, since they take the maximum before they scale.
func (p *Problem) inPieces() bool {
	return (p.Dtype.Size() == 2 || p.Dtype == kernels.Float32 && p.Dim <= 128) && p.rowsInPieces() && p.Scale > 0
}

// rowsInPieces reports whether each row of q, k and v is whole 16-byte pieces of memory.
func (p *Problem) rowsInPieces() bool {
	for _, in := range p.inputs() {
		if (in.Batch|in.Head|in.Row|p.Dim)*p.Dtype.Size()%16 != 0 {
			return false
		}
	}
	return true
}

// byMMA reports whether the kernels of attention_mma.cuh compute the problem on a device: the PTX that devices without an image load has no tensor cores. Three products of TF32 for one of
// float32 are faster than FMA units on 8.0 and 9.0 alone.
func (p *Problem) byMMA(dev kernels.Device) bool {
	if p.kind() == "f32" && (dev.Major > 9 || dev.Minor > 0) {
		return false
	}
	return dev.Kind == kernels.GPU && (dev.Major == 8 || dev.HasClusters()) && p.inPieces()
}
