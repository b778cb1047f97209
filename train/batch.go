package train

import (
	"fmt"
	"iter"

	"gorgonia.org/gorgonia"
)

// Batch holds the values of the graph's inputs in a step, except learnables. All batches of a training have the same inputs.
type Batch map[*gorgonia.Node]gorgonia.Value

// Source makes the batches of a training.
//
// Batches returns the batches of an epoch, counted from 0, without the first `from` ones. [Run] calls it once for each
// epoch, in order, and iterates over the result once, in another goroutine.
//
// A yielded batch belongs to the loop until its step has been made and the device has copied it. With [Prefetch] n the
// loop holds at most n + 2 batches, so an iterator may recycle n + 2 batches, best in memory of [cudaops.Pinned].
//
// The first error ends the training, and so does a panic. Run waits for the iterator, so an iterator that blocks
// should also wait for Run's context.
type Source interface {
	Batches(epoch, from int) iter.Seq2[Batch, error]
}

// SourceFunc is a function as a [Source].
type SourceFunc func(epoch, from int) iter.Seq2[Batch, error]

// Batches calls the function.
func (f SourceFunc) Batches(epoch, from int) iter.Seq2[Batch, error] {
	if f == nil {
		return failing("got a nil SourceFunc")
	}
	return f(epoch, from)
}

// failing returns batches that yield only an error.
func failing(format string, a ...any) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) { yield(nil, fmt.Errorf(format, a...)) }
}

// Seq returns a source that iterates over batches once in every epoch. To continue from the middle of an epoch, it skips
// the earlier batches.
func Seq(batches iter.Seq2[Batch, error]) Source {
	if batches == nil {
		batches = failing("Seq got a nil iterator")
	}
	return SourceFunc(func(_, from int) iter.Seq2[Batch, error] {
		return func(yield func(Batch, error) bool) {
			n := 0
			for b, err := range batches {
				if n++; n <= from && err == nil {
					continue
				}
				if !yield(b, err) {
					return
				}
			}
		}
	})
}

// ordered is a source whose order has a name, so that a training is not continued in another order.
type ordered interface{ Order() string }

// counted is a source that knows its number of batches in an epoch, with or without short batches.
type counted interface{ batches(short bool) int }

// ranked is a source that makes the batches of several ranks of this process, from rank first on of all ranks.
type ranked interface {
	onRanks(ranks, first, all int, split gorgonia.Nodes) (Source, error)
}

// order returns the name of a source's order, or "".
func order(s Source) string {
	if o, ok := s.(ordered); ok {
		return o.Order()
	}
	return ""
}
