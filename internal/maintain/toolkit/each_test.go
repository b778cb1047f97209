package toolkit

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
)

// Each keeps the order of the items, and no more workers than it is given.
func TestEach(t *testing.T) {
	odd := errors.New("odd")
	for _, workers := range []int{0, 1, 3} {
		var now, most, calls atomic.Int32
		errs := Each([]int{1, 2, 3, 4, 5, 6, 7}, workers, func(i int) error {
			for n := now.Add(1); ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			defer now.Add(-1)
			if calls.Add(1); i%2 == 1 {
				return fmt.Errorf("%d: %w", i, odd)
			}
			return nil
		})
		var failed []string
		for _, err := range errs {
			failed = append(failed, fmt.Sprint(err))
		}
		want := []string{"1: odd", "<nil>", "3: odd", "<nil>", "5: odd", "<nil>", "7: odd"}
		if !slices.Equal(failed, want) || calls.Load() != 7 || int(most.Load()) > max(workers, 1) {
			t.Errorf("%d workers: errors %q, %d calls, %d at a time, want %q, 7, at most %d", workers, failed, calls.Load(), most.Load(), want, max(workers, 1))
		}
	}
}
