package exec

import (
	"bytes"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Values of all sizes, few bytes or many together, are in their places on the device when uploadAll returns, and may be changed then.
func TestUploadAll(t *testing.T) {
	g, err := OpenGPU(0)
	testutil.SkipUnless(t, "GPU", err)
	defer g.Close()
	r := testutil.Random(t)
	const size = 3*bulkMin + 12345
	testutil.Do(t, g.Alloc(size))
	want := make([]byte, size)
	for _, most := range []int{bulkMin - 1, bulkMin + r.IntN(2*bulkMin)} {
		for i := 0; i < size; i += 1 + r.IntN(64) {
			want[i]++
		}
		testutil.Do(t, g.Upload(Span{Size: size}, want))
		testutil.Do(t, g.Sync())
		var list []upload
		for at, total := 0, 0; total < most; {
			n := min([]int{0, 1, r.IntN(100), r.IntN(3 * bulkPiece), bulkPiece, most}[r.IntN(6)], most-total)
			skip := r.IntN(1 + (size-at-(most-total))/8)
			for i := range n {
				want[at+skip+i] = byte(r.Uint32())
			}
			list = append(list, upload{Span{Offset: int64(at + skip), Size: int64(n)}, bytes.Clone(want[at+skip:][:n])})
			at, total = at+skip+n, total+n
		}
		testutil.Do(t, g.uploadAll(list))
		for _, x := range list {
			clear(x.from)
		}
		got := make([]byte, size)
		testutil.Do(t, g.Download(got, Span{Size: size}))
		testutil.Do(t, g.Sync())
		if !bytes.Equal(got, want) {
			t.Errorf("%d values of %d bytes in all: the device has other bytes", len(list), most)
		}
	}
}
