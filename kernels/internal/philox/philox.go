// Package philox generates blocks of random words: Philox4x32-10 (Salmon and others, 2011).
package philox

import "math/bits"

// The constants of Philox4x32-10.
const (
	Rounds = 10
	M0     = 0xD2511F53
	M1     = 0xCD9E8D57
	W0     = 0x9E3779B9
	W1     = 0xBB67AE85
)

// Block returns block number b of a stream in a run, for the key of a seed.
func Block(key [2]uint32, stream, run uint32, b uint64) [4]uint32 {
	c := [4]uint32{uint32(b), uint32(b >> 32), stream, run}
	for range Rounds {
		hi0, lo0 := bits.Mul32(M0, c[0])
		hi1, lo1 := bits.Mul32(M1, c[2])
		c = [4]uint32{hi1 ^ c[1] ^ key[0], lo1, hi0 ^ c[3] ^ key[1], lo0}
		key[0] += W0
		key[1] += W1
	}
	return c
}
