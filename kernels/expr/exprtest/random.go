package exprtest

import (
	"github.com/stheno-ml/stheno/kernels/expr"
	"pgregory.net/rapid"
)

// drawStream makes a view, some of the time, one of random numbers, and fills the buffer with them.
func (m *Map) drawStream(t *rapid.T, d expr.Dtype, v *View, buffer []uint64) {
	if !d.IsFloat() || v.Bounds.To > 0 || rapid.IntRange(0, 3).Draw(t, "random") > 0 {
		return
	}
	if m.State[1] == 0 { // not drawn yet; a float64 holds both
		m.State = [2]int64{rapid.Int64Range(-1<<50, 1<<50).Draw(t, "seed"), rapid.Int64Range(1, 1<<40).Draw(t, "run")}
	}
	v.Stream.Number, v.Elements = rapid.IntRange(1, 1000).Draw(t, "stream"), 2
	for k := range buffer {
		buffer[k] = bitsOf(d, Random(d, m.State[0], m.State[1], v.Stream.Number, uint64(k)))
	}
}

// Random returns a random number in [0, 1) as the elements of views with a stream are.
func Random(d expr.Dtype, seed, run int64, stream int, number uint64) float64 {
	counter := func(block uint64) [4]uint32 {
		return [4]uint32{uint32(block), uint32(block >> 32), uint32(stream), uint32(run)}
	}
	key := [2]uint32{uint32(seed), uint32(uint64(seed) >> 32)}
	if d == expr.Float32 {
		return float64(Philox(counter(number/4), key)[number%4]>>8) / (1 << 24)
	}
	w := Philox(counter(number/2), key)
	lower, upper := uint64(w[number%2*2]), uint64(w[number%2*2+1])
	return float64(upper<<21|lower>>11) / (1 << 53)
}

// Philox is Philox4x32-10, as Random123 defines it.
func Philox(x [4]uint32, key [2]uint32) [4]uint32 {
	for round := range uint32(10) {
		left, right := 0xD2511F53*uint64(x[0]), 0xCD9E8D57*uint64(x[2])
		x[0], x[1] = x[1]^uint32(right>>32)^(key[0]+round*0x9E3779B9), uint32(right)
		x[2], x[3] = x[3]^uint32(left>>32)^(key[1]+round*0xBB67AE85), uint32(left)
	}
	return x
}
