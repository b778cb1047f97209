package nn

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// drawChunk is the number of random words of a chunk, and of elements that are drawn in order first.
const drawChunk = 1 << 14

// drawAll draws elements one after the other with the random words of a seed. Long lists are drawn concurrently, with the same values. How many words an element takes is known only
// when it is drawn, so the elements of a chunk of words begin at the chunk's first word; they are right from the first element on that begins where an element of the list
// begins, mostly the first or second. The elements before it are drawn again. An Init that takes no word for some elements may have a state of its own: it is called in order.
func drawAll[T float32 | float64](list []T, seed pcgState, init Init) {
	first, inOrder := words{PCG: seed.after(0)}, runtime.GOMAXPROCS(0) == 1
	r := rand.New(&first)
	i := 0
	for ; i < len(list) && (i < drawChunk || inOrder); i++ {
		before := first.taken
		list[i] = T(init(r))
		inOrder = inOrder || first.taken == before
	}
	next := first.taken // the number of element i's first word
	chunks := make([]chunk, min(runtime.GOMAXPROCS(0), int(kernels.CeilDiv(int64(len(list)-i), drawChunk))))
	for i < len(list) {
		from := next
		kernels.Parallel(int64(len(chunks)), 1, func(lo, hi int64) {
			for c := lo; c < hi; c++ {
				chunks[c].draw(seed.after(from+uint64(c)*drawChunk), init)
			}
		})
		for c := range chunks {
			begin := from + uint64(c)*drawChunk
			own := words{PCG: seed.after(next)}
			r := rand.New(&own)
			k, found := 0, false
			for !found && next+own.taken < begin+drawChunk && i < len(list) {
				if k, found = slices.BinarySearch(chunks[c].starts, next+own.taken-begin); !found {
					list[i] = T(init(r))
					i++
				}
			}
			chunks[c].used, chunks[c].to = nil, i
			if next += own.taken; found {
				chunks[c].used = chunks[c].values[k:min(len(chunks[c].values), k+len(list)-i)]
				next, i = begin+chunks[c].taken, i+len(chunks[c].used)
			}
		}
		kernels.Parallel(int64(len(chunks)), 1, func(lo, hi int64) {
			for _, c := range chunks[lo:hi] {
				for k, v := range c.used {
					list[c.to+k] = T(v)
				}
			}
		})
	}
}

// chunk is the elements that begin in a chunk of words, if one begins at its first word.
type chunk struct {
	values []float64
	starts []uint64  // of each value, the number of words before it
	taken  uint64    // words of all values
	used   []float64 // the last values, which are those of the list from element `to` on
	to     int
}

func (c *chunk) draw(source rand.PCG, init Init) {
	own := words{PCG: source}
	r := rand.New(&own)
	c.values, c.starts = slices.Grow(c.values[:0], drawChunk), slices.Grow(c.starts[:0], drawChunk)
	for own.taken < drawChunk && len(c.values) < drawChunk { // an Init need not take words for ever
		c.starts = append(c.starts, own.taken)
		c.values = append(c.values, init(r))
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
