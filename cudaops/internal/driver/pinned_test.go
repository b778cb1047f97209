package driver

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Memory of Go's stays pinned for as long as something refers to a piece of it.
func TestMakePinned(t *testing.T) {
	c := openDevice(t)
	for _, n := range []int64{1, 4096, 5000, 1 << 20} {
		m := testutil.Get[[]byte](t)(c.MakePinned(n))
		if int64(len(m)) != n || !bytes.Equal(m, make([]byte, n)) {
			t.Fatalf("got %d bytes, want %d zeros", len(m), n)
		}
		if !c.Pinned(m) || c.Pinned(make([]byte, n)) || c.Pinned(m[:0]) {
			t.Errorf("%d bytes: pinned %v, others %v, none %v", n, c.Pinned(m), c.Pinned(make([]byte, n)), c.Pinned(m[:0]))
		}
		for i := range m {
			m[i] = byte(i)
		}
		to := testutil.Get[Ptr](t)(c.Alloc(n))
		s := testutil.Get[*Stream](t)(c.NewStream())
		testutil.Do(t, s.UploadPinned(to, m))
		testutil.Do(t, s.Sync())
		got := make([]byte, n)
		testutil.Do(t, c.Download(got, to))
		if !bytes.Equal(got, m) {
			t.Errorf("%d bytes came to the device as others", n)
		}
		testutil.Do(t, c.Free(to))
		testutil.Do(t, s.Close())

		piece, last := m[n/2:n/2+1], byte(n/2)
		m = nil
		for range 4 {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		if at := Address(piece); !c.Pinned(piece) || piece[0] != last {
			t.Errorf("a piece of %d bytes at %#x was given back", n, at)
		}
		at := Address(piece)
		runtime.KeepAlive(piece)
		piece = nil
		const host = 1
		for start := time.Now(); c.memoryType(at) == host; runtime.GC() {
			if time.Sleep(time.Millisecond); time.Since(start) > 10*time.Second {
				t.Fatalf("%d bytes that nothing refers to are still pinned", n)
			}
		}
	}
}
