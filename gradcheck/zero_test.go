package gradcheck

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Zero values and nils are errors, and nothing panics.
func TestSurvives(t *testing.T) {
	x := tensor.New(tensor.WithBacking([]float64{1, 2}))
	square := func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Square(in[0]) }
	check := func(o Option) error { return Check(square, []gorgonia.Value{x}, o) }
	testutil.SurviveWhole(t, map[string]any{
		"Check": func(build func(...*gorgonia.Node) (*gorgonia.Node, error), in []gorgonia.Value) error {
			return Check(build, in)
		},
		"Random":      Random,
		"Largest":     func(to *float64) error { return check(Largest(to)) },
		"Machine":     func(f func(*gorgonia.ExprGraph) (gorgonia.VM, error)) error { return check(Machine(f)) },
		"MaxElements": func(n int) error { return check(MaxElements(n)) },
		"Modes":       func(m []Mode) error { return check(Modes(m...)) },
		"Seed":        func(n uint64) error { return check(Seed(n)) },
		"Step":        func(h float64) error { return check(Step(h)) },
		"Tolerance":   func(abs, rel float64) error { return check(Tolerance(abs, rel)) },
		"Option":      check,
	}, -1, math.MaxInt, math.NaN(), math.Inf(1), uint64(7), x, new(gorgonia.F64), new(float64), Mode(7), &Mismatch{}, Option(nil),
		tensor.Float64, tensor.Shape{2}, tensor.Shape{-1}, square,
		func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return new(gorgonia.Node), nil },
		func(*gorgonia.ExprGraph) (gorgonia.VM, error) { var m gorgonia.VM = (*noMachine)(nil); return m, nil })
}

type noMachine struct{ gorgonia.VM }
