// Package gradcheck checks the gradients of Gorgonia expressions by finite differences, on any machine. It checks both symbolic
// differentiation (gorgonia.Grad) and dual values (gorgonia.NewLispMachine).
//
// For inputs x, outputs y = f(x) and random weights w, the gradient of the loss
//
//	L(x) = sum_k w[k] * y[k]
//
// is computed by the graph and compared, element by element, with
//
//	(L(x + h) - L(x - h)) / 2h
//
// The weights are in [0.5, 1.5) with random signs, so that every element of the output has a different influence. A transposed
// gradient, or one that omits an output, fails.
//
// # Precision
//
// Differences are always computed in float64. For float32 inputs, Check builds a float64 copy of the expression with the same
// numbers and evaluates it by calling each op's Do. In float32 a difference would have three digits at best, which would
// hide real errors. Therefore build must use the type of its inputs.
//
// A central difference has an error of h^2 / 6 times the third derivative and a rounding error of about eps |y| / h. The two
// are similar for h = cbrt(eps) = 6e-6, times |x| if |x| > 1, and leave an error near 1e-10 times the size of y. So the
// tolerance only has to allow for rounding errors of the graph under test. Without [Tolerance] it is
//
//	rel * (|want| + max |want| / 10), rel = 1e-6 in float64, 1e-3 in float32
//
// where max |want| is over the elements of the same input. So inputs with small gradients are checked as tightly as inputs
// with large ones, and an element that cancels to 0 may have the rounding error of its terms. The tolerance is at least
// rel / 1000 * max(1, max |y|), which covers the error of the differences if a gradient is 0. For float32 this allows a
// few hundred consecutive roundings; an error of one percent fails.
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

// The modes.
const (
	SymDiff Mode = iota // symbolic differentiation: gorgonia.Grad
	DoDiff              // dual values: gorgonia.NewLispMachine
)

// String names the method of an op that the mode calls.
func (m Mode) String() string {
	if m == DoDiff {
		return "DoDiff"
	}
	return "SymDiff"
}

// Mismatch is the error of gradients that exceed the tolerance. It describes the element with the largest error relative to the
// tolerance.
type Mismatch struct {
	Mode       Mode
	Input      int     // number of the input
	Index      []int   // coordinates of the element, empty for a scalar
	Got        float64 // the graph's derivative of the loss w.r.t. the element
	Want       float64 // the central difference
	Difference float64 // |Got - Want|
	Tolerated  float64 // the largest Difference that would have passed
	Bad        int     // number of wrong elements of all inputs
	Checked    int     // number of checked elements
	Seed       uint64  // reproduces the weights, through option Seed
}

// Error names the element and by how much it differs.
func (m *Mismatch) Error() string {
	return fmt.Sprintf("gradcheck: %v: gradient w.r.t. element %v of input %d: got %.9g, want %.9g (differs by %.3g, tolerated %.3g); %d of %d elements are wrong (seed %d)",
		m.Mode, m.Index, m.Input, m.Got, m.Want, m.Difference, m.Tolerated, m.Bad, m.Checked, m.Seed)
}

// Random returns one input of each shape for [Check]. Elements are between -1.5 and 1.5 and at least 0.1 away from 0, which
// avoids the kinks of common functions. A scalar shape makes a Gorgonia scalar. dt is tensor.Float32 or tensor.Float64.
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

// Check compares the gradients of build w.r.t. every element of the inputs with central differences. It returns nil, a
// [*Mismatch], or another error if it could not compare them.
//
// build gets one input node for each input, with its shape and type, and returns one node, a tensor or scalar that need not
// depend on every input. Check calls it several times, on new graphs, with nodes of the inputs' types and with float64
// nodes. Inputs are tensors or Gorgonia scalars of float32 or float64; Check copies them. A derivative that is not finite
// is an error.
//
// Gorgonia's machines have limits that Check reports as errors. gorgonia.Grad skips nodes that were differentiated before, so
// for a second derivative build must apply an op's SymDiff and not call Grad. The LispMachine skips ops without
// DoDiff.
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

// input is the caller's value, as float64 numbers in row-major order.
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

// choose returns the indices of the elements to check, out of n.
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
		sort.Ints(elements) // so that Mismatch names the first of equal errors
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

// noteError records the largest error, divided by the largest difference.
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

// coordinates returns the coordinates of element k in row-major order.
func coordinates(k int, shape tensor.Shape) []int {
	at := make([]int, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		at[i], k = k%shape[i], k/shape[i]
	}
	return at
}
