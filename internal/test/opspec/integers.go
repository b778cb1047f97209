package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file has the ops of integers and bool. Their results are exact.

// numberTypes are all element types of numbers.
var numberTypes = []kernels.Dtype{kernels.Float32, kernels.Float64, kernels.Uint8, kernels.Int32, kernels.Int64, kernels.Int}

// exact is a case of an op of elements without rounding errors.
func exact(name string, build Build, f func(x []float64) float64, shapes ...tensor.Shape) Case {
	return elements(fmt.Sprintf("%s %v", name, shapes), build, func(x []float64) (y, magnitude float64) { return f(x), 0 }, shapes...)
}

// pairs are cases of an op of two inputs.
func pairs(build Build, f func(x []float64) float64) []Case {
	of := func(shapes ...tensor.Shape) Case { return exact("", build, f, shapes...) }
	return []Case{
		of(tensor.Shape{1}, tensor.Shape{1}), of(tensor.Shape{1021}, tensor.Shape{1021}), of(tensor.Shape{17, 32}, tensor.ScalarShape()),
		of(tensor.Shape{5, 1}, tensor.Shape{7}), of(tensor.Shape{4, 20}, tensor.Shape{3, 1, 20}),
	}
}

// randomPair draws inputs of one shape, or one of them a scalar.
func randomPair(build Build, f func(x []float64) float64) func(r *rand.Rand) Case {
	return func(r *rand.Rand) Case {
		s := randomShape(r, 0, 4)
		shapes := []tensor.Shape{s, s}
		if i := r.IntN(3); i < 2 {
			shapes[i] = tensor.ScalarShape()
		}
		return exact("", build, f, shapes...)
	}
}

var _ = func() bool {
	for _, c := range []struct {
		name, sign string
		of         func(a, b *gorgonia.Node) (*gorgonia.Node, error)
		holds      func(a, b float64) bool
	}{
		{"Equal", "==", ops.Equal, func(a, b float64) bool { return a == b }},
		{"NotEqual", "!=", ops.NotEqual, func(a, b float64) bool { return a != b }},
		{"Less", "<", ops.Less, func(a, b float64) bool { return a < b }},
		{"LessEqual", "<=", ops.LessEqual, func(a, b float64) bool { return a <= b }},
		{"Greater", ">", ops.Greater, func(a, b float64) bool { return a > b }},
		{"GreaterEqual", ">=", ops.GreaterEqual, func(a, b float64) bool { return a >= b }},
	} {
		f := func(x []float64) float64 {
			if c.holds(x[0], x[1]) {
				return 1
			}
			return 0
		}
		register(Spec{
			Name: c.name, Formula: "out[i] = a[i] " + c.sign + " b[i]", Doc: "A comparison; the result is of bool.",
			Types: numberTypes, Cases: pairs(binary(c.of), f), Generated: true, AnyType: true, Mixed: true, Stops: true,
			Bad:    []Bad{bad("other length", binary(c.of), "input 1: got shape (4), want one that broadcasts", tensor.Shape{3}, tensor.Shape{4})},
			Random: randomPair(binary(c.of), f),
		})
	}
	return true
}()

// noTie moves numbers of 12 bits apart that are equal, since differences give no gradient there.
const noTie = 1.0 / 2048

// where takes the lesser of an input and another one plus noTie.
func where(in ...*gorgonia.Node) (*gorgonia.Node, error) {
	if in[1] != nil && in[1].Graph() == nil { // a constant of Gorgonia's
		in[1] = in[0].Graph().AddNode(in[1])
	}
	above, err := ops.Map(fmt.Sprintf("a + %v", noTie), in[1])
	if err != nil {
		return nil, fmt.Errorf("the second input of: Where: %w", err)
	}
	cond, err := ops.Less(in[0], above)
	if err != nil {
		return nil, fmt.Errorf("the condition of: Where: %w", err)
	}
	return ops.Where(cond, in[0], above)
}

func lesser(x []float64) float64 {
	return min(x[0], x[1]+noTie)
}

var _ = register(Spec{
	Name: "Where", Formula: "out[i] = a[i] if cond[i], else b[i]", Doc: "Elements of two tensors, chosen by a condition.",
	Types: numberTypes[:2], Generated: true, AnyType: true, Mixed: true,
	Cases: composed(pairs(where, lesser)...),
	Bad: []Bad{
		bad("a condition of numbers", func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Where(in[0], in[0], in[0]) }, "input 0: got float64, want bool", tensor.Shape{3}),
		bad("other length", func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Where(gorgonia.Must(ops.Less(in[0], in[0])), in[0], in[1])
		}, "input 2: got shape (4), want one that broadcasts", tensor.Shape{3}, tensor.Shape{4}),
	},
	Random: func(r *rand.Rand) Case { return composed(randomPair(where, lesser)(r))[0] },
})

// composed marks cases of several ops.
func composed(cases ...Case) []Case {
	for i := range cases {
		cases[i].Composed = true
	}
	return cases
}

