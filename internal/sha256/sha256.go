// Package sha256 computes SHA-256 of a few bytes, such as the text of a kernel. Package crypto/sha256 is several times as fast, and makes a program
// 0.15 MB larger: it brings the ciphers and the random generator of Go's FIPS 140 module.
package sha256

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Size is the number of bytes of a hash.
const Size = 32

const blockSize = 64

// start and rounds are the first 32 bits of the fractions of the square roots of 8 primes, and of the cube roots of 64.
var start, rounds = func() (s [8]uint32, r [64]uint32) {
	fraction := func(x float64) uint32 { return uint32((x - math.Floor(x)) * (1 << 32)) }
	n := 0
	for p := 2; n < len(r); p++ {
		prime := true
		for d := 2; d < p; d++ {
			prime = prime && p%d != 0
		}
		if !prime {
			continue
		}
		if n < len(s) {
			s[n] = fraction(math.Sqrt(float64(p)))
		}
		r[n] = fraction(math.Cbrt(float64(p)))
		n++
	}
	return s, r
}()

// Sum256 returns the hash of data.
func Sum256(data []byte) (sum [Size]byte) {
	h := start
	whole := len(data) / blockSize * blockSize
	for at := 0; at < whole; at += blockSize {
		compress(&h, data[at:])
	}
	tail := append(make([]byte, 0, 2*blockSize), data[whole:]...)
	tail = append(tail, 0x80)
	for len(tail)%blockSize != blockSize-8 {
		tail = append(tail, 0)
	}
	tail = binary.BigEndian.AppendUint64(tail, 8*uint64(len(data)))
	for at := 0; at < len(tail); at += blockSize {
		compress(&h, tail[at:])
	}
	for i, v := range h {
		binary.BigEndian.PutUint32(sum[4*i:], v)
	}
	return sum
}

// compress adds a block to a state.
func compress(state *[8]uint32, block []byte) {
	var w [64]uint32
	for i := range 16 {
		w[i] = binary.BigEndian.Uint32(block[4*i:])
	}
	turn := func(x uint32, n int) uint32 { return bits.RotateLeft32(x, -n) }
	for i := 16; i < 64; i++ {
		x, y := w[i-15], w[i-2]
		w[i] = w[i-16] + w[i-7] + (turn(x, 7) ^ turn(x, 18) ^ x>>3) + (turn(y, 17) ^ turn(y, 19) ^ y>>10)
	}
	a, b, c, d, e, f, g, h := state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7]
	for i := range 64 {
		x := h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + (e&f ^ ^e&g) + rounds[i] + w[i]
		y := (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + (a&b ^ a&c ^ b&c)
		a, b, c, d, e, f, g, h = x+y, a, b, c, d+x, e, f, g
	}
	for i, v := range [8]uint32{a, b, c, d, e, f, g, h} {
		state[i] += v
	}
}
