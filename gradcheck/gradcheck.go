// Package gradcheck checks gradients by finite differences: of one Gorgonia op,
// of an expression of many, by symbolic differentiation (gorgonia.Grad) and by
// dual values (gorgonia.NewLispMachine), on any machine.
//
// For inputs x, outputs y = f(x) and random weights w, the gradient of the loss
//
//	L(x) = sum_k w[k] * y[k]
//
// is computed by the graph and compared, element by element, with
//
//	(L(x + h) - L(x - h)) / 2h
//
// The weights lie in [0.5, 1.5) with random signs, so that every element of the output matters and
// no two matter equally: a gradient that is transposed or that forgets an output does not pass.
//
// # Precision
//
// Differences are always taken in float64. For float32 inputs a float64 copy
// of the expression is built, on the same numbers, and run by calling each
// op's Do: in float32 itself a difference has three digits at best, which
// would hide real errors. So build must take the type of its inputs.
//
// A central difference errs by h^2 / 6 of the third derivative and by about
// eps |y| / h for rounding. The two are alike at h = cbrt(eps) = 6e-6, times
// |x| where |x| > 1, and leave an error near 1e-10 of the size of y. So
// the tolerance only has to allow for the rounding errors of the graph under test. The
// default, in place of [Tolerance], is
//
//	rel * (|want| + max |want| / 10), rel = 1e-6 in float64, 1e-3 in float32
//
// where max |want| is over the same input, so that small gradients are checked as tightly as large
// ones while an element that cancels to nothing may carry the rounding of its terms; and at least
// rel / 1000 * max(1, max |y|), which covers the differences' own error where a gradient is 0. For
// float32 that leaves room for a few hundred roundings in a row; a gradient that is wrong by one
// percent fails.
package gradcheck

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/internal/hostmem"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Mode is a way in which Gorgonia computes gradients.
type Mode int

// Gorgonia's two ways.
const (
	SymDiff Mode = iota // nodes of their own: gorgonia.Grad
	DoDiff              // dual values: gorgonia.NewLispMachine
)

// String names the method of an op that the mode calls.
func (m Mode) String() string {
	if m == DoDiff {
		return "DoDiff"
	}
	return "SymDiff"
}

// Mismatch is the error of gradients that differ. It describes the worst element: the one with the
// greatest error in units of the tolerance.
type Mismatch struct {
	Mode       Mode
	Input      int     // number of the input
	Index      []int   // coordinates of the element, empty for a scalar
	Got        float64 // the graph's derivative of the loss by the element
	Want       float64 // the central difference
	Difference float64 // |Got - Want|
	Tolerated  float64 // the largest Difference that would have passed
	Bad        int     // how many elements of all inputs are wrong ...
	Checked    int     // ... of how many that were checked
	Seed       uint64  // reproduces the weights, through option Seed
}

// Error names the element and by how much it differs.
func (m *Mismatch) Error() string {
	return fmt.Sprintf("gradcheck: %v: derivative by element %v of input %d: got %.9g, want %.9g (differs by %.3g, tolerated %.3g); %d of %d elements are wrong (seed %d)",
		m.Mode, m.Index, m.Input, m.Got, m.Want, m.Difference, m.Tolerated, m.Bad, m.Checked, m.Seed)
}

// Random returns one input of each shape for [Check]: elements between -1.5 and 1.5, at least 0.1
// from 0, which avoids the kinks of common functions. A scalar shape makes a Gorgonia scalar. dt is
// tensor.Float32 or tensor.Float64.
func Random(seed uint64, dt tensor.Dtype, shapes ...tensor.Shape) ([]gorgonia.Value, error) {
	d, ok := values.Dtype(dt)
	if !ok || !d.IsFloat() {
		return nil, fmt.Errorf("gradcheck: Random: got %v, want float32 or float64", dt)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	vs := make([]gorgonia.Value, len(shapes))
	for i, s := range shapes {
		if slices.ContainsFunc(s, func(d int) bool { return d < 1 }) {
			return nil, fmt.Errorf("gradcheck: Random: got shape %v, want at least one element", s)
		}
		bytes, err := values.Size(kernels.Float64, s)
		if err == nil {
			err = hostmem.Check(bytes)
		}
		if err != nil {
			return nil, fmt.Errorf("gradcheck: Random: shape %v: %w", s, err)
		}
		x := make([]float64, s.TotalSize())
		for k := range x {
			x[k] = signed(r, 0.1+1.4*r.Float64())
		}
		vs[i] = value(d, s, x)
	}
	return vs, nil
}

// Check compares the gradients of build by every element of the inputs with central differences. It
// returns nil, a [*Mismatch], or another error if nothing could be compared.
//
// build gets one input node for each input, of its shape and type, and returns
// one node, a tensor or scalar that need not depend on every input. It is
// called several times, on new graphs, with nodes of the inputs' types and with
// float64 nodes. Inputs are tensors or Gorgonia scalars of float32 or float64;
// their memory is copied, not written. A derivative that is not finite fails.
//
// Gorgonia's machines set limits that Check reports as errors: gorgonia.Grad
// passes over nodes that were differentiated before, so for a second
// derivative build must apply an op's SymDiff itself and not call Grad; and the
// LispMachine passes over ops that have no DoDiff. Outside the expression, the
// LispMachine refuses a loss that is not a scalar, other roots in the graph and
// gradients left from an earlier run; Check hands it none of them.
func Check(build func(in ...*gorgonia.Node) (*gorgonia.Node, error), inputs []gorgonia.Value, opts ...Option) error {
	c := config{
		machine: func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return tape.NewMachine(g) },
		step:    math.Cbrt(0x1p-52),
		seed:    rand.Uint64(),
		modes:   []Mode{SymDiff, DoDiff},
	}
	for _, o := range opts {
		if o == nil {
			return fmt.Errorf("gradcheck: got a nil option")
		}
		o(&c)
	}
	if err := c.validate(); err != nil {
		return fmt.Errorf("gradcheck: %w", err)
	}
	err := c.check(build, inputs)
	var m *Mismatch
	if err == nil || errors.As(err, &m) {
		return err
	}
	return fmt.Errorf("gradcheck: %w", err)
}

