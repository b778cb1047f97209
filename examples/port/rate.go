package main

import (
	"time"

	"github.com/stheno-ml/stheno/cudaops"
)

// rate returns the steps per second of a stage once it is under way, the most of three tries: others
// may use the machine, too. An epoch trains on d. All of it takes about `long`, if a training of one epoch
// is short beside that.
func (s stage) rate(d data, long time.Duration, opts ...cudaops.Option) (best float64, err error) {
	const tries = 3
	began := time.Now()
	train := func(epochs int) (steps int, took time.Duration, err error) {
		start := time.Now()
		losses, err := s.run(d, epochs, 1, opts...)
		return len(losses), time.Since(start), err
	}
	// A training of one epoch is the start, which does not count; a longer one shows how long an epoch takes.
	few, short, err := train(1)
	if err != nil {
		return 0, err
	}
	epochs := 2
	for ; ; epochs *= 4 {
		steps, took, err := train(epochs)
		if err != nil {
			return 0, err
		}
		if took > short+long/20 {
			best = float64(steps-few) / (took - short).Seconds()
			break
		}
	}
	epochs = max(2, int(best*long.Seconds()/tries)/few)
	for try := 0; try < tries && time.Since(began) < long; try++ {
		steps, took, err := train(epochs)
		if err != nil {
			return 0, err
		}
		if rate := float64(steps-few) / (took - short).Seconds(); took > short && (try == 0 || rate > best) {
			best = rate
		}
	}
	return best, nil
}
