package streamcopy

import (
	"bytes"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Copies of all lengths and places are those of copy, and touch nothing beside them.
func TestCopy(t *testing.T) {
	src, want, r := make([]byte, 5000), make([]byte, 5000), testutil.Random(t)
	for i := range src {
		src[i] = byte(r.Uint32())
	}
	for range 20000 {
		got := bytes.Repeat([]byte{0xA5}, len(src))
		copy(want, got)
		from, to, n := r.IntN(200), r.IntN(200), r.IntN(4600)
		if r.IntN(2) == 0 {
			n = r.IntN(600)
		}
		Copy(got[to:to+n], src[from:from+n+r.IntN(2)])
		Fence()
		copy(want[to:to+n], src[from:])
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes from %d to %d are not those of copy", n, from, to)
		}
	}
}
