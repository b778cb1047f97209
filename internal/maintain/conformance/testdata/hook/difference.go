//go:build go1.26

package sthenohook

import (
	"fmt"
	"math"
	"reflect"
	"strconv"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// difference returns the greatest difference of two values' elements, as a share of the
// greatest element of the second or of 1.
func difference(a, b gorgonia.Value) (apart float64, why string) {
	if a.Dtype() != b.Dtype() {
		return 0, fmt.Sprintf("type %v, want %v", a.Dtype(), b.Dtype())
	}
	if !a.Shape().Eq(b.Shape()) {
		why = fmt.Sprintf("shape %v, want %v", a.Shape(), b.Shape())
	} else if reflect.TypeOf(a) != reflect.TypeOf(b) {
		why = fmt.Sprintf("a %T, want a %T", a, b)
	}
	x, y := elements(a), elements(b)
	if len(x) != len(y) {
		return 0, fmt.Sprintf("%d elements, want %d", len(x), len(y))
	}
	if flips, binary := flipped(x, y); binary && float64(flips) <= 1e-4*float64(len(x)) {
		return 0, why // a comparison of numbers that differ by their last bits
	}
	scale := 1.0
	for _, v := range y {
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			scale = math.Max(scale, math.Abs(v))
		}
	}
	for i := range x {
		switch {
		case x[i] == y[i] || math.IsNaN(x[i]) && math.IsNaN(y[i]):
		case math.IsNaN(x[i]-y[i]) || math.IsInf(x[i]-y[i], 0):
			return math.MaxFloat64, fmt.Sprintf("element %d is %v, want %v", i, x[i], y[i])
		default:
			apart = math.Max(apart, math.Abs(x[i]-y[i])/scale)
		}
	}
	return apart, why
}

// flipped returns in how many elements two values differ; binary reports that all are 0 or 1.
func flipped(x, y []float64) (flips int, binary bool) {
	for i := range x {
		if (x[i] != 0 && x[i] != 1) || (y[i] != 0 && y[i] != 1) {
			return 0, false
		}
		if x[i] != y[i] {
			flips++
		}
	}
	return flips, true
}

// elements returns those of a value in row-major order.
func elements(v gorgonia.Value) []float64 {
	var data any = v.Data()
	if t, ok := v.(tensor.Tensor); ok {
		if d, dense := t.(*tensor.Dense); dense && !t.Shape().IsScalar() && (t.RequiresIterator() || t.DataOrder().IsColMajor()) {
			data = d.Materialize().Data()
		}
	}
	var out []float64
	switch s := data.(type) {
	case []float64:
		return s
	case []float32:
		out = convert(s)
	case []int:
		out = convert(s)
	case []int32:
		out = convert(s)
	case []int64:
		out = convert(s)
	case []uint8:
		out = convert(s)
	case []bool:
		for _, b := range s {
			if out = append(out, 0); b {
				out[len(out)-1] = 1
			}
		}
	case float64:
		out = []float64{s}
	case float32:
		out = []float64{float64(s)}
	case bool:
		if out = []float64{0}; s {
			out[0] = 1
		}
	default:
		f, err := strconv.ParseFloat(fmt.Sprint(s), 64)
		if err != nil {
			return nil
		}
		out = []float64{f}
	}
	return out
}

func convert[T float32 | int | int32 | int64 | uint8](s []T) []float64 {
	out := make([]float64, len(s))
	for i, v := range s {
		out[i] = float64(v)
	}
	return out
}
