package train

import (
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"
)

// rows are those of a data set and their order: from the first to the last, or shuffled.
type rows struct {
	count, batch int
	shuffled     bool
	seed         uint64
}

// Order names the order: a training goes on in the one that it began in.
func (r *rows) Order() string {
	how := "in order"
	if r.shuffled {
		how = fmt.Sprintf("shuffled by seed %d", r.seed)
	}
	return fmt.Sprintf("%d rows, %s, in batches of %d", r.count, how, r.batch)
}

// batches returns the number of batches in an epoch, the short one among them or not.
func (r *rows) batches(short bool) int {
	if r.batch == 0 {
		return 0
	}
	n := r.count / r.batch
	if short && r.count%r.batch > 0 {
		n++
	}
	return n
}

// epoch returns the numbers of the rows in the order of an epoch. The shuffle is written out
// here because the library's may be another in another version of Go, and a training that
// goes on has to find the same one.
func (r *rows) epoch(n int) []int {
	order := make([]int, r.count)
	for i := range order {
		order[i] = i
	}
	if !r.shuffled {
		return order
	}
	random := rand.NewPCG(r.seed, uint64(n))
	for i := len(order) - 1; i > 0; i-- {
		high, _ := bits.Mul64(random.Uint64(), uint64(i+1)) // 0 to i, with a bias below 2^-32
		order[i], order[high] = order[high], order[i]
	}
	return order
}

// chunks iterates over the batches of an epoch from one on: take makes the batch of rows.
func (r *rows) chunks(epoch, from int, take func(order []int) (Batch, error)) iter.Seq2[Batch, error] {
	switch {
	case r.batch == 0:
		return failing("got a data set that NewData or NewDeviceData did not make")
	case from < 0:
		return failing("got batch %d to begin with, want 0 or more", from)
	}
	return func(yield func(Batch, error) bool) {
		for at, order := min(from, r.batches(true))*r.batch, r.epoch(epoch); at < r.count; at += r.batch {
			if !yield(take(order[at:min(at+r.batch, r.count)])) {
				return
			}
		}
	}
}
