package train

import (
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"
)

// rows describes the rows of a data set and their order: sequential or shuffled.
type rows struct {
	count, batch int
	shuffled     bool
	seed         uint64
	all, offset  int // with several ranks: rows of a batch of all processes, and the first of this process's batch among them
}

// onRanks makes a batch the rows of several ranks of this process, from rank first on of all ranks.
func (r *rows) onRanks(ranks, first, all int) {
	r.batch, r.all, r.offset = r.batch*ranks, r.batch*all, r.batch*first
}

// whole returns the rows of a batch of all processes.
func (r *rows) whole() int { return max(r.batch, r.all) }

// Order returns the name of the order; a training can only be continued in the same order.
func (r *rows) Order() string {
	how := "in order"
	if r.shuffled {
		how = fmt.Sprintf("shuffled by seed %d", r.seed)
	}
	return fmt.Sprintf("%d rows, %s, in batches of %d", r.count, how, r.whole())
}

// batches returns the number of batches in an epoch, with or without the short one.
func (r *rows) batches(short bool) int {
	if r.batch == 0 {
		return 0
	}
	n := r.count / r.whole()
	if short && r.count%r.whole() > 0 {
		n++
	}
	return n
}

// epoch returns the row numbers in the order of an epoch. It implements the shuffle because the standard library's may change
// between versions of Go, and a continued training needs the same order.
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

// chunks iterates over the batches of an epoch, starting with batch from; take makes a batch of row numbers.
func (r *rows) chunks(epoch, from int, take func(order []int) (Batch, error)) iter.Seq2[Batch, error] {
	switch {
	case r.batch == 0:
		return failing("got a data set that NewData or NewDeviceData did not make")
	case from < 0:
		return failing("got batch %d to begin with, want 0 or more", from)
	}
	return func(yield func(Batch, error) bool) {
		for at, order := min(from, r.batches(true))*r.whole(), r.epoch(epoch); at < r.count; at += r.whole() {
			if r.whole() > r.batch && at+r.whole() > r.count {
				return // the processes would have different numbers of rows
			}
			if !yield(take(order[at+r.offset : min(at+r.offset+r.batch, r.count)])) {
				return
			}
		}
	}
}