// castCase casts to float32 and, of floating-point numbers, to int32 and back.
func castCase(s tensor.Shape, toInteger bool) Case {
	name, build, types := "to float32", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Cast(x, tensor.Float32) }), numberTypes[1:]
	f := func(x []float64) float64 { return float64(float32(x[0])) }
	if toInteger {
		name, types = "to int32", numberTypes[:2]
		build = unary(func(x *gorgonia.Node) (*gorgonia.Node, error) {
			whole, err := ops.Cast(x, tensor.Int32)
			if err != nil {
				return nil, err
			}
			return ops.Cast(whole, tensor.Float64)
		})
		f = func(x []float64) float64 {
			if math.IsNaN(x[0]) {
				return 0
			}
			return math.Trunc(min(max(x[0], math.MinInt32), math.MaxInt32)) + 0
		}
	}
	c := exact(name, build, f, s)
	c.Types, c.Composed = types, toInteger
	return c
}

var _ = register(Spec{
	Name: "Cast", Formula: "out[i] = dtype(x[i])", Doc: "Another element type: to integers toward 0, the nearest where the type has none, 0 for NaN.",
	Types: numberTypes, Generated: true, AnyType: true, Stops: true,
	Cases: []Case{
		castCase(tensor.Shape{1}, false), castCase(tensor.Shape{}, false), castCase(tensor.Shape{1021}, false), castCase(tensor.Shape{5, 12, 4}, false),
		castCase(tensor.Shape{1}, true), castCase(tensor.Shape{1021}, true), castCase(tensor.Shape{7, 32}, true),
	},
	Bad:    []Bad{bad("a type without kernels", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Cast(x, tensor.Complex64) }), "got complex64, want an element type", tensor.Shape{3})},
	Random: func(r *rand.Rand) Case { return castCase(randomShape(r, 0, 4), r.IntN(2) == 0) },
})

// argumentCase finds the first element of each row that no other beats; NaN beats all numbers.
func argumentCase(of func(x *gorgonia.Node, axis int) (*gorgonia.Node, error), beats func(a, b float64) bool) func(s tensor.Shape, axes ...int) Case {
	return func(s tensor.Shape, axes ...int) Case {
		return rowCase(s, axes, along1(of, axes[0]-len(s)), func(x []float64) (out, magnitude []float64) {
			best := 0
			for i, v := range x {
				if !math.IsNaN(x[best]) && (math.IsNaN(v) || beats(v, x[best])) {
					best = i
				}
			}
			return []float64{float64(best)}, []float64{0}
		})
	}
}

var _, _ = registerArgument("ArgMax", "max", ops.ArgMax, func(a, b float64) bool { return a > b }), registerArgument("ArgMin", "min", ops.ArgMin, func(a, b float64) bool { return a < b })

func registerArgument(name, extreme string, of func(x *gorgonia.Node, axis int) (*gorgonia.Node, error), beats func(a, b float64) bool) bool {
	c := argumentCase(of, beats)
	return register(Spec{
		Name: name, Formula: "out[kept] = first i with x[i] = " + extreme + " x along axis", Doc: "Index of the " + map[string]string{"max": "greatest", "min": "least"}[extreme] + " element along an axis.",
		Types: numberTypes, Generated: true, Stops: true, Cases: rowCases(c),
		Bad:    []Bad{bad("axis too large", along1(of, 2), "got axis 2 of shape (3, 4), want -2 <= axis < 2", tensor.Shape{3, 4}), bad("a scalar", along1(of, 0), "got axis 0 of shape ()", tensor.Shape{})},
		Random: func(r *rand.Rand) Case { return randomRows(r, c) },
	})
}

// oneHotCase has the ids 0 to 4, as far as the numbers are.
func oneHotCase(s tensor.Shape) Case {
	build := func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		ids, err := ops.Map("max(0, min(4, a))", in[0])
		if err != nil {
			return ops.OneHot(in[0], 5, tensor.Float32) // which has an error of its own
		}
		return ops.OneHot(ids, 5, tensor.Float32)
	}
	c := exact("", build, func(x []float64) float64 {
		if max(0, min(4, x[0])) == x[1] {
			return 1
		}
		return 0
	}, append(slices.Clone(s), 1), tensor.Shape{5})
	of := c.Reference
	c.Shapes, c.Composed = []tensor.Shape{s}, true
	c.Reference = func(in ...[]float64) (out, magnitude []float64) { return of(in[0], []float64{0, 1, 2, 3, 4}) }
	return c
}

var _ = register(Spec{
	Name: "OneHot", Formula: "out[i, c] = c == ids[i]", Doc: "Rows of zeros with a 1 where an id is.",
	Types: numberTypes[2:], Generated: true, AnyType: true, Stops: true,
	Cases: []Case{oneHotCase(tensor.Shape{1}), oneHotCase(tensor.Shape{}), oneHotCase(tensor.Shape{300}), oneHotCase(tensor.Shape{4, 9})},
	Bad: []Bad{
		bad("floats", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.OneHot(x, 5, tensor.Float32) }), "input 0: got float64, want integers", tensor.Shape{3}),
		bad("no classes", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.OneHot(x, 0, tensor.Float32) }), "got 0 classes", tensor.Shape{3}),
	},
	Random: func(r *rand.Rand) Case { return oneHotCase(randomShape(r, 0, 3)) },
})
