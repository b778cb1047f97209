package suite

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/tensor"
)

// apart draws normally distributed inputs for differences, which give no gradient across the kink of a maximum, a comparison or
// an absolute value. The absolute values of any two elements differ by at least 1/2048. They differ by at least 1/4096 from
// multiples of 1/1024, such as the bounds of Clip, and are at least 1/65.
func apart(r *rand.Rand, shapes []tensor.Shape) [][]float64 {
	taken := make(map[float64]bool)
	xs := make([][]float64, len(shapes))
	for i, s := range shapes {
		for len(xs[i]) < s.TotalSize() {
			if m := math.Round(r.NormFloat64() * 1024); math.Abs(m) >= 16 && !taken[m] {
				taken[m], xs[i] = true, append(xs[i], (m+0.25)/1024)
			}
		}
	}
	return xs
}

// checkGradients compares the gradients of a case with differences.
func checkGradients(r *rand.Rand, c opspec.Case, dt kernels.Dtype, opts ...gradcheck.Option) error {
	vs := c.Values(dt, apart(r, c.Shapes))
	return gradcheck.Check(c.Build, vs, append([]gradcheck.Option{gradcheck.Seed(r.Uint64()), gradcheck.MaxElements(10)}, opts...)...)
}

// Gradients compares the gradients of every op with differences: by SymDiff on each machine except the LispMachine, and once by
// DoDiff. A case is checked in one type, which is drawn.
func Gradients(t *testing.T, machines ...Machine) {
	machines = slices.DeleteFunc(slices.Clone(machines), func(m Machine) bool { // the check's loss is no kernel
		return m.Name == "LispMachine" || strings.Contains(m.Name, "strict")
	})
	each(t, 2000, differentiable, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		if !drawnType(s, c, dt) {
			return
		}
		parallelOnHost(t)
		r, modes := Random(t), []gradcheck.Mode{gradcheck.DoDiff, gradcheck.SymDiff}
		for _, m := range machines {
			err := checkGradients(r, c, dt, gradcheck.Modes(modes...), gradcheck.Machine(m.New))
			if err != nil && !errors.Is(err, stheno.ErrNoDevice) { // with the tag cuda, gradients add up by an op of Gorgonia's
				t.Errorf("%s: %v", m.Name, err)
			}
			modes = modes[len(modes)-1:]
		}
	})
}
