package train

import (
	"fmt"
	"time"
)

// Position records the progress of a training. It is plain data: save it with the parameters and pass it to [From].
type Position struct {
	Epoch int // completed epochs
	Batch int // completed batches of the current epoch
	Step  int // steps made in total
	// Order is the source's name of the order of batches, or "".
	Order string
}

// String returns the position in words.
func (p Position) String() string {
	return fmt.Sprintf("step %d (epoch %d, batch %d)", p.Step, p.Epoch, p.Batch)
}

// Step describes a completed step.
type Step struct {
	Position
	// Loss is the loss of the step before its update. If the run has no results, under cudaops.ReadEvery, it is the last known
	// loss, or NaN.
	Loss float64
}

// Epoch describes a completed epoch, or the part of an epoch that [Steps] allowed.
type Epoch struct {
	Number   int           // counted from 1
	Position               // position after the epoch
	Steps    int           // steps of the epoch made by this Run, or since the first Run with its Checkpoint; after a part that the option Steps allowed, of the rest
	Loss     float64       // mean of the known losses of these steps, or NaN
	Time     time.Duration // since Run was called; 0 for an epoch of an earlier Run
	// Scores are the metrics of Validate by name, or nil.
	Scores map[string]float64
}

// Loss is the loss of a step, counted from 1.
type Loss struct {
	Step int
	Loss float64
}

// History is the record of a training. Epochs and Best include those before the [Checkpoint] that the training continued from; Losses,
// Steps, Left and Time are of this Run.
type History struct {
	Losses []Loss  // of every step; under cudaops.ReadEvery of the steps with results
	Epochs []Epoch // completed epochs
	Best   int     // number of the epoch with the best first score of Validate, or 0
	// Stopped reports whether EarlyStop ended the training.
	Stopped bool
	Begin   Position
	End     Position
	Steps   int           // steps made by this Run
	Left    int           // rows left out in short batches: see Weights
	Time    time.Duration // duration of Run
	Note    string        // note of checkpoint.Load about the file that the training continued from, or ""
}

// Rate returns the number of steps per second.
func (h History) Rate() float64 {
	if h.Time <= 0 {
		return 0
	}
	return float64(h.Steps) / h.Time.Seconds()
}
