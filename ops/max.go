package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
)

// Max is the greatest element of x along the given axes, or of all if none is given, and NaN if one of them is. The axes are removed from
// the shape; negative ones count from the end. The gradient is shared equally by the elements that are equal to the greatest. It is NaN for
// all elements if one of them is NaN, as that of PyTorch's amax. Integers have no gradient.
//
//	out[kept] = max over the axes' indexes of x[...]
//
// An axis beyond the rank or given twice is an error.
func Max(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) {
	return extreme("Max", expr.RowMax, x, along)
}

// Min is [Max] for the least element.
func Min(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) {
	return extreme("Min", expr.RowMin, x, along)
}

func extreme(name string, op expr.Op, x *gorgonia.Node, along []int) (*gorgonia.Node, error) {
	switch t, axes, err := anyInputAlong(x, along); {
	case err == nil && t.Dtype == kernels.Bool:
		return nil, fmt.Errorf("ops: %s%v: input 0: got bool, want numbers", name, along)
	case err == nil && t.Dtype.IsInteger():
		if t.Shape.IsScalar() {
			return x, nil
		}
		return Apply(reduceIntegers{name, op, t.Dtype, axes}, x)
	}
	return reduceRows(name, fmt.Sprintf("%v(a)", op), x, along)
}

// Var is the variance of x along the given axes, or of all elements if none is given, as [VarCorrection] with the correction 1: the variance
// of a sample, PyTorch's default.
func Var(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) {
	return VarCorrection(x, 1, along...)
}

// VarCorrection is the variance of x along the given axes, or of all elements if none is given. The axes are removed from the shape; negative ones
// count from the end.
//
//	out[kept] = (sum over the axes' indexes of (x[...] - mean)²) / (number of terms - correction)
//
// The correction is 1 for the variance of a sample, and 0 for that of all values. The mean is computed first; both are
// computed in double precision and rounded once, so that equal elements of float32 have the variance 0. It is an error if there are not more terms than the correction, or if that is negative.
func VarCorrection(x *gorgonia.Node, correction int, along ...int) (*gorgonia.Node, error) {
	t, axes, err := inputAlong(x, along)
	if err != nil {
		return nil, fmt.Errorf("ops: Var%v: %w", along, err)
	}
	n := t.Shape.TotalSize() / without(t.Shape, axes).TotalSize()
	if correction < 0 || n <= correction {
		return nil, fmt.Errorf("ops: Var%v: got %d terms and the correction %d, want a correction of 0 or more and more terms", along, n, correction)
	}
	return reduceRows("Var", fmt.Sprintf("rowmean(square(a - %s), %d)", meanOf(n), n-correction), x, along)
}

// reduceRows applies a function with one result for each row of x along some axes.
func reduceRows(name, expression string, x *gorgonia.Node, along []int) (*gorgonia.Node, error) {
	r, err := rowsAlong(name, expression, x, along, ofRows)
	if err != nil {
		return nil, err
	}
	return Apply(r, x)
}
