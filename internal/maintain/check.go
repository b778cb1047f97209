package maintain

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/internal/test/compare"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
)

// affordable is the most arithmetic that a check does on the host.
const affordable = 1 << 35

// check compares the output of a plan with that of the host's body in float64 on the same inputs.
// If the whole is more work than limit and the output's rows follow from those of inputs,
// it recomputes 16 rows drawn at random. It returns a description of the check, and the largest error as a
// share of the error that the op's Spec allows for both sides.
//
// The error that an element may have depends on the sum of the absolute values of its
// terms, which the case's Magnitude computes.
func (o Op) check(p *kernels.Plan, inputs [][]byte, out []byte, limit int64) (what string, worst float64, err error) {
	if o.Spec.Exact {
		return o.checkExact(inputs, out)
	}
	what, part := "all", o.Case
	got, in := widen(o.Dtype, out), make([][]float64, len(inputs))
	if p.Flops > limit {
		const rows = 16
		_, full, err := o.Case.Plan(o.Dtype, kernels.HostDevice())
		if err != nil {
			return "", 0, err
		}
		if full.Shape.Dims() == 0 {
			return "", 0, fmt.Errorf("too much work to check on the host: %d operations for a scalar", p.Flops)
		}
		n := full.Shape[0]
		pick := rand.Perm(n)[:min(rows, n)]
		what = fmt.Sprintf("%d rows", len(pick))
		// take makes the case that has rows of the output from those along an axis of the first inputs.
		shapes, operands := part.Shapes, inputs
		take := func(axis, first int) error {
			part.Shapes, inputs = slices.Clone(shapes), slices.Clone(operands)
			for i, s := range shapes[:first] {
				if axis < s.Dims() && s[axis] == n {
					part.Shapes[i] = s.Clone()
					part.Shapes[i][axis] = len(pick)
					inputs[i] = gather(operands[i], s[:axis].TotalSize(), n, pick)
				}
			}
			_, some, err := part.Plan(o.Dtype, kernels.HostDevice())
			if err == nil && (some.Shape.Dims() == 0 || some.Shape[0] != len(pick) || !slices.Equal(some.Shape[1:], full.Shape[1:])) {
				err = fmt.Errorf("got an output of shape %v for inputs of shapes %v, want %d rows of %v", some.Shape, part.Shapes, len(pick), full.Shape)
			}
			return err
		}
		err = take(0, len(shapes)) // batches
		for axis := 0; err != nil && axis < shapes[0].Dims(); axis++ {
			err = take(axis, 1)
		}
		if err != nil {
			return "", 0, fmt.Errorf("too much work to check on the host (%d operations), and not row by row: %w", p.Flops, err)
		}
		got = widen(o.Dtype, gather(out, 1, n, pick))
	}
	for i := range inputs {
		in[i] = widen(o.Dtype, inputs[i])
	}
	want, err := runHost(part, in)
	if err != nil {
		return "", 0, err
	}
	for _, x := range in {
		each(len(x), func(i int) { x[i] = math.Abs(x[i]) })
	}
	part.Build = part.Magnitude
	magnitude, err := runHost(part, in)
	if err != nil {
		return "", 0, err
	}
	allowed := o.Spec.ToleranceOf(o.Dtype) * 0x1p-23
	if o.Dtype == kernels.Float64 {
		allowed = 2 * o.Spec.ToleranceOf(o.Dtype) * 0x1p-52
	}
	return what, worstError(got, want, magnitude, allowed), nil
}

// checkExact compares an output of int64 with that of the host's body: counts are the same, or the
// error is infinite.
func (o Op) checkExact(inputs [][]byte, out []byte) (what string, worst float64, err error) {
	plan, _, err := o.Case.Plan(o.Dtype, kernels.HostDevice())
	if err != nil {
		return "", 0, err
	}
	want := make([]int64, plan.Out/8)
	if err := plan.Run(inputs, kernels.Bytes(want), nil); err != nil {
		return "", 0, err
	}
	if !slices.Equal(kernels.Elements[int64](out), want) {
		worst = math.Inf(1)
	}
	return "all", worst, nil
}

// worstError is the largest |got-want| / (allowed*magnitude), infinite if
// lengths or non-finite elements differ.
func worstError(got, want, magnitude []float64, allowed float64) (worst float64) {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var mu sync.Mutex
	kernels.Parallel(int64(len(got)), 1, func(lo, hi int64) {
		w := 0.0
		for i := lo; i < hi; i++ {
			w = max(w, compare.Excess(got[i], want[i], want[i], allowed*magnitude[i]))
		}
		mu.Lock()
		defer mu.Unlock()
		worst = max(worst, w)
	})
	return worst
}

// runHost runs a case by the host's bodies in float64.
func runHost(c opspec.Case, in [][]float64) ([]float64, error) {
	p, _, err := c.Plan(kernels.Float64, kernels.HostDevice())
	if err != nil {
		return nil, err
	}
	out, inputs := make([]float64, p.Out/8), make([][]byte, len(in))
	for i, x := range in {
		inputs[i] = kernels.Bytes(x)
	}
	return out, p.Run(inputs, kernels.Bytes(out), nil)
}

// each calls do for the numbers below n, several at a time.
func each(n int, do func(i int)) {
	kernels.Parallel(int64(n), 1, func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			do(int(i))
		}
	})
}

// gather returns some of the n equal rows of each of the `outer` parts of b, in the order of pick.
func gather(b []byte, outer, n int, pick []int) []byte {
	row := len(b) / outer / n
	part := kernels.Bytes(make([]float64, (outer*len(pick)*row+7)/8))[:0] // aligned
	for o := range outer {
		for _, i := range pick {
			part = append(part, b[(o*n+i)*row:(o*n+i+1)*row]...)
		}
	}
	return part
}

// widen copies elements into float64.
func widen(dt kernels.Dtype, b []byte) []float64 {
	if dt == kernels.Float64 {
		return slices.Clone(kernels.Elements[float64](b))
	}
	s := kernels.Elements[float32](b)
	out := make([]float64, len(s))
	each(len(s), func(i int) { out[i] = float64(s[i]) })
	return out
}
