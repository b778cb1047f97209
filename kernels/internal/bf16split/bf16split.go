// Package bf16split splits float32 numbers into three BF16 numbers each, and finds the ranges of numbers that decide whether products can read them.
package bf16split

import "math"

// MinExact is the exponent of the least numbers that three BF16 numbers of one scale add up to.
const MinExact = -109

// Sizes of float32 numbers, their bits without the sign.
const (
	minExact = (MinExact + 127) << 23
	huge     = 0x7f7f8000 // the least size that BF16 rounds to infinity
	infinity = 0x7f800000
)

// Magnitudes is the largest and the least size of finite numbers other than 0, as bits, and whether there are no others.
type Magnitudes struct {
	Most, Least uint32
	Finite      bool
}

// None are the magnitudes of no numbers.
var None = Magnitudes{0, infinity, true}

// Add adds a number.
func (r *Magnitudes) Add(x float32) {
	switch size := math.Float32bits(x) &^ (1 << 31); {
	case size >= infinity:
		r.Finite = false
	case size > 0:
		r.Most, r.Least = max(r.Most, size), min(r.Least, size)
	}
}

// Packed is a range in memory: its largest size has the sign of a range with numbers that are not finite.
func (r Magnitudes) Packed() (most, least uint32) {
	if !r.Finite {
		r.Most |= 1 << 31
	}
	return r.Most, r.Least
}

// Join adds a range from memory.
func (r *Magnitudes) Join(most, least uint32) {
	*r = Magnitudes{max(r.Most, most&^(1<<31)), min(r.Least, least), r.Finite && most < 1<<31}
}

// Hard reports whether splits of scale 1 don't hold all numbers times 2^shift, a shift of 0 or at least 16: tiny ones without a shift, and those that BF16 rounds to infinity.
func (r Magnitudes) Hard(shift int) bool {
	return shift == 0 && r.Low() < MinExact || r.Most >= huge-uint32(shift)<<23
}

// Low and High are the exponents of the least and the largest size. Of no numbers they are 128 and -150.
func (r Magnitudes) Low() int  { return log2(r.Least) }
func (r Magnitudes) High() int { return log2(r.Most) }

// log2 is the exponent of a number's size, given as bits.
func log2(size uint32) int {
	if size == 0 {
		return -150
	}
	return min(math.Ilogb(float64(math.Float32frombits(size))), 128)
}

// BF16 rounds x to BF16, its upper half; a finite x stays finite.
func BF16(x float32) uint16 {
	bits := math.Float32bits(x)
	switch size := bits &^ (1 << 31); {
	case size > infinity: // NaN
		return uint16(bits>>16 | 0x7fff)
	case size >= huge && size < infinity:
		return uint16(bits >> 16)
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float returns a BF16 number in float32.
func Float(x uint16) float32 { return math.Float32frombits(uint32(x) << 16) }

// Split splits x: x = p[0] + p[1] / scale + p[2] / scale^2, exactly for a scale of 2^8 and any finite x, for 1 and sizes of at least 2^MinExact. The
// splits of Inf and NaN are x and zeros. With whole, p[0] is not 0 unless x is: there are infinities to multiply it by.
func Split(x, scale float32, whole bool) (p [3]uint16) {
	p[0] = BF16(x)
	if math.Float32bits(x)&infinity == infinity {
		return p
	}
	if whole && x != 0 && p[0]<<1 == 0 {
		p[0] |= 1
	}
	rest := (x - Float(p[0])) * scale
	p[1] = BF16(rest)
	p[2] = BF16((rest - Float(p[1])) * scale)
	return p
}

// Encode returns the splits of x of scale 1, from which Decode finds every x. Numbers that splits don't hold are encoded by their bits: products
// of a matrix with such numbers do not read these splits, but others that are made of the decoded numbers.
func Encode(x float32) [3]uint16 {
	bits := math.Float32bits(x)
	switch size := bits &^ (1 << 31); {
	case size < minExact:
		return [3]uint16{uint16(bits >> 16), uint16(bits)}
	case size >= huge && size < infinity:
		return [3]uint16{uint16(bits>>16)&(1<<15) | infinity>>16, uint16(bits)}
	}
	return Split(x, 1, false)
}

// Decode returns the number whose splits are p.
func Decode(p [3]uint16) float32 {
	switch size := p[0] &^ (1 << 15); {
	case size < minExact>>16:
		return math.Float32frombits(uint32(p[0])<<16 | uint32(p[1]))
	case size == infinity>>16 && p[1] >= huge&0xffff:
		return math.Float32frombits(uint32(p[0])<<16&(1<<31) | huge>>16<<16 | uint32(p[1]))
	case size >= infinity>>16:
		return Float(p[0])
	}
	return Float(p[0]) + (Float(p[1]) + Float(p[2]))
}
