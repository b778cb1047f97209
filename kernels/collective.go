package kernels

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// CollectiveKind is what a collective computes from the values of n ranks. x[s] is the value of rank s and out[r] the result of
// rank r; the reduction of values is their sum in the order of the ranks, or the sum divided by n.
type CollectiveKind uint8

// The kinds.
const (
	AllReduce     CollectiveKind = iota // out[r] = the reduction of all x
	Reduce                              // out[Root] = the reduction of all x; zeros on other ranks
	Broadcast                           // out[r] = x[Root]
	AllGather                           // out[r] = x[0], ..., x[n-1] concatenated along the first axis
	ReduceScatter                       // out[r] = part r of n, along the first axis, of the reduction of all x
	OwnPart                             // out[r] = part r of n, along the first axis, of x[r]: no rank waits for another
)

var kinds = [...]string{"AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "OwnPart"}

// String returns the kind's name.
func (k CollectiveKind) String() string {
	if int(k) >= len(kinds) {
		return fmt.Sprintf("CollectiveKind(%d)", k)
	}
	return kinds[k]
}

// reduces reports whether a kind computes with numbers.
func (k CollectiveKind) reduces() bool { return k == AllReduce || k == Reduce || k == ReduceScatter }

// Collective is an operation on the values that ranks have of one operand.
type Collective struct {
	Kind  CollectiveKind
	Ranks int  // n
	Root  int  // of Reduce and Broadcast
	Mean  bool // of the kinds that reduce: the mean of the ranks instead of the sum
}

// String returns the kind with its parameters.
func (c Collective) String() string {
	s := c.Kind.String()
	if c.Mean {
		s += " mean"
	}
	if c.Kind == Reduce || c.Kind == Broadcast {
		s += fmt.Sprintf(" of rank %d", c.Root)
	}
	return fmt.Sprintf("%s of %d ranks", s, c.Ranks)
}

// Check returns an error unless ranks can compute the collective of values with the given numbers of elements.
func (c Collective) Check(d Dtype, in, out int64) error {
	n, want := int64(c.Ranks), in
	switch c.Kind {
	case AllGather:
		want = in * n
	case ReduceScatter, OwnPart:
		want = in / max(n, 1)
	}
	switch {
	case int(c.Kind) >= len(kinds):
		return fmt.Errorf("got the kind %v, want AllReduce to OwnPart", c.Kind)
	case n < 1 || c.Root < 0 || c.Root >= c.Ranks:
		return fmt.Errorf("%v: got root %d, want one of the ranks", c, c.Root)
	case in%n != 0 && (c.Kind == ReduceScatter || c.Kind == OwnPart):
		return fmt.Errorf("%v: got %d elements, want a multiple of %d", c, in, n)
	case out != want:
		return fmt.Errorf("%v: got an output of %d elements, want %d", c, out, want)
	case c.Mean && !d.IsFloat() && d.Size() != 2 || d == Bool && c.Kind.reduces():
		return fmt.Errorf("%v: got elements of type %v, want numbers, for the mean floating-point numbers", c, d)
	}
	return nil
}

// Run computes the collective on the host: in and out have the memory of each rank. Sums are added in the order of the ranks, so
// all ranks get the same bits in every run. Sums of BF16 and F16 are added in float32 and rounded once. It is an error if a rank's memory is missing, or not what [Collective.Check] wants.
func (c Collective) Run(d Dtype, in, out [][]byte) error {
	if c.Ranks < 1 || len(in) != c.Ranks || len(out) != c.Ranks {
		return fmt.Errorf("%v: got inputs of %d and outputs of %d ranks, want each of all", c, len(in), len(out))
	}
	for r := range in {
		if err := c.Check(d, int64(len(in[r]))/d.Size(), int64(len(out[r]))/d.Size()); err != nil {
			return err
		}
	}
	switch c.Kind {
	case Broadcast:
		for _, o := range out {
			copy(o, in[c.Root])
		}
	case AllGather:
		for _, o := range out {
			for r, x := range in {
				copy(o[r*len(x):], x)
			}
		}
	case Reduce:
		for _, o := range out {
			clear(o)
		}
		c.reduce(d, in, out[c.Root], 0)
	case ReduceScatter:
		for r, o := range out {
			c.reduce(d, in, o, r*len(o))
		}
	case OwnPart:
		for r, o := range out {
			copy(o, in[r][r*len(o):])
		}
	default:
		c.reduce(d, in, out[0], 0)
		for _, o := range out[1:] {
			copy(o, out[0])
		}
	}
	return nil
}

// reduce reduces the bytes of all ranks from an offset on.
func (c Collective) reduce(d Dtype, in [][]byte, out []byte, from int) {
	switch d {
	case Float32:
		reduceRanks[float32](c.Mean, in, out, from)
	case Float64:
		reduceRanks[float64](c.Mean, in, out, from)
	case Int32:
		reduceRanks[int32](c.Mean, in, out, from)
	case Int64, Int:
		reduceRanks[int64](c.Mean, in, out, from)
	case Uint8:
		reduceRanks[uint8](c.Mean, in, out, from)
	case expr.BF16, expr.F16:
		c.reduceHalf(d, in, out, from)
	}
}

// reduceHalf is reduce of numbers of 16 bits: in float32, rounded once.
func (c Collective) reduceHalf(d Dtype, in [][]byte, out []byte, from int) {
	wide := make([][]byte, len(in))
	for r, x := range in {
		list := make([]float32, len(out)/2)
		for i, h := range Elements[uint16](x[from : from+len(out)]) {
			list[i] = expr.FromHalf(d, h)
		}
		wide[r] = Bytes(list)
	}
	reduceRanks[float32](c.Mean, wide, wide[0], 0)
	for i, sum := range Elements[float32](wide[0]) {
		Elements[uint16](out)[i] = expr.ToHalf(d, sum)
	}
}

func reduceRanks[T float32 | float64 | int32 | int64 | uint8](mean bool, in [][]byte, out []byte, from int) {
	to, n := Elements[T](out), len(out)
	copy(out, in[0][from:from+n])
	for _, x := range in[1:] {
		for i, v := range Elements[T](x[from : from+n]) {
			to[i] += v
		}
	}
	if mean {
		for i := range to {
			to[i] /= T(len(in))
		}
	}
}
