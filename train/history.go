package train

import (
	"fmt"
	"time"
)

// Position records how far a training has come. It is plain data: save it beside the
// parameters and pass it to [From].
type Position struct {
	Epoch int // whole epochs
	Batch int // batches taken of the epoch after them
	Step  int // steps made in all
	// Order names the order of the batches, as the source does, "" if it does not.
	Order string
}

// String returns the position in words.
func (p Position) String() string {
	return fmt.Sprintf("step %d (epoch %d, batch %d)", p.Step, p.Epoch, p.Batch)
}

// Step describes a step that has been made.
type Step struct {
	Position
	// Loss is that of the step, before its update. Where runs hand over nothing, under
	// cudaops.ReadEvery, it is the last one known, NaN if there is none yet.
	Loss float64
}

// Epoch describes an epoch that has ended, or the part of one that Steps allowed.
type Epoch struct {
	Number   int           // counted from 1
	Position               // where the training goes on
	Steps    int           // made in the epoch, by this Run
	Loss     float64       // mean of those steps, NaN if none is known
	Time     time.Duration // since Run was called
}

// Loss is the loss of a step, counted from 1.
type Loss struct {
	Step int
	Loss float64
}

// History is the record of a training.
type History struct {
	Losses []Loss  // of every step, under cudaops.ReadEvery of those that handed it over
	Epochs []Epoch // those that ended
	Begin  Position
	End    Position
	Steps  int           // made by this Run
	Left   int           // rows that were left out, in batches with too few: see Weights
	Time   time.Duration // that Run took
	Note   string        // note of checkpoint.Load about the file that the training continued from, or ""
}

// Rate returns the steps made in a second.
func (h History) Rate() float64 {
	if h.Time <= 0 {
		return 0
	}
	return float64(h.Steps) / h.Time.Seconds()
}
