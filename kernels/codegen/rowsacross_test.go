package codegen

import (
	"testing"
)

// Joining in turns takes each result once: the turns multiplied by what is left are all threads, no turn has
// work for more threads than there are, and few results are left for all threads to read.
func TestJoinTurns(t *testing.T) {
	for _, width := range []int{1, 4} {
		for threads := 2; threads <= 1024; threads *= 2 {
			left := threads
			for _, n := range reduceRounds(threads, width) {
				if n < 2 || left%n != 0 {
					t.Fatalf("%d threads, width %d: a turn joins %d of %d", threads, width, n, left)
				}
				left /= n
				if left*width > threads {
					t.Errorf("%d threads, width %d: a turn has work for %d", threads, width, left*width)
				}
			}
			if left*width > 16 || left < 1 {
				t.Errorf("%d threads, width %d: %d are left", threads, width, left)
			}
		}
	}
}
