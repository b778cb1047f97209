//go:build unix

package exec

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Eight times as many instructions, of random buffers that no other one uses, are put in order in less than 24 times as long.
func TestOrderGrowth(t *testing.T) {
	const few, times, most, tries = 8000, 8, 24, 4
	took := func(n int) time.Duration {
		r := rand.New(rand.NewPCG(1, 2))
		work := make([]Work, n)
		start := testutil.CPUTime(t)
		var o order
		for i, at := range r.Perm(n) {
			v := &program.Value{Buffer: &program.Buffer{Offset: int64(at) * program.Alignment, Size: 4}}
			v.Base = v
			work[i].After = o.add(i, &program.Instr{Out: []*program.Value{v}})
		}
		for i := n / 2; i < n; i++ { // half are ready at once, and those that wait for them have all heights
			work[i].After = []int{i - n/2}
			if i > n/2 {
				work[i].After = append(work[i].After, i-1)
			}
		}
		reduced(work)
		if list := longestFirst(work); len(list) != n {
			t.Fatalf("got %d pieces, want %d", len(list), n)
		}
		return testutil.CPUTime(t) - start
	}
	a, b := took(few), took(few*times)
	for range tries {
		if b < most*a {
			break
		}
		a, b = min(a, took(few)), min(b, took(few*times))
	}
	t.Logf("%d: %v, %d: %v", few, a, few*times, b)
	if b >= most*a {
		t.Errorf("%d instructions took %v, %d took %v, want less than %d times as long", few, a, few*times, b, most)
	}
}
