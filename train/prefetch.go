package train

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"gorgonia.org/gorgonia"
)

// item is a batch of the source or, with batch nil, the end of an epoch.
type item struct {
	batch Batch
	// short is the number of rows of a batch that is padded, full that of the inputs. Both are 0 if it is not padded.
	short, full int
	left        int // at the end of an epoch, rows of a short batch that is left out
}

// prefetcher makes a limited number of batches ahead, in another goroutine.
//
// The producer consumes a token before it makes an item, and the consumer returns a token for each item. Without initial
// tokens the two alternate.
type prefetcher struct {
	source Source
	fitter *fitter
	epochs int // 0: no limit
	steps  int // steps left; 0: no limit

	tokens chan struct{}
	items  chan item
	cancel context.CancelFunc
	done   <-chan struct{} // closed when the producer must stop
	// Valid after items is closed: the error of the source, and whether all batches were made.
	err      error
	complete bool
	staging  sync.WaitGroup // the goroutine of stage
}

// Reasons to end an epoch early: all batches were made, or the consumer wants no more.
var (
	errComplete = errors.New("complete")
	errUnwanted = errors.New("unwanted")
)

// prefetch starts to make the batches from a position on.
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

// next returns the next item, or false after the last one.
func (p *prefetcher) next() (item, bool) {
	select {
	case p.tokens <- struct{}{}:
	case <-p.done:
	}
	it, ok := <-p.items
	return it, ok
}

// stop stops the producer, waits for it and returns the error of the source.
func (p *prefetcher) stop() error {
	p.cancel()
	p.staging.Wait()
	for range p.items { // until it is closed
	}
	return p.err
}

// finish is stop for a consumer that ended with an error or nil. It returns both errors.
func (p *prefetcher) finish(err error) error {
	failed := p.stop()
	if err != nil && errors.Is(failed, err) {
		return failed // the more specific error
	}
	return errors.Join(err, failed)
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
				_, _ = to(it.batch) // the step of a wrong batch returns the error
			}
			select {
			case items <- it:
			case <-p.done:
				for range p.items { // until it is closed
				}
				p.complete = false // this item was not consumed
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

// awaitToken waits for a token and reports whether it got one; otherwise the consumer wants no more items.
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

// deliver sends an item and waits for the token of the next one.
func (p *prefetcher) deliver(it item) bool {
	select {
	case p.items <- it:
		return p.awaitToken()
	case <-p.done:
		return false
	}
}

// epoch makes the items of an epoch. An epoch that was started before From may have no batches left.
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
		fitted, short, full, err := p.fitter.fit(b)
		if err != nil {
			return fmt.Errorf("batch %d of epoch %d: %w", at, n, err)
		}
		at++
		if fitted == nil {
			left = short
			continue
		}
		wanted := p.deliver(item{batch: fitted, short: short, full: full})
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
