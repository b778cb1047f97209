package train

import (
	"fmt"
	"iter"

	"gorgonia.org/gorgonia"
)

// Batch is the input of a step: values of inputs of the graph, the same inputs in every batch of a training. A learnable is not
// among them.
type Batch map[*gorgonia.Node]gorgonia.Value

// Source makes the batches of a training.
//
// Batches returns the batches of an epoch, counted from 0, without the first `from` ones. It is
// called once for each epoch, in order, and iterated over once, in another goroutine than the one
// that called [Run]. A batch belongs to the loop once it was yielded, until its step was made and the device has copied it:
// the loop has at most n + 2 batches at one time under [Prefetch] n, so an iterator may fill n + 2 of them in turn,
// best in memory of [cudaops.Pinned].
//
// The first error ends the training, and so does a panic. An iterator that waits for
// something should also wait for the context that Run was given: Run does not return before
// it does.
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

// failing returns batches of which the first is an error.
func failing(format string, a ...any) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) { yield(nil, fmt.Errorf(format, a...)) }
}

// Seq makes a source of an iterator over the batches of an epoch: every epoch iterates over
// it again. To go on from the middle of an epoch, it makes the batches before and drops them.
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

// ordered is a source with an order that can be named, so that a training is not continued
// in another.
type ordered interface{ Order() string }

// counted is a source that knows its number of batches in an epoch, those that are short
// among them or not.
type counted interface{ batches(short bool) int }

// order returns the name of a source's order, "" for one that has none.
func order(s Source) string {
	if o, ok := s.(ordered); ok {
		return o.Order()
	}
	return ""
}
