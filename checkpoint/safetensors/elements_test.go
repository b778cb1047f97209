package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"pgregory.net/rapid"
)

// ieee returns the value of a number with so many bits of exponent and fraction, by the definition.
func ieee(bits uint64, exponent, fraction int) float64 {
	sign := 1 - 2*float64(bits>>(exponent+fraction)&1)
	e, m, most := int(bits>>fraction&(1<<exponent-1)), float64(bits&(1<<fraction-1)), 1<<exponent-1
	bias := most / 2
	switch {
	case e == most && m != 0:
		return math.NaN()
	case e == most:
		return sign * math.Inf(1)
	case e == 0:
		return sign * m * math.Pow(2, float64(1-bias)) / math.Pow(2, float64(fraction))
	}
	return sign * (1 + m/math.Pow(2, float64(fraction))) * math.Pow(2, float64(e-bias))
}

// values are the element types that Elements reads, and the values of their bits.
var values = map[string]func(bits uint64) (x float64, integer *big.Int){
	"F64":  func(b uint64) (float64, *big.Int) { return ieee(b, 11, 52), nil },
	"F32":  func(b uint64) (float64, *big.Int) { return ieee(b, 8, 23), nil },
	"F16":  func(b uint64) (float64, *big.Int) { return ieee(b, 5, 10), nil },
	"BF16": func(b uint64) (float64, *big.Int) { return ieee(b, 8, 7), nil },
	"I64":  signed(64), "I32": signed(32), "I16": signed(16), "I8": signed(8),
	"U8":   func(b uint64) (float64, *big.Int) { return 0, new(big.Int).SetUint64(b) },
	"BOOL": func(b uint64) (float64, *big.Int) { return 0, new(big.Int).SetUint64(min(b, 1)) },
}

// signed returns the value of a number in two's complement.
func signed(bits uint) func(uint64) (float64, *big.Int) {
	return func(b uint64) (float64, *big.Int) {
		n := new(big.Int).SetUint64(b)
		if b>>(bits-1) > 0 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), bits))
		}
		return 0, n
	}
}

// converts returns an error unless Elements converts a tensor's elements to T as their values are, integers from lowest to highest.
func converts[T Element](x *Tensor, bits []uint64, from, n int, lowest int64, highest uint64) error {
	got := make([]T, n)
	err := Elements(x, from, got)
	for i, b := range bits[from : from+n] {
		float, integer := values[x.Dtype](b)
		var want T
		fits := true
		_, single := any(want).(float32)
		switch _, double := any(want).(float64); {
		case integer == nil && !single && !double:
			fits = false
		case integer == nil:
			want = T(float)
			fits = math.IsInf(float, 0) || !math.IsInf(float64(want), 0)
		case single:
			x, _ := new(big.Float).SetInt(integer).Float32()
			want = T(x)
		case double:
			x, _ := new(big.Float).SetInt(integer).Float64()
			want = T(x)
		default:
			fits = integer.Cmp(big.NewInt(lowest)) >= 0 && integer.Cmp(new(big.Int).SetUint64(highest)) <= 0
			want = T(integer.Int64())
		}
		if !fits {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", x.Name)) {
				return fmt.Errorf("%s to %T: element %d, %x, is %v and the error %v, want an error with the name", x.Dtype, want, i, b, got[i], err)
			}
			return nil
		}
		same := got[i] == want && math.Signbit(float64(got[i])) == math.Signbit(float64(want)) || got[i] != got[i] && want != want
		if err == nil && !same {
			return fmt.Errorf("%s to %T: element %d, %x, is %v, want %v", x.Dtype, want, i, b, got[i], want)
		}
	}
	if n == 0 { // of types that may not convert
		return nil
	}
	return err
}

// Elements of every type are converted to every type, or are an error that names the tensor.
func TestElements(t *testing.T) {
	testutil.CheckProperty(t, func(t *rapid.T) {
		for dtype := range values {
			size := int(dtypeBits[dtype] / 8)
			bits := rapid.SliceOfN(rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 127)), 1, 40).Draw(t, "bits")
			x := Tensor{Name: "a b", Dtype: dtype, Shape: []int{len(bits)}}
			for i, b := range bits {
				bits[i] = b << (64 - 8*size) >> (64 - 8*size)
				x.Data = append(x.Data, binary.LittleEndian.AppendUint64(nil, bits[i])[:size]...)
			}
			f, err := rewritten(nil, []Tensor{{Name: "b", Dtype: "U8", Data: []byte{1}}, x})
			if err != nil {
				t.Fatal(err)
			}
			from := rapid.IntRange(0, len(bits)).Draw(t, "from")
			n := rapid.IntRange(0, len(bits)-from).Draw(t, "n")
			at := f.Find(x.Name)
			for _, err := range []error{
				converts[float32](at, bits, from, n, 0, 0), converts[float64](at, bits, from, n, 0, 0),
				converts[int](at, bits, from, n, math.MinInt, math.MaxInt), converts[int64](at, bits, from, n, math.MinInt64, math.MaxInt64),
				converts[int32](at, bits, from, n, math.MinInt32, math.MaxInt32), converts[int16](at, bits, from, n, math.MinInt16, math.MaxInt16),
				converts[int8](at, bits, from, n, math.MinInt8, math.MaxInt8), converts[uint8](at, bits, from, n, 0, math.MaxUint8),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// Elements keeps the bits of numbers of T's type, NaN included, over several reads of the file.
func TestElementsOfOwnType(t *testing.T) {
	x := Tensor{Name: "a", Dtype: "F32", Shape: []int{50_000}}
	for i := range 50_000 {
		x.Data = binary.LittleEndian.AppendUint32(x.Data, uint32(i)*1_000_003+0x7f800000)
	}
	f := testutil.Get[*File](t)(rewritten(nil, []Tensor{x}))
	got := make([]float32, 50_000)
	testutil.Do(t, Elements(f.Find("a"), 0, got))
	for i, v := range got {
		if bits := math.Float32bits(v); bits != uint32(i)*1_000_003+0x7f800000 {
			t.Fatalf("element %d has the bits %x", i, bits)
		}
	}
}

func TestElementsErrors(t *testing.T) {
	f := testutil.Get[*File](t)(rewritten(nil, []Tensor{{Name: "a", Dtype: "F32", Shape: []int{2}, Data: make([]byte, 8)},
		{Name: "b", Dtype: "F8_E5M2", Shape: []int{2}, Data: make([]byte, 2)}}))
	a, into := f.Find("a"), make([]float32, 2)
	for i, err := range []error{Elements(a, 1, into), Elements(a, -1, into), Elements(a, 3, into[:0]), Elements(f.Find("b"), 0, into),
		Elements(&Tensor{Name: "a", Dtype: "F32", Shape: []int{2}}, 0, into), Elements(a, 0, make([]int, 2))} {
		if err == nil || !slices.ContainsFunc([]string{`"a"`, `"b"`}, func(name string) bool { return strings.Contains(err.Error(), name) }) {
			t.Errorf("case %d: got the error %v, want one with the tensor's name", i, err)
		}
	}
}
