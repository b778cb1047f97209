package opspec

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/internal/test/compare"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Numbers is a kind of input.
type Numbers struct {
	Name string
	// Denormal is set if denormal numbers are among them.
	Denormal bool
	// draw returns element k of n for a type whose least positive number is tiny.
	draw func(r *rand.Rand, k, n int, tiny float64) float64
}

var (
	// Short are random numbers of 12 bits, whose products have 24.
	Short = Numbers{Name: "random, 12 bits", draw: func(r *rand.Rand, _, _ int, _ float64) float64 { return float64(r.IntN(4095)-2047) / 1024 }}
	// Normal are normally distributed random numbers.
	Normal = Numbers{Name: "random", draw: func(r *rand.Rand, _, _ int, _ float64) float64 { return r.NormFloat64() }}
	// Special are the numbers that kernels get wrong.
	Special = []Numbers{
		{Name: "all equal", draw: func(*rand.Rand, int, int, float64) float64 { return 0.7001953125 /* 717 / 1024 */ }},
		{Name: "huge and small in turn", draw: func(_ *rand.Rand, k, _ int, _ float64) float64 { return []float64{0x1p50, -0x1p-50}[k%2] }},
		// float32 cannot hold it with the others in one number, float64 can: errors
		// of every addition to a number beyond that would not cancel.
		{Name: "one huge", draw: spot(0x1p30)},
		{Name: "one NaN", draw: spot(math.NaN())},
		// GPU arithmetic makes NaN of all ones. One bit less distinguishes this one, negated
		// too, from the memory that a test fills before a kernel writes it.
		{Name: "one NaN of nearly all ones", draw: spot(math.Float64frombits(0x7ffffffee0000000))}, // 0x7ffffff7 in float32
		{Name: "one negative NaN", draw: spot(math.Float64frombits(0xfffffe0000000000))},           // 0xfffff000 in float32
		{Name: "one Inf", draw: spot(math.Inf(1))},
		{Name: "one -Inf", draw: spot(math.Inf(-1))},
		{Name: "NaN, Inf and -Inf", draw: func(r *rand.Rand, k, _ int, _ float64) float64 {
			if r.IntN(7) > 0 {
				return float64(k%5 - 2)
			}
			return []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[r.IntN(3)]
		}},
		{Name: "-0", draw: func(*rand.Rand, int, int, float64) float64 { return math.Copysign(0, -1) }},
		{Name: "0, -0 and one in turn", draw: func(_ *rand.Rand, k, _ int, _ float64) float64 { return []float64{0, math.Copysign(0, -1), 1}[k%3] }},
		{Name: "denormals", Denormal: true, draw: func(r *rand.Rand, _, _ int, tiny float64) float64 { return tiny * float64(r.IntN(2001)-1000) }},
		{Name: "denormals and one", Denormal: true, draw: func(r *rand.Rand, k, n int, tiny float64) float64 {
			if k == n/2 {
				return 1
			}
			return tiny * float64(r.IntN(2001)-1000)
		}},
	}
)

// spot is random numbers with v at one place; three quarters of the way, no
// edge of a tile or vector in most shapes.
func spot(v float64) func(*rand.Rand, int, int, float64) float64 {
	return func(r *rand.Rand, k, n int, _ float64) float64 {
		if k == n*3/4 {
			return v
		}
		return float64(r.IntN(2000)-1000+1) / 1024
	}
}

// Draw draws the inputs of a case, as float64 numbers that dt can hold.
func (k Numbers) Draw(r *rand.Rand, c Case, dt kernels.Dtype) [][]float64 {
	tiny := float64(math.SmallestNonzeroFloat64)
	if dt == kernels.Float32 {
		tiny = math.SmallestNonzeroFloat32
	}
	xs := make([][]float64, len(c.Shapes))
	for i, s := range c.Shapes {
		xs[i] = make([]float64, s.TotalSize())
		for j := range xs[i] {
			xs[i][j] = fit(dt, k.draw(r, j, len(xs[i]), tiny))
		}
	}
	return xs
}

