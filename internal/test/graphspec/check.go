package graphspec

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Error is the largest error of a run's outputs, as a share of the tolerance, and the output
// that it is of.
type Error struct {
	Share  float64
	Output string
}

// String returns both.
func (e Error) String() string {
	return fmt.Sprintf("%.3g of the allowed error, of %s", e.Share, e.Output)
}

// see records an output's error if it is larger.
func (e *Error) see(other Error) {
	if !(other.Share <= e.Share) {
		*e = other
	}
}

// Check compares the outputs of a run with the reference. The error is the Euclidean norm of the
// differences relative to that of the reference, row by row; for a sum, over the whole sum and
// relative to the norm of the sums of absolute values.
//
// If sums differ by more, doubtful decisions of rows are taken as the outputs suggest, see
// [Decisions].
func (c Case) Check(in, out []gorgonia.Value) (worst Error, err error) {
	inputs, err := Elements(in)
	if err != nil {
		return worst, err
	}
	got, err := Elements(out)
	if err != nil {
		return worst, err
	}
	if len(inputs) != len(c.Inputs) || len(got) != len(c.Outputs) {
		return worst, fmt.Errorf("got %d inputs and %d outputs, want %d and %d", len(inputs), len(got), len(c.Inputs), len(c.Outputs))
	}
	for i, o := range c.Outputs {
		if len(got[i]) != c.length(o) {
			return worst, fmt.Errorf("output %s has %d elements, want %d", o.Name, len(got[i]), c.length(o))
		}
	}
	whole := make([][]float64, len(inputs))
	for i, in := range c.Inputs {
		if in.Whole {
			whole[i] = make([]float64, len(inputs[i]))
			widen(whole[i], inputs[i])
		}
	}
	all := part{sum: c.zeros(), magnitude: c.zeros()}
	var mu sync.Mutex
	kernels.Parallel(int64(c.Rows), 1, func(lo, hi int64) {
		p := c.checkRows(int(lo), int(hi), c.samples(inputs, whole), got)
		mu.Lock()
		defer mu.Unlock()
		all.worst.see(p.worst)
		all.doubts = append(all.doubts, p.doubts...)
		add(all.sum, p.sum)
		add(all.magnitude, p.magnitude)
	})
	if worst = c.worst(got, all); worst.Share > 1 && len(all.doubts) > 0 {
		c.settle(c.samples(inputs, whole), got, all)
		worst = c.worst(got, all)
	}
	return worst, nil
}

// worst returns the largest error of all.
func (c Case) worst(got [][]float32, all part) Error {
	worst := all.worst
	for i, o := range c.Outputs {
		if o.Sum {
			worst.see(Error{distance(got[i], all.sum[i], all.magnitude[i]) / c.Tolerance, o.Name})
		}
	}
	return worst
}

// samples are the inputs as rows read them.
type samples struct {
	inputs [][]float32
	row    [][]float64 // the row that was read last
	each   []int       // elements of a row, 0 where every row reads all
}

func (c Case) samples(inputs [][]float32, whole [][]float64) *samples {
	s := &samples{inputs, slices.Clone(whole), make([]int, len(inputs))}
	for i, x := range inputs {
		if !c.Inputs[i].Whole {
			s.each[i] = len(x) / c.Rows
			s.row[i] = make([]float64, s.each[i])
		}
	}
	return s
}

func (s *samples) read(row int) {
	for i, n := range s.each {
		if n > 0 {
			widen(s.row[i], s.inputs[i][row*n:(row+1)*n])
		}
	}
}

// run computes a row that was read, with the given decisions.
func (c Case) run(s *samples, d Decisions) (out [][]float64) {
	out = c.zeros()
	c.Row(s.row, out, &d)
	return out
}

// part is a result of checkRows.
type part struct {
	worst          Error // of a row
	sum, magnitude [][]float64
	doubts         []doubtful
}

// checkRows compares rows, and adds their parts to the sums.
func (c Case) checkRows(lo, hi int, s *samples, got [][]float32) part {
	p, want := part{sum: c.zeros(), magnitude: c.zeros()}, c.zeros()
	for r := lo; r < hi; r++ {
		s.read(r)
		for _, o := range want {
			clear(o)
		}
		var d Decisions
		c.Row(s.row, want, &d)
		for _, i := range d.doubts {
			p.doubts = append(p.doubts, doubtful{r, i})
		}
		for i, o := range c.Outputs {
			if !o.Sum {
				p.worst.see(Error{distance(got[i][r*o.Elements:(r+1)*o.Elements], want[i], want[i]) / c.Tolerance, o.Name})
				continue
			}
			for k, v := range want[i] {
				p.sum[i][k] += v
				p.magnitude[i][k] += math.Abs(v)
			}
		}
	}
	return p
}

// zeros returns an output of a row, or a sum, for every output.
func (c Case) zeros() [][]float64 {
	out := make([][]float64, len(c.Outputs))
	for i, o := range c.Outputs {
		out[i] = make([]float64, o.Elements)
	}
	return out
}

// distance is the norm of got - want relative to that of scale, infinite for NaN.
func distance(got []float32, want, scale []float64) float64 {
	var d, s float64
	for i, w := range want {
		d += (float64(got[i]) - w) * (float64(got[i]) - w)
		s += scale[i] * scale[i]
	}
	switch e := math.Sqrt(d / s); {
	case d == 0:
		return 0
	case math.IsNaN(e):
		return math.Inf(1)
	default:
		return e
	}
}

func add(to, from [][]float64) {
	for i := range to {
		for k, v := range from[i] {
			to[i][k] += v
		}
	}
}

func widen(to []float64, from []float32) {
	for i, v := range from {
		to[i] = float64(v)
	}
}

// Elements returns the elements of values, all of float32.
func Elements(vs []gorgonia.Value) ([][]float32, error) {
	list := make([][]float32, len(vs))
	for i, v := range vs {
		if v == nil {
			return nil, fmt.Errorf("value %d is nil", i)
		}
		if dt, ok := values.Dtype(v.Dtype()); !ok || dt != kernels.Float32 {
			return nil, fmt.Errorf("value %d is of %v, want float32", i, v.Dtype())
		}
		m, err := values.Bytes(v)
		if err != nil {
			return nil, fmt.Errorf("value %d: %w", i, err)
		}
		list[i] = kernels.Elements[float32](m)
	}
	return list, nil
}
