package streamcopy

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Copies of all lengths and places are those of copy, and touch nothing beside them.
func TestCopy(t *testing.T) {
	src, want := make([]byte, 5000), make([]byte, 5000)
	for i := range src {
		src[i] = byte(rand.Uint32())
	}
	for range 20000 {
		got := bytes.Repeat([]byte{0xA5}, len(src))
		copy(want, got)
		from, to, n := rand.IntN(200), rand.IntN(200), rand.IntN(4600)
		if rand.IntN(2) == 0 {
			n = rand.IntN(600)
		}
		Copy(got[to:to+n], src[from:from+n+rand.IntN(2)])
		Fence()
		copy(want[to:to+n], src[from:])
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes from %d to %d are not those of copy", n, from, to)
		}
	}
}
