// Package accuracy holds products of float32 matrices whose errors are compared with those of other libraries. The operands
// follow from a few numbers, so that another program (bench/accuracy_peers.py) computes with the very same ones; errors are
// against float64.
package accuracy

import (
	"fmt"
	"math"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
)

// Case is C = A B of M x K and K x N elements.
type Case struct {
	Operands string `json:"operands"` // in words
	A        string `json:"a"`        // kinds of elements, see [Case.Matrices]
	B        string `json:"b"`
	M        int64  `json:"m"`
	N        int64  `json:"n"`
	K        int64  `json:"k"`
	// Exact is set if float32 arithmetic in any order gives the exact result.
	Exact bool `json:"exact"`
	// Sums are checksums of A and B, see [Sum].
	Sums [2]uint64 `json:"sums"`
}

// Name names the case.
func (c Case) Name() string { return fmt.Sprintf("%s, %d x %d x %d", c.Operands, c.M, c.K, c.N) }

// Cases returns all cases, without their checksums. Those of 256 rows are small products, the others large ones.
func Cases() (cases []Case) {
	add := func(operands, a, b string, exact bool, shapes ...[3]int64) {
		for _, s := range shapes {
			cases = append(cases, Case{Operands: operands, A: a, B: b, M: s[0], K: s[1], N: s[2], Exact: exact})
		}
	}
	small, square, deep, long := [3]int64{256, 256, 256}, [3]int64{768, 768, 768}, [3]int64{512, 4096, 512}, [3]int64{72, 250_007, 72}
	flat, middle := [3]int64{2048, 128, 2048}, [3]int64{1280, 320, 1280}
	add("uniform in [-1, 1)", "signed", "signed", false, [3]int64{256, 64, 256}, small, flat, middle, deep)
	add("uniform in [0, 1)", "positive", "positive", false, [3]int64{256, 64, 256}, small, flat, middle, deep, long)
	add("times 2^-60 to 2^60 within a row, both", "spread", "spread", false, small, flat, middle, deep)
	add("A's rows and B's columns times 2^-62 to 2^62", "rows", "columns", false, small, [3]int64{1024, 256, 1024}, deep)
	add("A's rows times 2^-120 to 2^120", "far rows", "signed", false, small, [3]int64{1024, 256, 1024}, deep)
	add("A of all magnitudes", "sizes", "signed", false, small, deep)
	add("A near 2^-130, B near 2^110", "tiny", "huge", false, small, deep)
	add("products near 2^-140", "small", "small", false, small, deep)
	add("A near 2^127, B near 2^-9", "greatest", "least", false, small, deep)
	add("A denormal, B near 2^110", "denormal", "huge", false, small, deep)
	add("one in 16 of A denormal", "mixed", "signed", false, small, deep)
	add("any bits times the identity", "bits", "identity", true, small, square)
	add("any bits times a permutation", "bits", "permutation", true, small, square)
	add("one-hot rows times any bits", "onehot", "bits", true, small, square)
	add("whole numbers up to 63", "whole", "whole", true, small, square)
	add("Inf and NaN in A", "special", "signed", false, small, square)
	return cases
}

// mix is a bijection of 32 bits.
func mix(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x7feb352d
	x ^= x >> 15
	x *= 0x846ca68b
	return x ^ x>>16
}

// element returns an element of a matrix of a kind: that in row r, of rows, and column c. i is its index in the matrix, and
// seed tells matrices apart.
func element(kind string, seed, i uint32, r, c, rows int64) float32 {
	h := mix(i + mix(seed))
	g := mix(h + 0x9e3779b9)
	signed := float32(h>>8)*0x1p-23 - 1
	power := func(e int) float32 { return float32(math.Ldexp(float64(signed), e)) }
	one := func(is bool) float32 {
		if is {
			return 1
		}
		return 0
	}
	switch kind {
	case "signed":
		return signed
	case "positive":
		return float32(h>>8) * 0x1p-24
	case "spread":
		return power(int(g%121) - 60)
	case "rows":
		return power(int(mix(uint32(r))%125) - 62)
	case "columns":
		return power(int(mix(uint32(c))%125) - 62)
	case "far rows":
		return power(int(mix(uint32(r))%241) - 120)
	case "sizes":
		return power(int(g%221) - 120)
	case "tiny":
		return power(-130)
	case "huge":
		return power(110)
	case "small":
		return power(-70)
	case "greatest":
		return power(127)
	case "least":
		return power(-9)
	case "denormal":
		return math.Float32frombits(h & 0x807fffff)
	case "mixed":
		if g%16 == 0 {
			return math.Float32frombits(h & 0x807fffff)
		}
		return signed
	case "bits":
		return math.Float32frombits(h&0x807fffff | g%254<<23)
	case "identity":
		return one(r == c)
	case "permutation":
		return one((r*5+3)%rows == c) // rows is no multiple of 5
	case "onehot":
		return one(c == int64(mix(uint32(r)))%rows)
	case "whole":
		return float32(int(h>>8%127) - 63)
	case "nan":
		return math.Float32frombits(h | 0x7f800001)
	case "special":
		switch g % 997 {
		case 0:
			return math.Float32frombits(h | 0x7f800001)
		case 1:
			return math.Float32frombits(h&0x80000000 | 0x7f800000)
		}
		return signed
	}
	return float32(math.NaN())
}

