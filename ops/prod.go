package ops

import (
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Prod is the product of the elements of x along the given axes, or of all if none is given. The axes are removed from the shape; negative
// ones count from the end. The gradient is right for factors that are 0.
//
//	out[kept] = product over the axes' indexes of x[...]
//
// Each product is rounded to the element type; that of integers, or of bool, is an int64 that wraps, and has no gradient. An axis beyond the rank or given twice is an error.
func Prod(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) {
	t, axes, err := anyInputAlong(x, along)
	if err == nil && !t.Dtype.IsFloat() {
		x, err = Cast(x, tensor.Int64)
	}
	if err != nil {
		return nil, fmt.Errorf("ops: Prod%v: %w", along, err)
	}
	rest := without(t.Shape, axes)
	order := slices.Clone(axes) // the other axes, then those of the factors
	for a := len(t.Shape) - 1; a >= 0; a-- {
		if !slices.Contains(axes, a) {
			order = slices.Insert(order, 0, a)
		}
	}
	if !slices.IsSorted(order) {
		if x, err = Apply(viewing{permute{order}}, x); err != nil {
			return nil, err
		}
	}
	rows := rest.TotalSize()
	if x, err = reshaped(x, tensor.Shape{rows, t.Shape.TotalSize() / rows}); err != nil {
		return nil, err
	}
	if x, err = rowProducts(x); err != nil {
		return nil, err
	}
	return reshaped(x, rest)
}

// rowProducts returns the products of the rows of a matrix as a column. It multiplies a few sections of the columns, element by element,
// until one column is left.
func rowProducts(x *gorgonia.Node) (*gorgonia.Node, error) {
	const most = 8 // sections of a launch
	n := x.Shape()[1]
	if n == 1 {
		return x, nil
	}
	count := min(n, most)
	size := n / count
	parts, err := Split(x, 1, append(slices.Repeat([]int{size}, count), slices.Repeat([]int{n - count*size}, min(n-count*size, 1))...)...)
	if err != nil {
		return nil, err
	}
	product, err := Map(strings.Join(strings.Split(letters[:count], ""), "*"), parts[:count]...)
	if err == nil {
		product, err = rowProducts(product)
	}
	if err != nil || len(parts) == count {
		return product, err
	}
	rest, err := rowProducts(parts[count])
	if err != nil {
		return nil, err
	}
	return Map("a*b", product, rest)
}
