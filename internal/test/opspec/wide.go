package opspec

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/tensor"
)

// The cases drawn here are for benches: sizes, shapes and parameters that were not chosen by hand.

// Description has, as JSON, all that another library needs to time a case.
type Description struct {
	Op     string  `json:"op"`
	Name   string  `json:"case"`
	Dtype  string  `json:"dtype"`
	Shapes [][]int `json:"shapes"` // of the inputs
	Parameters
	Peers string `json:"peers"` // of the Spec
}

// Describe describes a case of the op in one element type.
func (s Spec) Describe(c Case, dt kernels.Dtype) Description {
	d := Description{Op: s.Name, Name: c.Name, Dtype: dt.String(), Parameters: c.Parameters, Peers: s.Peers}
	for _, shape := range c.Shapes {
		d.Shapes = append(d.Shapes, append([]int{}, shape...))
	}
	return d
}

// Drawn is a case that [Draw] drew.
type Drawn struct {
	Description
	Spec Spec          `json:"-"`
	Case Case          `json:"-"`
	Type kernels.Dtype `json:"-"`
}

// Parameters are the arguments of an op besides its inputs. Those of other ops are zero.
type Parameters struct {
	Axes       []int   `json:"axes,omitempty"`   // Sum, Mean: those that are summed over
	Axis       int     `json:"axis,omitempty"`   // Broadcast: the new one
	Copies     int     `json:"copies,omitempty"` // Broadcast
	TransA     bool    `json:"trans_a,omitempty"`
	TransB     bool    `json:"trans_b,omitempty"`
	Radius     int     `json:"radius,omitempty"`
	Same       bool    `json:"same,omitempty"` // WindowSum: as many results as elements
	Bins       int     `json:"bins,omitempty"`
	Lo         float64 `json:"lo,omitempty"`
	Hi         float64 `json:"hi,omitempty"`
	Data       string  `json:"data,omitempty"` // Histogram: "uniform", "equal", "skewed" or "text"
	Text       string  `json:"text,omitempty"` // Histogram: the file of a text, which is repeated
	Steps      int     `json:"steps,omitempty"`
	Expression string  `json:"expression,omitempty"`
	Causal     bool    `json:"causal,omitempty"`     // Attention
	RowsFirst  bool    `json:"rows_first,omitempty"` // Attention
}

// Limits bound the cases that are drawn.
type Limits struct {
	Least, Most int64 // bytes of all inputs and the output
	Flops       int64 // operations at most
}

// Sizes draws sizes for one case, in the type that it gets.
type Sizes struct {
	*rand.Rand
	Type   kernels.Dtype
	limits Limits
}

// longest is the largest extent.
const longest = 100_000_000

// LogInt draws from lo to hi, with all orders of magnitude equally likely.
func (s *Sizes) LogInt(lo, hi int) int {
	x := math.Log(float64(lo)) + s.Float64()*(math.Log(float64(hi)+1)-math.Log(float64(lo)))
	return min(max(int(math.Exp(x)), lo), hi)
}

// Elements draws the number of elements of a tensor of a case that has `tensors` of them.
func (s *Sizes) Elements(tensors int) int {
	bytes := s.Type.Size() * int64(tensors)
	return s.LogInt(max(1, int(s.limits.Least/bytes)), max(1, int(s.limits.Most/bytes)))
}

// Shape draws a shape of about n elements and of a rank from lo to hi. One extent of
// four is a power of two.
func (s *Sizes) Shape(elements, lo, hi int) tensor.Shape {
	shape := make(tensor.Shape, lo+s.IntN(hi-lo+1))
	cuts := []float64{0, 1}
	for range len(shape) - 1 {
		cuts = append(cuts, s.Float64())
	}
	slices.Sort(cuts)
	for i := range shape {
		extent := math.Exp(math.Log(float64(elements)) * (cuts[i+1] - cuts[i]))
		if s.IntN(4) == 0 {
			extent = math.Exp2(math.Round(math.Log2(extent)))
		}
		shape[i] = int(min(max(math.Round(extent), 1), longest))
	}
	return shape
}

// Draw draws n cases of the given ops in turn. The same seed draws the same cases of an op,
// whatever the other ops are; cases that [Limits] exclude are drawn again.
func Draw(n int, seed uint64, limits Limits, specs []Spec) ([]Drawn, error) {
	specs = slices.DeleteFunc(slices.Clone(specs), func(s Spec) bool { return s.Wide == nil })
	if n < 1 || len(specs) == 0 {
		return nil, fmt.Errorf("opspec: got %d cases to draw of %d ops, want at least one of each", n, len(specs))
	}
	sources := make([]*rand.Rand, len(specs))
	for i, s := range specs {
		h := fnv.New64a()
		h.Write([]byte(s.Name))
		sources[i] = rand.New(rand.NewPCG(seed, h.Sum64()))
	}
	seen := map[string]bool{}
	var cases []Drawn
	for i := range n {
		d, err := specs[i%len(specs)].draw(sources[i%len(specs)], limits, seen)
		if err != nil {
			return nil, err
		}
		cases = append(cases, d)
	}
	return cases, nil
}

// draw draws a case within limits that has not been seen.
func (s Spec) draw(r *rand.Rand, limits Limits, seen map[string]bool) (Drawn, error) {
	const tries = 10_000
	for range tries {
		sizes := &Sizes{r, s.drawType(r), limits}
		c := s.Wide(sizes)
		d := Drawn{Description: s.Describe(c, sizes.Type), Spec: s, Case: complete(s, c), Type: sizes.Type}
		name := d.Op + "/" + d.Name + "/" + d.Dtype
		if seen[name] || !limits.mayHold(d) {
			continue
		}
		plan, _, err := d.Case.Plan(d.Type, kernels.HostDevice())
		if err != nil {
			return d, fmt.Errorf("opspec: %s: %w", name, err)
		}
		if bytes := plan.Bytes(); bytes < limits.Least || bytes > limits.Most || plan.Flops > limits.Flops {
			continue
		}
		seen[name] = true
		return d, nil
	}
	return Drawn{}, fmt.Errorf("opspec: %s: found no new case of %d to %d bytes and at most %d operations in %d tries", s.Name, limits.Least, limits.Most, limits.Flops, tries)
}

// mayHold reports whether the inputs alone are within the limits, so that the op can be asked for a
// plan.
func (l Limits) mayHold(d Drawn) bool {
	bytes := 0.0
	for _, shape := range d.Shapes {
		n := float64(d.Type.Size())
		for _, extent := range shape {
			n *= float64(extent)
		}
		bytes += n
	}
	return bytes <= float64(l.Most)
}

// drawType draws one of the types of an op that other libraries have too, float32 most
// often.
func (s Spec) drawType(r *rand.Rand) kernels.Dtype {
	var types []kernels.Dtype
	for _, dt := range s.Types {
		if dt.IsFloat() || dt == kernels.Uint8 {
			types = append(types, dt)
		}
	}
	if r.IntN(2) == 0 {
		return types[0]
	}
	return types[r.IntN(len(types))]
}
