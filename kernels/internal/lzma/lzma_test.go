package lzma

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// draw returns bytes with repetitions at small and large distances, long and short ones, some with an instruction's bytes changed.
func draw(r *rand.Rand, before []byte) []byte {
	text := bytes.Clone(before)
	for range r.IntN(30) {
		switch n := 1 << r.IntN(10); r.IntN(5) {
		case 0:
			for range n {
				text = append(text, byte(r.Uint32()))
			}
		case 1:
			text = append(text, bytes.Repeat([]byte{byte(r.Uint32())}, n*r.IntN(5))...)
		case 2: // instructions
			for k := range byte(min(n, 200)) {
				text = append(text, 0x24, 0x76, k/3, 255, 5, 0, 0, 0, 255, 0, 142, 7, 0, 226, 15, k%4)
			}
		default:
			if len(text) > 0 {
				from := r.IntN(len(text))
				for k := from; k < from+n; k++ {
					b := text[k]
					if r.IntN(40) == 0 {
						b += byte(r.IntN(3))
					}
					text = append(text, b)
				}
			}
		}
	}
	return text[len(before):]
}

// Texts are read as they were packed, alone and as continuations; the same text makes the same bytes.
func TestRoundTrip(t *testing.T) {
	r := testutil.Random(t)
	for range 20 {
		kind := Kind(r.IntN(2))
		past, reading := Start(kind), Start(kind)
		var before []byte
		for range 1 + r.IntN(3) {
			text := draw(r, before)
			packed, after := Encode(past, text)
			if again, _ := Encode(past, text); !bytes.Equal(again, packed) {
				t.Fatalf("%d bytes are packed to %d bytes, then to %d others", len(text), len(packed), len(again))
			}
			got, read, err := reading.Decode(packed)
			if err != nil || !bytes.Equal(got, text) {
				t.Fatalf("got %d bytes, %v, want the %d that were packed after %d", len(got), err, len(text), len(before))
			}
			if read.model != after.model || read.state != after.state || read.reps != after.reps {
				t.Fatal("what continues a text that was read has another model than what continues one that was packed")
			}
			past, reading, before = after, read, append(before, text...)
		}
	}
}

// What repeats takes few bytes: long matches one each, changed registers of instructions two at most, a text known from the past a hundredth.
func TestSmall(t *testing.T) {
	r := testutil.Random(t)
	random := make([]byte, 50_000)
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	var code []byte
	for k := range 2000 {
		code = append(code, 0x24, 0x76, byte(r.Uint32()), 255, 5, 0, 0, 0, 255, 0, 142, 7, 0, 226, 15, byte(k%4))
	}
	for name, c := range map[string]struct {
		before, text []byte
		most         int
	}{
		"zeros":        {nil, make([]byte, 1<<18), 40},
		"random":       {nil, random, len(random) + len(random)/25},
		"known":        {random, random, 40},
		"a part known": {random, random[1000:9000], 40},
		"code":         {nil, code, 2600},
	} {
		past := Start(Code)
		if c.before != nil {
			_, past = Encode(past, c.before)
		}
		if packed, _ := Encode(past, c.text); len(packed) > c.most {
			t.Errorf("%s: %d bytes take %d, want at most %d", name, len(c.text), len(packed), c.most)
		}
	}
}

// Damaged bytes give an error or other bytes, but no panic.
func TestDamage(t *testing.T) {
	r := testutil.Random(t)
	text := draw(r, nil)
	packed, _ := Encode(Start(Code), append(text, "end"...))
	for range 300 {
		damaged := bytes.Clone(packed[:1+r.IntN(len(packed))])
		for range 1 + r.IntN(4) {
			at := r.IntN(len(damaged))
			if at < 4 {
				damaged[at] ^= 1 << r.IntN(3) // the size
			} else {
				damaged[at] = byte(r.Uint32())
			}
		}
		Start(Kind(r.IntN(2))).Decode(damaged)
	}
	for _, packed := range [][]byte{nil, {0xff}, {0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		if got, _, err := Start(Code).Decode(packed); err == nil {
			t.Errorf("%x: got %d bytes and no error", packed, len(got))
		}
	}
}
