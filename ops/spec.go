package ops

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Spec describes a public op: what it is, the cases that tests, benchmarks and
// gradient checks run, and the plain reference that it is held against.
type Spec struct {
	Name    string // the constructor's name
	Formula string // one line for the op table
	Doc     string // one sentence for the op table
	Cases   []Case
	// Tolerance against the float64 reference, relative to the sum of absolute
	// values that the element is made of, in units of the type's epsilon.
	Tolerance float64
	// Types are the element types of the inputs, nil for float32 and float64.
	Types []kernels.Dtype
	// Exact marks ops that count: the output is of int64, and exactly the
	// reference's.
	Exact bool
	// NoGradient marks ops that refuse to be differentiated.
	NoGradient bool
	// Random draws a case for the property tests.
	Random func(r *rand.Rand) Case
	// Versions are the numbered versions of the kernel: Versions[n-1] is what
	// Version(n) selects, from the first idea on.
	Versions []VersionDoc
}

// Dtypes are the element types of the inputs.
func (s Spec) Dtypes() []kernels.Dtype {
	if s.Types != nil {
		return s.Types
	}
	return []kernels.Dtype{kernels.Float32, kernels.Float64}
}

// Case is one use of an op on inputs of given shapes.
type Case struct {
	Name   string
	Shapes []tensor.Shape
	// Build applies the op.
	Build func(in ...*gorgonia.Node) (*gorgonia.Node, error)
	// Reference computes in float64, by the plainest loops, the output and for
	// each element the sum of the absolute values of its terms, both row-major.
	// No code is shared with the kernels.
	Reference func(in ...[]float64) (out, magnitude []float64)
	// Bench marks the cases that are timed; they are left out of the tests.
	Bench bool
	// Timed are the element types that a Bench case is timed in, nil for float32.
	Timed []kernels.Dtype
	// Fill writes an operand of a Bench case whose time hangs on its values, nil for
	// random numbers.
	Fill func(operand []byte)
	// Version is the numbered version that Build selects, 0 for the op itself.
	Version Version
	// Atomic marks the versions that add up in the order in which atomic
	// operations happen: within the tolerance, but not bit-equal over runs.
	Atomic bool
}

// specs is filled by the files of the ops, one register call each.
var specs []Spec

// register adds a Spec at start-up; it returns true so that a file can say
// var _ = register(...).
func register(s Spec) bool {
	specs = append(specs, s)
	sort.Slice(specs, func(i, j int) bool { return specs[i].Name < specs[j].Name })
	return true
}

// All gives the Specs of all public ops in the order of their names.
func All() []Spec { return append([]Spec(nil), specs...) }

// index walks all indexes of a shape in row-major order: f gets the flat index
// and the index per axis. The references use it.
func index(shape []int, f func(flat int, at []int)) {
	at := make([]int, len(shape))
	n := 1
	for _, d := range shape {
		n *= d
	}
	for flat := range n {
		f(flat, at)
		for a := len(shape) - 1; a >= 0; a-- {
			if at[a]++; at[a] < shape[a] {
				break
			}
			at[a] = 0
		}
	}
}

// A total is a sum with the rounding error of every addition and product added
// up beside it (Neumaier, 1974), so that references round once, at the end.
type total struct{ sum, lost float64 }

func (t *total) add(x float64) {
	s := t.sum + x
	if math.Abs(t.sum) >= math.Abs(x) {
		t.lost += (t.sum - s) + x
	} else {
		t.lost += (x - s) + t.sum
	}
	t.sum = s
}

func (t *total) addProduct(x, y float64) {
	p := x * y
	t.add(p)
	t.lost += math.FMA(x, y, -p)
}

// value is the sum; what was lost is no number once the sum is not finite.
func (t total) value() float64 {
	if v := t.sum + t.lost; !math.IsNaN(v) {
		return v
	}
	return t.sum
}

// flatten is the flat index of at in shape, leaving out the axes in skip.
func flatten(shape, at, skip []int) int {
	flat := 0
	for a, d := range shape {
		if !slices.Contains(skip, a) {
			flat = flat*d + at[a]
		}
	}
	return flat
}

// randomShape draws a shape of rank lo to hi with at most 64 elements an axis,
// often an extent of 1 or a prime.
func randomShape(r *rand.Rand, lo, hi int) tensor.Shape {
	extents := []int{1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 33, 64}
	s := make(tensor.Shape, lo+r.IntN(hi-lo+1))
	n := 1
	for i := range s {
		for s[i] = extents[r.IntN(len(extents))]; n*s[i] > 1<<16; {
			s[i] = 1
		}
		n *= s[i]
	}
	return s
}

// bench names a case that is timed and not tested.
func bench(name string, c Case) Case {
	c.Name, c.Bench = name, true
	return c
}

// inBoth marks a Bench case as timed in float64 too.
func inBoth(c Case) Case {
	c.Timed = []kernels.Dtype{kernels.Float32, kernels.Float64}
	return c
}
