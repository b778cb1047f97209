package sha256

import (
	"crypto/sha256"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Hashes are those of package crypto/sha256, of all lengths around the ends of blocks, and of random bytes.
func TestSum256(t *testing.T) {
	r := testutil.Random(t)
	var data []byte
	for len(data) < 1000 {
		if got, want := Sum256(data), sha256.Sum256(data); got != want {
			t.Fatalf("%d bytes: got %x, want %x", len(data), got, want)
		}
		data = append(data, byte(r.Uint32()))
	}
}