// fit returns a number that dt can hold: x rounded, or for integers 100 x without
// its fraction and, where it is too large, its high bits.
func fit(dt kernels.Dtype, x float64) float64 {
	whole := int64(0)
	if 100*math.Abs(x) < 1<<62 {
		whole = int64(100 * x)
	}
	switch dt {
	case kernels.Float32:
		return float64(float32(x))
	case kernels.Float64:
		return x
	case kernels.Uint8:
		return float64(uint8(whole))
	case kernels.Int32:
		return float64(int32(whole))
	case kernels.Int:
		return float64(int(whole))
	}
	return float64(whole)
}

// randomShape draws a shape of rank lo to hi with at most 64 elements an axis,
// often an extent of 1 or a prime.
func randomShape(r *rand.Rand, lo, hi int) tensor.Shape {
	extents := []int{1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 33, 64}
	s := make(tensor.Shape, lo+r.IntN(hi-lo+1))
	n := 1
	for i := range s {
		for s[i] = extents[r.IntN(len(extents))]; n*s[i] > 1<<16; {
			s[i] = 1
		}
		n *= s[i]
	}
	return s
}

// codec converts numbers to the memory of elements of a type, and back.
type codec struct {
	encode func(x []float64) []byte
	decode func(b []byte) []float64
}

var codecs = map[kernels.Dtype]codec{
	kernels.Float32: codecOf[float32](), kernels.Float64: codecOf[float64](), kernels.Uint8: codecOf[uint8](), kernels.Bool: codecOf[uint8](),
	kernels.Int32: codecOf[int32](), kernels.Int64: codecOf[int64](), kernels.Int: codecOf[int](),
}

func codecOf[T kernels.Element]() codec {
	return codec{func(x []float64) []byte {
		y := make([]T, len(x))
		for i := range x {
			y[i] = T(x[i])
		}
		return kernels.Bytes(y)
	}, func(b []byte) []float64 {
		elements := kernels.Elements[T](b)
		x := make([]float64, len(elements))
		for i, e := range elements {
			x[i] = float64(e)
		}
		return x
	}}
}

// Encode returns numbers as the memory of elements of type dt.
func Encode(dt kernels.Dtype, x []float64) []byte { return codecs[dt].encode(x) }

// Decode returns the memory of elements of type dt as numbers; integers are
// below 2^53.
func Decode(dt kernels.Dtype, b []byte) []float64 { return codecs[dt].decode(b) }

// CloseTo compares memory of elements of type dt with a reference.
func CloseTo(dt kernels.Dtype, got []byte, ref, magnitude []float64, tolerance float64) error {
	if dt == kernels.Float32 {
		return compare.Close(kernels.Elements[float32](got), ref, magnitude, tolerance, 0)
	}
	return compare.Close(Decode(dt, got), ref, magnitude, tolerance, 0)
}

// Values returns numbers as Gorgonia values of the case's shapes.
func (c Case) Values(dt kernels.Dtype, xs [][]float64) []gorgonia.Value {
	vs := make([]gorgonia.Value, len(xs))
	for i, s := range c.Shapes {
		var mem []byte
		vs[i], mem = values.New(dt, s)
		copy(mem, Encode(dt, xs[i]))
	}
	return vs
}

// Enlarged returns the case with one or two extents of its inputs, wherever they are, replaced by huge ones: of up to 2^40.
func (c Case) Enlarged(r *rand.Rand) Case {
	all := slices.Concat(c.Shapes...)
	if len(all) == 0 {
		return c
	}
	to := map[int]int{}
	for range 1 + r.IntN(2) {
		to[all[r.IntN(len(all))]] = int(math.Exp2(10 + 30*r.Float64()))
	}
	c.Shapes = slices.Clone(c.Shapes)
	for i, s := range c.Shapes {
		c.Shapes[i] = s.Clone()
		for a, d := range s {
			if n, ok := to[d]; ok {
				c.Shapes[i][a] = n
			}
		}
	}
	return c
}

// MaxElements returns the number of elements of the largest input, in float64: it may be more than an int has.
func (c Case) MaxElements() (most float64) {
	for _, s := range c.Shapes {
		n := 1.
		for _, d := range s {
			n *= float64(d)
		}
		most = max(most, n)
	}
	return most
}
