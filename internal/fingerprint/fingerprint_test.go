package fingerprint

import (
	"math/rand/v2"
	"testing"
)

func TestOf(t *testing.T) {
	if got, want := Of([]byte("123456789")).String(), "cbf43926e30692832d3dd0ae"; got != want { // the check values of the three polynomials
		t.Errorf("got %s, want %s", got, want)
	}
}

// Texts that differ in few bits, and numbers in a row, have other fingerprints, also in their first 48 bits, which digests have.
func TestOthers(t *testing.T) {
	first := func(text []byte) [6]byte { f := Of(text); return [6]byte(f[:]) }
	r := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 200)
	for i := range text {
		text[i] = byte(r.Uint32())
	}
	seen := map[[6]byte]bool{first(text): true}
	add := func(text []byte) {
		if seen[first(text)] {
			t.Fatalf("got %x twice", first(text))
		}
		seen[first(text)] = true
	}
	for i := range 8 * len(text) {
		text[i/8] ^= 1 << (i % 8)
		add(text)
		for k := range i {
			if r.IntN(20) == 0 {
				text[k/8] ^= 1 << (k % 8)
				add(text)
				text[k/8] ^= 1 << (k % 8)
			}
		}
		text[i/8] ^= 1 << (i % 8)
	}
	for n := range 100_000 {
		add([]byte{byte(n), byte(n >> 8), byte(n >> 16)})
	}
}
