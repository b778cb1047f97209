package basic

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/philox"
)

var categorical = own.Pair("categorical", "categorical", categoricalBody[float32], categoricalBody[float64])

// Constants of categorical.cu.
const (
	categoricalChunks = 1 << 11 // max chunks of a row
	categoricalChunk  = 256     // elements of a chunk, or a multiple of them
	categoricalBins   = 1 << 12 // by which the masses of a row are added up
	categoricalListed = 1 << 10 // elements of a bin that are compared
	categoricalState  = 2       // int64 of a state: the seed and the number of the run
)

// Draws describes draws from rows of logits.
type Draws struct {
	Rows, N           int64
	Temperature, K, P int64 // elements of these operands: 1 for all rows, or Rows
	Stream            int64 // number of the stream of random bits
}

type categoricalArgs struct {
	Logits, Temperature, K, P     kernels.Ref
	TemperatureEach, KEach, PEach bool
	State                         kernels.Ref
	N, Stream, Chunks, Size       int64 `arg:"int32"`
	Out, List, Sums, Arrivals     kernels.Ref
	Parts, ChunksEach, Joining    int64 `arg:"int32"`
}

// Categorical plans one draw of an index, as Int64, for each row of logits. The inputs are the logits, Rows x N, temperature and p, of the type of the logits, k, of Int64, each of
// Rows elements or one, as d says, and a state of two Int64: the seed, and the number of the run, of which 32 bits count.
//
// Probabilities are proportional to exp(logit / temperature). A row is sorted in falling order, as [TopK] sorts it. The draw keeps the k largest elements, whose probabilities then
// add up to 1; of these it keeps the fewest largest whose probabilities add up to p. k < 1 or k >= N, and p >= 1, do not restrict; p <= 0 keeps the largest. A temperature of 0, or of no positive normal number, takes the
// largest. Where the largest logit is not finite, NaN being larger than all, out is -1: such a row has a NaN, an Inf, or no finite logit.
//
// A draw is the first element, in falling order if k or p restricts the row and in order of indices if not, at which the cumulative probability exceeds u, a number in [0, 1) of 64 bits:
// the words of a float64 number r, for row r, of Philox4x32-10, as random operands of maps have them. Probabilities are rounded to the element type, so that draws on the host and on a device
// differ only where u is within rounding of a boundary.
func Categorical(dev kernels.Device, dt kernels.Dtype, d Draws) (*kernels.Plan, error) {
	p := &kernels.Plan{Op: fmt.Sprintf("categorical_%v(%d x %d)", dt, d.Rows, d.N)}
	err, perRow := checkFloats(dev, dt), func(n int64) bool { return n == d.Rows && n != 1 }
	switch {
	case err != nil:
	case d.Rows < 0 || d.N < 1 || d.N >= 1<<31:
		err = fmt.Errorf("got %d rows of %d logits, want rows of 1 to 2^31 - 1", d.Rows, d.N)
	case d.Stream < 0 || d.Stream >= 1<<31:
		err = fmt.Errorf("got stream %d, want 0 to 2^31 - 1", d.Stream)
	case d.Temperature != 1 && !perRow(d.Temperature) || d.K != 1 && !perRow(d.K) || d.P != 1 && !perRow(d.P):
		err = fmt.Errorf("got %d temperatures, %d k, %d p, want one or %d of each", d.Temperature, d.K, d.P, d.Rows)
	default:
		err = kernels.CheckGrid(d.Rows)
	}
	size := dt.Size()
	if p.Inputs, p.Out = []int64{d.Rows * d.N * size, d.Temperature * size, d.K * 8, d.P * size, categoricalState * 8}, d.Rows*8; err != nil || d.Rows == 0 {
		return p.Or(err)
	}
	chunk := int64(categoricalChunk)
	chunk *= kernels.CeilDiv(d.N, chunk*categoricalChunks)
	chunks := kernels.CeilDiv(d.N, chunk)
	parts, each := selectPolicies.On(dev).parts(dev, d.Rows, d.N, 1, chunk)
	most := min(d.N, MaxTopK) // of k, which is not known
	s, out := selectionOf(each, most), kernels.At(kernels.Out, 0)
	args := categoricalArgs{kernels.In(0), kernels.In(1), kernels.In(2), kernels.In(3), perRow(d.Temperature), perRow(d.K), perRow(d.P), kernels.In(4),
		d.N, d.Stream, chunks, chunk, out, out, out, out, parts, kernels.CeilDiv(each, chunk), 0}
	shared := max(s.shared(dev, dt, most), selectionOf(each, min(most, selectLargeK)).shared(dev, dt, min(most, selectLargeK)), 2*size*chunks)
	if d.N > MaxTopK {
		shared = max(shared, 8*categoricalBins+(12+size)*categoricalListed+8*size+32)
	}
	if parts > 1 {
		args.List, args.Sums, args.Arrivals = p.Workspace(d.Rows*parts*MaxTopK*2*size), p.Workspace(d.Rows*chunks*2*size), arrivals(d.Rows, out)
	}
	joining := args
	joining.Joining = 1
	launches(p, categorical[dt], d.Rows, parts, s, shared, args, joining)
	return p, nil
}