// Matrix returns rows x cols elements of a kind.
func Matrix(kind string, seed uint32, rows, cols int64) []float32 {
	x := make([]float32, rows*cols)
	kernels.Parallel(rows, max(1<<16/cols, 1), func(lo, hi int64) {
		for i := lo * cols; i < hi*cols; i++ {
			x[i] = element(kind, seed, uint32(i), i/cols, i%cols, rows)
		}
	})
	return x
}

// Matrices returns the operands.
func (c Case) Matrices() (a, b []float32) {
	return Matrix(c.A, 1, c.M, c.K), Matrix(c.B, 2, c.K, c.N)
}

// Sum returns a checksum of the bits of elements and their order, modulo 2^64.
func Sum(x []float32) (sum uint64) {
	for i, v := range x {
		sum += uint64(math.Float32bits(v)) * (2*uint64(i) + 1)
	}
	return sum
}

// Error is how far the elements of a result are off.
type Error struct {
	// Largest and Mean are in units of 2^-24 of the sum of |terms|, or of the least denormal number where that is more.
	Largest float64 `json:"largest"`
	Mean    float64 `json:"mean"`
	// Wrong counts the elements that are finite where float64 is not, or the other way round, or another infinity. In an exact
	// case it counts those that differ, too.
	Wrong int `json:"wrong,omitempty"`
}

// Errors compares results with float64 sums in the order of the terms.
func (c Case) Errors(a, b []float32, results ...[]float32) []Error {
	errors := make([]Error, len(results))
	counts := make([]int, len(results))
	var mu sync.Mutex
	kernels.Parallel(c.M, 1, func(lo, hi int64) {
		sum, abs := make([]float64, c.N), make([]float64, c.N)
		for i := lo; i < hi; i++ {
			clear(sum)
			clear(abs)
			for l := range c.K {
				x, row := float64(a[i*c.K+l]), b[l*c.N:][:c.N]
				for j, y := range row {
					p := x * float64(y)
					sum[j] += p
					abs[j] += math.Abs(p)
				}
			}
			for r, result := range results {
				e, n := c.rowError(sum, abs, result[i*c.N:][:c.N])
				mu.Lock()
				errors[r].Largest = max(errors[r].Largest, e.Largest)
				errors[r].Mean += e.Mean
				errors[r].Wrong += e.Wrong
				counts[r] += n
				mu.Unlock()
			}
		}
	})
	for r := range errors {
		errors[r].Mean /= float64(max(counts[r], 1))
	}
	return errors
}

// rowError compares a row. Its Mean is the sum of the elements' errors, not yet divided by their number.
func (c Case) rowError(sum, abs []float64, got []float32) (e Error, n int) {
	for j, want := range sum {
		g, rounded := float64(got[j]), float32(want)
		switch infinite := math.IsInf(float64(rounded), 0); {
		case c.Exact:
			if got[j] != rounded && (g == g || want == want) {
				e.Wrong++
			}
		case infinite && abs[j] < math.MaxFloat32*2 && !math.IsInf(want, 0): // within rounding of overflow
		case infinite || want != want || g-g != 0:
			if got[j] != rounded && (g == g || want == want) {
				e.Wrong++
			}
		default:
			off := math.Abs(g-want) / max(0x1p-24*abs[j], 0x1p-149)
			e.Largest = max(e.Largest, off)
			e.Mean += off
			n++
		}
	}
	return e, n
}
