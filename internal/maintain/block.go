package maintain

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
)

// Block holds random numbers in [-1, 1) and random bytes, from which inputs of any size are
// made by repetition.
type Block struct {
	F32 []float32
	f64 []float64
	u8  []uint8
}

// Lengths of blocks, longer than the caches of a GPU or of a processor core, and primes,
// which no power of two divides.
const (
	BlockOfGPU  = 40_000_003
	BlockOfHost = 4_000_037
)

// NewBlock makes a block of n numbers of each type from a seed.
func NewBlock(seed uint64, n int) Block {
	r := rand.New(rand.NewPCG(seed, 0))
	var key [32]byte
	b := Block{make([]float32, n), make([]float64, n), make([]uint8, n)}
	binary.LittleEndian.PutUint64(key[:], seed)
	rand.NewChaCha8(key).Read(b.u8) // reads always fill the slice
	for i := range n {
		b.f64[i] = 2*r.Float64() - 1
		b.F32[i] = float32(b.f64[i])
	}
	return b
}

// Fill returns n bytes of elements for input i of an op; inputs differ.
func (b Block) Fill(dt kernels.Dtype, n int64, i int) []byte {
	switch dt {
	case kernels.Float32:
		return kernels.Bytes(repeat(b.F32, n/4, i))
	case kernels.Uint8:
		return repeat(b.u8, n, i)
	}
	return kernels.Bytes(repeat(b.f64, n/8, i))
}

func repeat[T kernels.Element](block []T, n int64, i int) []T {
	s := make([]T, n)
	kernels.Parallel(n, 1, func(lo, hi int64) {
		for at := (lo + int64(i)*1_000_003) % int64(len(block)); lo < hi; at = 0 {
			lo += int64(copy(s[lo:hi], block[at:]))
		}
	})
	return s
}
