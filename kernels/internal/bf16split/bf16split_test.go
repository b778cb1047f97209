package bf16split

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// TestDecode checks that every number is found from its encoded splits, and that these are its splits where they add up to it.
func TestDecode(t *testing.T) {
	rng := testutil.Random(t)
	check := func(x float32) {
		p := Encode(x)
		if got := Decode(p); math.Float32bits(got) != math.Float32bits(x) && !(got != got && x != x) {
			t.Fatalf("got %x of %x with splits %x", math.Float32bits(got), math.Float32bits(x), p)
		}
		r := None
		if r.Add(x); !r.Hard(0) && p != Split(x, 1, false) {
			t.Fatalf("got splits %x of %x, want %x", p, math.Float32bits(x), Split(x, 1, false))
		}
	}
	for _, bits := range []uint32{0, 1, 0xffff, 0x10000, minExact - 1, minExact, minExact + 1, huge - 1, huge, huge + 1, infinity - 1, infinity, infinity + 1, 0x7fffffff} {
		check(math.Float32frombits(bits))
		check(math.Float32frombits(bits | 1<<31))
	}
	for range 1 << 20 {
		check(math.Float32frombits(rng.Uint32()))
	}
}
