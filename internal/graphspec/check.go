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

// Check compares the outputs of a run with the reference and returns the largest error
// as a share of the tolerance. The error is the Euclidean norm of the differences over
// that of the reference, row by row; for a sum, in all of it, over the norm of the sums
// of absolute values.
func (c Case) Check(in, out []gorgonia.Value) (worst float64, err error) {
	inputs, err := elements(in)
	if err != nil {
		return 0, err
	}
	got, err := elements(out)
	if err != nil {
		return 0, err
	}
	if len(inputs) != len(c.Inputs) || len(got) != len(c.Outputs) {
		return 0, fmt.Errorf("got %d inputs and %d outputs, want %d and %d", len(inputs), len(got), len(c.Inputs), len(c.Outputs))
	}
	for i, o := range c.Outputs {
		if len(got[i]) != c.length(o) {
			return 0, fmt.Errorf("output %s has %d elements, want %d", o.Name, len(got[i]), c.length(o))
		}
	}
	whole := make([][]float64, len(inputs))
	for i, in := range c.Inputs {
		if in.Whole {
			whole[i] = make([]float64, len(inputs[i]))
			widen(whole[i], inputs[i])
		}
	}
	total, magnitude := c.zeros(), c.zeros()
	var mu sync.Mutex
	kernels.Parallel(int64(c.Rows), 1, func(lo, hi int64) {
		p := c.checkRows(int(lo), int(hi), inputs, whole, got)
		mu.Lock()
		defer mu.Unlock()
		worst = max(worst, p.worst)
		add(total, p.sum)
		add(magnitude, p.magnitude)
	})
	for i, o := range c.Outputs {
		if o.Sum {
			worst = max(worst, distance(got[i], total[i], magnitude[i]))
		}
	}
	return worst / c.Tolerance, nil
}

// part is what checkRows found.
type part struct {
	worst          float64 // error of a row
	sum, magnitude [][]float64
}

// checkRows compares rows, and adds up what they give to sums.
func (c Case) checkRows(lo, hi int, inputs [][]float32, whole [][]float64, got [][]float32) part {
	p := part{sum: c.zeros(), magnitude: c.zeros()}
	in, want := slices.Clone(whole), c.zeros()
	for i, x := range inputs {
		if !c.Inputs[i].Whole {
			in[i] = make([]float64, len(x)/c.Rows)
		}
	}
	for r := lo; r < hi; r++ {
		for i, x := range inputs {
			if n := len(in[i]); !c.Inputs[i].Whole {
				widen(in[i], x[r*n:(r+1)*n])
			}
		}
		for _, o := range want {
			clear(o)
		}
		c.Row(in, want)
		for i, o := range c.Outputs {
			if !o.Sum {
				p.worst = max(p.worst, distance(got[i][r*o.Elements:(r+1)*o.Elements], want[i], want[i]))
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

// distance is the norm of got - want over that of scale, infinite for what is no
// number.
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

// elements returns the elements of values, all of float32.
func elements(vs []gorgonia.Value) ([][]float32, error) {
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
