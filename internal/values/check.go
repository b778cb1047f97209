package values

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// NotFinite returns "NaN" or "Inf", those of the two that are asked for, and the number of the first
// such element in the memory of a value of floats, "" if there is none.
func NotFinite(dt kernels.Dtype, m []byte, nan, inf bool) (what string, at int) {
	switch dt {
	case kernels.Float32:
		return firstNotFinite(kernels.Elements[float32](m), nan, inf)
	case kernels.Float64:
		return firstNotFinite(kernels.Elements[float64](m), nan, inf)
	}
	return "", 0
}

func firstNotFinite[T float32 | float64](elements []T, nan, inf bool) (what string, at int) {
	for i, x := range elements {
		switch {
		case nan && x != x:
			return "NaN", i
		case inf && math.IsInf(float64(x), 0):
			return "Inf", i
		}
	}
	return "", 0
}

// CheckIndices returns an error that names the first element of an integer value outside of 0 to below count, unless it is also.
func CheckIndices(v gorgonia.Value, count, also int) error {
	m, err := Bytes(v)
	if err != nil {
		return fmt.Errorf("its indices are %w", err)
	}
	switch dt, _ := Dtype(v.Dtype()); dt {
	case kernels.Uint8:
		return checkIndices(m, count, also)
	case kernels.Int32:
		return checkIndices(kernels.Elements[int32](m), count, also)
	case kernels.Int64:
		return checkIndices(kernels.Elements[int64](m), count, also)
	case kernels.Int:
		return checkIndices(kernels.Elements[int](m), count, also)
	}
	return fmt.Errorf("got indices of %v, want integers", v.Dtype())
}

func checkIndices[T uint8 | int32 | int64 | int](list []T, count, also int) error {
	for i, index := range list {
		if at := int64(index); (at < 0 || at >= int64(count)) && at != int64(also) {
			return fmt.Errorf("got index %d at %d, want 0 to %d", at, i, count-1)
		}
	}
	return nil
}
