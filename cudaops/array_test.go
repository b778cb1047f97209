package cudaops

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/tensor"
)

// array is a tensor of the plainest kind: elements in row-major order.
type array struct {
	shape []int
	v     []float64
}

// each calls f with every index of a shape, in row-major order.
func each(shape []int, f func(index []int)) {
	index := make([]int, len(shape))
	var walk func(axis int)
	walk = func(axis int) {
		if axis == len(shape) {
			f(index)
			return
		}
		for index[axis] = range shape[axis] {
			walk(axis + 1)
		}
	}
	walk(0)
}

// generate returns the array of a function of the index.
func generate(shape []int, f func(index []int) float64) array {
	out := array{shape: shape}
	each(shape, func(index []int) { out.v = append(out.v, f(index)) })
	return out
}

// at returns the element of an index. Axes of one element take any index, and an array
// with fewer axes is repeated along the first ones.
func (a array) at(index ...int) float64 {
	index = index[len(index)-len(a.shape):]
	k := 0
	for i, d := range a.shape {
		k *= d
		if d > 1 {
			k += index[i]
		}
	}
	return a.v[k]
}

// apply returns the array of a function of each element.
func (a array) apply(f func(float64) float64) array {
	return generate(a.shape, func(i []int) float64 { return f(a.at(i...)) })
}

// reduce returns a reduction along axes, all of them for none.
func (a array) reduce(from float64, f func(acc, x float64) float64, axes ...int) array {
	if len(axes) == 0 {
		for i := range a.shape {
			axes = append(axes, i)
		}
	}
	var kept, shape []int
	for i, d := range a.shape {
		if !slices.Contains(axes, i) {
			kept, shape = append(kept, i), append(shape, d)
		}
	}
	out := generate(shape, func([]int) float64 { return from })
	each(a.shape, func(index []int) {
		k := 0
		for _, i := range kept {
			k = k*a.shape[i] + index[i]
		}
		out.v[k] = f(out.v[k], a.at(index...))
	})
	return out
}

func (a array) sum(axes ...int) array {
	return a.reduce(0, func(acc, x float64) float64 { return acc + x }, axes...)
}

func (a array) max(axes ...int) array { return a.reduce(math.Inf(-1), math.Max, axes...) }

// keep returns the array with an axis of one element more.
func (a array) keep(axis int) array {
	return array{slices.Insert(slices.Clone(a.shape), axis, 1), a.v}
}

// combine returns the array of a function of elements at the same index, of the shape
// of the first.
func combine(f func(x, y float64) float64, a, b array) array {
	return generate(a.shape, func(i []int) float64 { return f(a.at(i...), b.at(i...)) })
}

func minus(a, b array) array {
	return combine(func(x, y float64) float64 { return x - y }, a, b)
}

// logSoftMax is x - log(sum(exp(x))) along an axis.
func (a array) logSoftMax(axis int) array {
	shifted := minus(a, a.max(axis).keep(axis))
	return minus(shifted, shifted.apply(math.Exp).sum(axis).apply(math.Log).keep(axis))
}

type kernelsDtype = kernels.Dtype

func dtypeOf(dt tensor.Dtype) (kernelsDtype, error) {
	d, _ := values.Dtype(dt)
	return d, nil
}

// setNumber sets an element of a tensor of floats.
func setNumber(v *tensor.Dense, k int, x float64) {
	switch s := v.Data().(type) {
	case []float64:
		s[k] = x
	case []float32:
		s[k] = float32(x)
	}
}

// layerNorm is (x - mean) / sqrt(variance + 0.01) by rows, scaled and shifted.
func layerNorm(x ...array) array {
	n := float64(x[0].shape[1])
	by := func(v float64) float64 { return v / n }
	centred := minus(x[0], x[0].sum(1).apply(by).keep(1))
	deviation := centred.apply(func(v float64) float64 { return v * v }).sum(1).apply(by).keep(1).apply(func(v float64) float64 { return math.Sqrt(v + 0.01) })
	scaled := combine(func(x, y float64) float64 { return x / y }, centred, deviation)
	scaled = combine(func(x, y float64) float64 { return x * y }, scaled, x[1])
	return combine(func(x, y float64) float64 { return x + y }, scaled, x[2])
}