// An input is the caller's value, as float64 numbers in row-major order.
type input struct {
	dtype kernels.Dtype
	shape tensor.Shape
	x     []float64
}

func (c *config) check(build func(...*gorgonia.Node) (*gorgonia.Node, error), vs []gorgonia.Value) error {
	if build == nil {
		return fmt.Errorf("got no function that builds the expression")
	}
	in := make([]input, len(vs))
	for i, v := range vs {
		var err error
		if in[i], err = read(v); err != nil {
			return fmt.Errorf("input %d is %w", i, err)
		}
	}

	// The differences are the same for both modes.
	r := rand.New(rand.NewPCG(c.seed, 2))
	f, err := newFunction(build, in)
	if err != nil {
		return err
	}
	y, err := f.eval()
	if err != nil {
		return err
	}
	size := 1.0 // of the output
	for _, v := range y {
		if finite(v) {
			size = max(size, math.Abs(v))
		}
	}
	weights := make([]float64, len(y))
	for k := range weights {
		weights[k] = signed(r, 0.5+float64(r.IntN(1024))/1024) // exact in float32
	}
	want := make([]map[int]float64, len(in))
	for i := range in {
		want[i] = make(map[int]float64)
		for _, k := range c.choose(r, len(in[i].x)) {
			if want[i][k], err = f.difference(i, k, c.step, weights); err != nil {
				return err
			}
		}
	}

	if c.largest != nil {
		*c.largest = 0
	}
	for _, mode := range c.modes {
		got, err := c.gradients(mode, build, in, weights)
		if err != nil {
			return fmt.Errorf("%v: %w", mode, err)
		}
		if m := c.compare(mode, in, got, want, size); m != nil {
			return m
		}
	}
	return nil
}

// choose draws which of n elements are checked.
func (c *config) choose(r *rand.Rand, n int) []int {
	all := r.Perm(n)
	if c.max > 0 && c.max < n {
		all = all[:c.max]
	}
	return all
}

func (c *config) compare(mode Mode, in []input, got [][]float64, want []map[int]float64, size float64) *Mismatch {
	m := &Mismatch{Mode: mode, Seed: c.seed}
	worst := 0.0
	for i := range in {
		abs, rel := c.abs, c.rel
		largest := 0.0
		for _, w := range want[i] {
			if finite(w) {
				largest = max(largest, math.Abs(w))
			}
		}
		if !c.own {
			if rel = 1e-6; in[i].dtype == kernels.Float32 {
				rel = 1e-3
			}
			abs = rel * max(largest/10, size/1000)
		}
		elements := make([]int, 0, len(want[i]))
		for k := range want[i] {
			elements = append(elements, k)
		}
		sort.Ints(elements) // so that of equal errors the first is named
		for _, k := range elements {
			m.Checked++
			g, w := got[i][k], want[i][k]
			tolerated := abs + rel*math.Abs(w)
			diff := math.Abs(g - w)
			c.noteError(diff, largest)
			if diff <= tolerated && !math.IsInf(tolerated, 0) { // false for NaN
				continue
			}
			m.Bad++
			excess := diff / tolerated
			if math.IsNaN(excess) {
				excess = math.Inf(1)
			}
			if excess > worst {
				worst = excess
				m.Input, m.Index = i, coordinates(k, in[i].shape)
				m.Got, m.Want, m.Difference, m.Tolerated = g, w, diff, tolerated
			}
		}
	}
	if m.Bad == 0 {
		return nil
	}
	return m
}

// noteError keeps the largest error, as a share of the greatest difference.
func (c *config) noteError(diff, greatest float64) {
	if c.largest == nil || diff == 0 {
		return
	}
	share := diff / greatest
	if math.IsNaN(share) {
		share = math.Inf(1)
	}
	*c.largest = max(*c.largest, share)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// signed returns x with a random sign.
func signed(r *rand.Rand, x float64) float64 {
	if r.IntN(2) == 0 {
		return -x
	}
	return x
}

// coordinates of element k in row-major order.
func coordinates(k int, shape tensor.Shape) []int {
	at := make([]int, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		at[i], k = k%shape[i], k/shape[i]
	}
	return at
}
