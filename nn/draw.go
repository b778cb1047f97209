package nn

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stheno-ml/stheno/kernels"
)

// drawnFirst is the number of elements that are drawn in order first.
const drawnFirst = 1 << 14

// drawAll draws elements one after the other with the random words of a seed. Long lists are drawn concurrently, with the same values. How many words an element takes is known only
// when it is drawn, so the elements of a chunk of words begin at the chunk's first word; they are right from the first element on that begins where an element of the list
// begins, mostly the first or second. The elements before it are drawn again. An Init that takes no word for some elements may have a state of its own: it is called in order.
func drawAll[T float32 | float64](list []T, seed pcgState, init Init) {
	first, inOrder := words{PCG: seed.after(0)}, runtime.GOMAXPROCS(0) == 1
	r := rand.New(&first)
	i := 0
	for ; i < len(list) && (i < drawnFirst || inOrder); i++ {
		before := first.taken
		list[i] = T(init(r))
		inOrder = inOrder || first.taken == before
	}
	if i == len(list) {
		return
	}
	d := drawing[T]{list: list, seed: seed, init: init, from: first.taken, done: make(chan struct{})}
	left := int64(float64(len(list)-i) * float64(first.taken) / float64(i)) // words, nearly
	workers := min(int64(runtime.GOMAXPROCS(0)), kernels.CeilDiv(left, minChunk))
	d.words = uint64(max(minChunk, min(left/(4*workers), maxChunk)))
	d.likely = kernels.CeilDiv(left, int64(d.words))
	for range workers {
		d.turns = append(d.turns, make(chan place, 1))
	}
	d.turns[0] <- place{first.taken, i}
	kernels.Parallel(workers, 1, func(int64, int64) { d.chunks() })
}

// minChunk and maxChunk are the least and the greatest number of random words of a chunk.
const minChunk, maxChunk = 1 << 12, 1 << 16

// drawing is a list that is drawn by chunks of words, which goroutines draw at the same time and join to the list in order.
type drawing[T float32 | float64] struct {
	list   []T
	seed   pcgState
	init   Init
	from   uint64 // the number of the first chunk's first word
	words  uint64 // of a chunk
	likely int64  // the number of chunks that are needed, nearly
	begun  atomic.Int64
	turns  []chan place  // of chunk c, element c modulo the number of goroutines: where the list goes on
	done   chan struct{} // closed when the list is drawn, or an Init panics
	end    sync.Once
}

// place is the number of an element's first word, and of the element.
type place struct {
	word    uint64
	element int
}

// chunks draws chunks until the list is drawn. Those after the likely number are drawn when it is known that they are needed.
func (d *drawing[T]) chunks() {
	own, _ := spare.Get().(*chunk[T])
	if own == nil {
		own = new(chunk[T])
	}
	defer spare.Put(own)
	defer d.end.Do(func() { close(d.done) })
	for {
		number := d.begun.Add(1) - 1
		begin, n := d.from+uint64(number)*d.words, int64(len(d.turns))
		if number < d.likely {
			own.draw(d.seed.after(begin), d.words, d.init)
		}
		var at place
		select {
		case at = <-d.turns[number%n]:
		case <-d.done:
			return
		}
		if number >= d.likely {
			own.draw(d.seed.after(begin), d.words, d.init)
		}
		used, to := d.join(own, begin, at)
		if to.element == len(d.list) {
			copy(d.list[to.element-len(used):], used)
			return
		}
		d.turns[(number+1)%n] <- to
		copy(d.list[to.element-len(used):], used)
	}
}

// join finds which elements of a chunk are the next of the list, and draws those before them. It returns the place after them.
func (d *drawing[T]) join(c *chunk[T], begin uint64, at place) (used []T, to place) {
	own := words{PCG: d.seed.after(at.word)}
	r := rand.New(&own)
	for to = at; to.word < begin+d.words && to.element < len(d.list); to.word = at.word + own.taken {
		if to.word >= begin {
			if k, found := slices.BinarySearch(c.starts, uint16(to.word-begin)); found {
				used = c.values[k:min(len(c.values), k+len(d.list)-to.element)]
				return used, place{begin + c.taken, to.element + len(used)}
			}
		}
		d.list[to.element] = T(d.init(r))
		to.element++
	}
	return nil, to
}

// spare holds chunks that are not in use: a model has many parameters.
var spare sync.Pool

// chunk is the elements that begin in a chunk of words, if one begins at its first word.
type chunk[T float32 | float64] struct {
	values []T
	starts []uint16 // of each value, the number of words before it
	taken  uint64   // words of all values
}

func (c *chunk[T]) draw(source rand.PCG, n uint64, init Init) {
	own := words{PCG: source}
	r := rand.New(&own)
	c.values, c.starts = slices.Grow(c.values[:0], int(n)), slices.Grow(c.starts[:0], int(n))
	for own.taken < n && uint64(len(c.values)) < n { // an Init need not take words for ever
		c.starts = append(c.starts, uint16(own.taken))
		c.values = append(c.values, T(init(r)))
	}
	c.taken = own.taken
}

// words is a source that counts the words that are taken.
type words struct {
	rand.PCG
	taken uint64
}

func (w *words) Uint64() uint64 {
	w.taken++
	return w.PCG.Uint64()
}

// pcgState is a state of a rand.PCG, a number of 128 bits: its high and low words, which are the seeds of rand.NewPCG.
type pcgState struct{ hi, lo uint64 }

// after returns a rand.PCG whose next word is number n of those that follow the state. A step of rand.PCG is state·a + c, so n steps are by squaring.
func (s pcgState) after(n uint64) rand.PCG {
	a, c := pcgState{2549297995355413924, 4865540595714422341}, pcgState{6364136223846793005, 1442695040888963407}
	for ; n > 0; n /= 2 {
		if n%2 == 1 {
			s = s.times(a).plus(c)
		}
		a, c = a.times(a), c.times(a).plus(c)
	}
	return *rand.NewPCG(s.hi, s.lo)
}

func (s pcgState) times(t pcgState) pcgState {
	hi, lo := bits.Mul64(s.lo, t.lo)
	return pcgState{hi + s.hi*t.lo + s.lo*t.hi, lo}
}

func (s pcgState) plus(t pcgState) pcgState {
	lo, carry := bits.Add64(s.lo, t.lo, 0)
	return pcgState{s.hi + t.hi + carry, lo}
}
