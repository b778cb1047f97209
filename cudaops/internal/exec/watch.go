package exec

import (
	"fmt"
	"time"

	"github.com/stheno-ml/stheno/kernels"
)

// Peers are the processes of the other ranks.
type Peers interface {
	Exchange
	// Check returns an error that names a rank whose process has ended, if this rank is in no Exchange.
	Check() error
}

// watch ends a rank's collectives on a GPU that other ranks will not complete: they wait on the device, without limit.
type watch struct {
	limit time.Duration
	check func() error // returns the error of a collective or of a rank that has ended
	late  func() error // after limit: returns an error that names a rank that does not answer
	abort func()       // ends the collectives, so that the wait ends
}

// checkEvery is the time between checks. A run that ends before the first one has none.
const checkEvery = 100 * time.Millisecond

// during calls wait, which waits for the device, and returns why it has ended the collectives meanwhile, or the error of wait.
func (w watch) during(wait func() error) error {
	done, why := make(chan struct{}), make(chan error)
	go func() { why <- w.until(done) }()
	err := wait()
	close(done)
	if ended := <-why; ended != nil {
		return ended // the device's own error follows from it
	}
	return err
}

// until checks until done is closed.
func (w watch) until(done chan struct{}) error {
	began, tick := time.Now(), time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
		}
		err := w.check()
		if err == nil && time.Since(began) > w.limit {
			err = w.late()
		}
		if err != nil {
			w.abort()
			return err
		}
	}
}

// watchRanks makes the GPU's waits watch its collectives; peers is nil if all ranks are in this process.
func (g *GPUBackend) watchRanks(peers Peers, limit time.Duration, ranks int) {
	g.watch = &watch{limit: limit, check: g.comm.AsyncError, abort: g.AbortRanks}
	late := fmt.Errorf("collectives have not completed within %v", limit)
	g.watch.late = func() error { return late }
	if peers == nil {
		return
	}
	g.watch.check = func() error {
		if err := peers.Check(); err != nil {
			return err
		}
		return g.comm.AsyncError()
	}
	g.watch.late = func() error { // those that wait answer
		c, one := kernels.Collective{Kind: kernels.AllReduce, Ranks: ranks}, []byte{1}
		if err := peers.Exchange(c, kernels.Uint8, one, make([]byte, 1)); err != nil {
			return err
		}
		return late
	}
}
