package train

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"gorgonia.org/gorgonia"
)

// item is an item of the source: a batch or, with batch nil, the end of an epoch.
type item struct {
	batch Batch
	left  int // rows of a batch that is left out, before the end
}

// prefetcher makes batches in a goroutine of its own, a limited number ahead.
//
// The consumer returns a token for each item, and the producer takes one before it goes on, so that it
// does nothing while it has none: with none given in advance the two take turns.
type prefetcher struct {
	source Source
	fitter *fitter
	epochs int // 0 for no limit
	steps  int // left to make, 0 for no limit

	tokens chan struct{}
	items  chan item
	cancel context.CancelFunc
	done   <-chan struct{} // of the context of the producer
	// Once items is closed: the error of the source, and whether all that is wanted was made.
	err      error
	complete bool
	staging  sync.WaitGroup // the goroutine of stage
}

// The reasons to end an epoch early: everything is made, or no more is wanted.
var (
	errComplete = errors.New("complete")
	errUnwanted = errors.New("unwanted")
)

// prefetch begins to make the batches from a position on.
func prefetch(ctx context.Context, source Source, f *fitter, c *config) *prefetcher {
	p := &prefetcher{
		source: source, fitter: f, epochs: c.epochs,
		tokens: make(chan struct{}, c.prefetch+1), items: make(chan item, c.prefetch+1),
	}
	if c.steps > 0 {
		p.steps = c.steps - c.from.Step
	}
	ctx, p.cancel = context.WithCancel(ctx)
	p.done = ctx.Done()
	for range c.prefetch {
		p.tokens <- struct{}{}
	}
	go p.produce(c.from)
	return p
}

// next returns the next item, false if there is none.
func (p *prefetcher) next() (item, bool) {
	select {
	case p.tokens <- struct{}{}:
	case <-p.done:
	}
	it, ok := <-p.items
	return it, ok
}

// stop ends the producer and waits for it. It returns the error of the source.
func (p *prefetcher) stop() error {
	p.cancel()
	p.staging.Wait()
	for range p.items { // until it is closed
	}
	return p.err
}

// stage starts a goroutine that copies each batch to the device during the previous step. It returns a function that
// replaces p's next.
func stage(p *prefetcher, to func(map[*gorgonia.Node]gorgonia.Value) (bool, error)) (next func() (item, bool)) {
	items := make(chan item)
	p.staging.Go(func() {
		defer close(items)
		for {
			it, ok := p.next()
			if !ok {
				return
			}
			if it.batch != nil {
				_, _ = to(it.batch) // a wrong batch is the error of its step
			}
			select {
			case items <- it:
			case <-p.done:
				for range p.items { // until it is closed
				}
				p.complete = false // this one is wanted
				return
			}
		}
	})
	return func() (item, bool) {
		it, ok := <-items
		return it, ok
	}
}

// produce makes all items, and closes the channel at the end.
func (p *prefetcher) produce(from Position) {
	returned := false
	defer func() {
		if r := recover(); r != nil {
			p.err = errors.Join(p.err, fmt.Errorf("the batches panicked: %v\n%s", r, debug.Stack()))
		} else if !returned {
			p.err = errors.New("the batches ended their goroutine")
		}
		close(p.items)
	}()
	if !p.awaitToken() {
		p.err = errUnwanted
	}
	for first := true; p.err == nil && (p.epochs == 0 || from.Epoch < p.epochs); first = false {
		p.err = p.epoch(from.Epoch, from.Batch, first && from.Batch > 0)
		from.Epoch, from.Batch = from.Epoch+1, 0
	}
	if p.complete = p.err == nil || p.err == errComplete; p.err == errComplete || p.err == errUnwanted {
		p.err = nil
	}
	returned = true
}

// awaitToken waits for a token. It reports whether there is one; without one no item is wanted.
func (p *prefetcher) awaitToken() bool {
	select {
	case <-p.done:
		return false
	default:
	}
	select {
	case <-p.tokens:
		return true
	case <-p.done:
		return false
	}
}

// deliver hands over an item and waits for the token of the next one.
func (p *prefetcher) deliver(it item) bool {
	select {
	case p.items <- it:
		return p.awaitToken()
	case <-p.done:
		return false
	}
}

// epoch makes the items of an epoch, which may have no batches if it was under way.
func (p *prefetcher) epoch(n, from int, underWay bool) (err error) {
	steps, left := 0, 0
	at := from
	batches := p.source.Batches(n, from)
	if batches == nil {
		return fmt.Errorf("epoch %d: the source returned nil for its batches", n)
	}
	for b, failed := range batches {
		if failed != nil {
			p.err = fmt.Errorf("batch %d of epoch %d: %w", at, n, failed) // kept if the iterator goes on, which panics
			return p.err
		}
		if left > 0 {
			return fmt.Errorf("batch %d of epoch %d has %d rows, fewer than the inputs, and is not the last: want Weights for such", at-1, n, left)
		}
		fitted, rows, err := p.fitter.fit(b)
		if err != nil {
			return fmt.Errorf("batch %d of epoch %d: %w", at, n, err)
		}
		at++
		if fitted == nil {
			left = rows
			continue
		}
		wanted := p.deliver(item{batch: fitted})
		if steps++; p.steps > 0 {
			if p.steps--; p.steps == 0 && wanted {
				return errComplete
			}
		}
		if !wanted {
			return errUnwanted
		}
	}
	if steps == 0 && !underWay {
		if left > 0 {
			return fmt.Errorf("epoch %d has no batch of full size: got %d rows, fewer than the inputs", n, left)
		}
		return fmt.Errorf("epoch %d has no batches", n)
	}
	if !p.deliver(item{left: left}) {
		return errUnwanted
	}
	return nil
}
