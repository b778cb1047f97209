package ops

import (
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
)

// Equal compares elements, as do the functions below. The inputs broadcast to one shape by numpy's rule and become the type that
// [expr.Promote] returns for both; the output is of bool. Comparisons with NaN are false, except NotEqual. They have no gradient.
//
//	out[i] = a[i] == b[i]
func Equal(a, b *gorgonia.Node) (*gorgonia.Node, error) { return comparison("Equal", expr.Eq, a, b) }

// NotEqual is a[i] != b[i]: see [Equal].
func NotEqual(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return comparison("NotEqual", expr.Ne, a, b)
}

// Less is a[i] < b[i]: see [Equal]. It takes no bool, as do the functions below.
func Less(a, b *gorgonia.Node) (*gorgonia.Node, error) { return comparison("Less", expr.Lt, a, b) }

// LessEqual is a[i] <= b[i]: see [Less].
func LessEqual(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return comparison("LessEqual", expr.Le, a, b)
}

// Greater is a[i] > b[i]: see [Less].
func Greater(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return comparison("Greater", expr.Gt, a, b)
}

// GreaterEqual is a[i] >= b[i]: see [Less].
func GreaterEqual(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return comparison("GreaterEqual", expr.Ge, a, b)
}

func comparison(name string, op expr.Op, a, b *gorgonia.Node) (*gorgonia.Node, error) {
	e, x, err := promoted(name, 0, a, b)
	if err != nil {
		return nil, err
	}
	return applyFunc(name, e, e.Apply(op, x...), a, b)
}