func categoricalBody[T kernels.Float](c kernels.Call) {
	a := kernels.Args[categoricalArgs](c)
	logits, temperature, k, p := kernels.Slice[T](c, a.Logits), kernels.Slice[T](c, a.Temperature), kernels.Slice[int64](c, a.K), kernels.Slice[T](c, a.P)
	state, out := kernels.Slice[int64](c, a.State), kernels.Slice[int64](c, a.Out)
	key := [2]uint32{uint32(state[0]), uint32(state[0] >> 32)}
	of := func(r int64, each bool) int64 {
		if each {
			return r
		}
		return 0
	}
	kernels.Parallel(selectedRows(c, a.Parts, a.Joining), max(kernels.Grain/(8*a.N), 1), func(lo, hi int64) {
		for r := lo; r < hi; r++ {
			words := philox.Block(key, uint32(a.Stream), uint32(state[1]), uint64(r/2))
			u := uint64(words[r%2*2+1])<<32 | uint64(words[r%2*2])
			out[r] = drawFrom(logits[r*a.N:(r+1)*a.N], temperature[of(r, a.TemperatureEach)], k[of(r, a.KEach)], float64(p[of(r, a.PEach)]), u)
		}
	})
}

// drawFrom returns the index that is drawn from a row, as [Categorical] says, for 64 random bits. Masses are whole numbers, as in categorical.cu.
func drawFrom[T kernels.Float](x []T, temperature T, k int64, p float64, u uint64) int64 {
	n := int64(len(x))
	if k < 1 || k > n {
		k = n
	}
	inverse := 1 / temperature
	if least := leastNormal[T](); !(temperature >= least) {
		k, inverse, p = 1, 1, 1
	}
	top := largest(x, 1)[0]
	if most := float64(x[top]); math.IsNaN(most) || math.IsInf(most, 0) {
		return -1
	}
	scale := T(uint64(1) << (62 - bits.Len32(uint32(n))))
	mass := func(i int64) uint64 {
		if e := T(math.Exp(float64((x[i] - x[top]) * inverse))); e > 0 {
			return uint64(e * scale)
		}
		return 0
	}
	order := make([]int64, n)
	for i := range order {
		order[i] = int64(i)
	}
	if k < n || p < 1 {
		slices.SortFunc(order, func(i, j int64) int { return falling(x[i], x[j], i, j) })
	}
	total := uint64(0)
	for _, i := range order[:k] {
		total += mass(i)
	}
	if p < 1 {
		wanted, kept := min(uint64(max(math.Ceil(p*float64(total)), 1)), total), uint64(0)
		for _, i := range order[:k] {
			if kept += mass(i); kept >= wanted {
				break
			}
		}
		total = kept
	}
	target, _ := bits.Mul64(u, total)
	sum := uint64(0)
	for _, i := range order {
		if sum += mass(i); sum > target {
			return i
		}
	}
	return top
}

func leastNormal[T kernels.Float]() T {
	var zero T
	if _, single := any(zero).(float32); single {
		return T(math.Float32frombits(1 << 23))
	}
	return T(math.Float64frombits(1 << 52))
}
