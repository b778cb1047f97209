package expr

import "math"

// Numbers of 16 bits are rounded from float32 to nearest, ties to even. Every NaN becomes nan16, as by the device's conversions.
const nan16 = 0x7fff

// toBF16 rounds x to the upper half of a float32.
func toBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return nan16
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func fromBF16(x uint16) float32 { return math.Float32frombits(uint32(x) << 16) }

// toF16 rounds x to 5 bits of exponent and 10 of significand. The sum with a power of 2 whose last place is that of the result
// rounds it.
func toF16(x float32) uint16 {
	sign := uint16(math.Float32bits(x) >> 16 & 0x8000)
	v := math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	switch {
	case x != x:
		return nan16
	case v >= 65520: // beyond the middle between the largest number and the next power of 2
		return sign | 0x7c00
	case v < 0x1p-14: // subnormal: multiples of 2^-24
		return sign | uint16(math.Float32bits(v+0x1p-1)-math.Float32bits(0x1p-1))
	}
	b := math.Float32bits(v)
	b += 0xfff + b>>13&1
	return sign | uint16((b>>13)-(127-15)<<10)
}

func fromF16(x uint16) float32 {
	sign, exponent, significand := uint32(x&0x8000)<<16, uint32(x>>10&0x1f), uint32(x&0x3ff)
	switch exponent {
	case 0:
		return math.Float32frombits(sign | math.Float32bits(float32(significand)*0x1p-24))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | significand<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | significand<<13)
}

// FromHalf returns the number that an element of a storage type of 16 bits, BF16 or F16, holds.
func FromHalf(d Dtype, x uint16) float32 {
	if d == F16 {
		return fromF16(x)
	}
	return fromBF16(x)
}

// ToHalf rounds a number to an element of BF16 or F16, to nearest, ties to even.
func ToHalf(d Dtype, x float32) uint16 {
	if d == F16 {
		return toF16(x)
	}
	return toBF16(x)
}
