package main

import (
	"time"

	"github.com/stheno-ml/stheno/cudaops"
)

// rate returns the steps per second of a stage once it is under way, the most of three tries: others
// may use the machine, too. All of it takes about as long as it is told, if a training of one epoch
// is short beside that.
func (s stage) rate(long time.Duration, opts ...cudaops.Option) (best float64, err error) {
	const tries = 3
	d := newData(8, 1)
	train := func(epochs int) (steps int, took time.Duration, err error) {
		start := time.Now()
		losses, err := s.run(d, epochs, 1, opts...)
		return len(losses), time.Since(start), err
	}
	// A training of one epoch is the start; a longer one says what an epoch takes.
	few, short, err := train(1)
	if err != nil {
		return 0, err
	}
	epochs, each := 2, time.Duration(0)
	for {
		_, took, err := train(epochs)
		if err != nil {
			return 0, err
		}
		if each = (took - short) / time.Duration(epochs-1); took > short+long/20 {
			break
		}
		epochs *= 4
	}
	epochs = max(2, int(long/tries/max(each, 1)))
	for range tries {
		steps, took, err := train(epochs)
		if err != nil {
			return 0, err
		}
		if took > short {
			best = max(best, float64(steps-few)/(took-short).Seconds())
		}
	}
	return best, nil
}
