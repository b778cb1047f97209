package toolkit

import "sync"

// Each calls do for each of the items, that many at a time, at least one, and returns the errors in
// the order of the items.
func Each[T any](items []T, workers int, do func(T) error) []error {
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(workers, 1))
	for i, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(item)
		})
	}
	wg.Wait()
	return errs
}
