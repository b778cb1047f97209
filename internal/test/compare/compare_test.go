package compare

import (
	"errors"
	"math"
	"strings"
	"testing"
)

var (
	nan = math.NaN()
	inf = math.Inf(1)
)

func TestClose(t *testing.T) {
	t.Run("float32", testClose[float32])
	t.Run("float64", testClose[float64])
}

func testClose[T Float](t *testing.T) {
	eps := Epsilon[T]()
	for _, c := range []struct {
		name           string
		got            T
		ref, magnitude float64
		tol            float64
		ok             bool
	}{
		{"equal", 1, 1, 1, 0, true},
		{"one epsilon", T(1 + eps), 1, 1, 1, true},
		{"two epsilons", T(1 + 2*eps), 1, 1, 1, false},
		{"cancelled", T(64 * eps), 0, 64, 1, true},
		{"cancelled, too far", T(65 * eps), 0, 64, 1, false},
		{"zeros of both signs", T(math.Copysign(0, -1)), 0, 0, 0, true},
		{"NaN for NaN", T(nan), nan, nan, 1, true},
		{"NaN for a number", T(nan), 1, 1, 1e30, false},
		{"number for NaN", 1, nan, nan, 1e30, false},
		{"Inf for Inf", T(inf), inf, inf, 1, true},
		{"-Inf for Inf", T(-inf), inf, inf, 1e30, false},
		{"Inf for a number", T(inf), 1, 1, 1e30, false},
		{"number for Inf", 1, inf, inf, 1e30, false},
		{"NaN for Inf", T(nan), inf, inf, 1e30, false},
		{"infinite magnitude hides nothing", T(nan), 0, inf, 1, false},
		{"smallest", T(smallest[T]()), 0, 0, 1, true},
	} {
		err := Close([]T{c.got}, []float64{c.ref}, []float64{c.magnitude}, c.tol, 0)
		if (err == nil) != c.ok {
			t.Errorf("%s: got error %v, want one: %v", c.name, err, !c.ok)
		}
	}
}

func TestCloseOverflow(t *testing.T) {
	if err := Close([]float32{float32(inf)}, []float64{1e39}, nil, 1, 0); err != nil {
		t.Errorf("a reference beyond float32: %v", err)
	}
	if Close([]float32{math.MaxFloat32}, []float64{1e39}, nil, 1, 0) == nil {
		t.Error("a finite result passed for a reference beyond float32")
	}
}

func TestCloseNamesElement(t *testing.T) {
	err := Close([]float64{1, 2.5, 3, 9}, []float64{1, 2, 3, 4}, nil, 1, 0.1)
	var d *Difference
	if !errors.As(err, &d) {
		t.Fatalf("got %v, want a *Difference", err)
	}
	if d.Index != 3 || d.First != 1 || d.Bad != 2 || d.N != 4 || d.Got != 9 || d.Want != 4 {
		t.Errorf("got %+v, want element 3 (9 for 4), first 1, 2 of 4", d)
	}
	if s := err.Error(); !strings.Contains(s, "element 3: got 9, want 4") || !strings.Contains(s, "2 of 4") {
		t.Errorf("the message %q does not name the element", s)
	}
}

func TestCloseLengths(t *testing.T) {
	if Close([]float64{1}, []float64{1, 2}, nil, 1, 0) == nil {
		t.Error("a missing element passed")
	}
	if Close([]float64{1}, []float64{1}, []float64{1, 2}, 1, 0) == nil {
		t.Error("a magnitude of another length passed")
	}
}

func TestIdentical(t *testing.T) {
	if err := Identical([]float32{1, float32(nan), 0}, []float32{1, float32(nan), 0}); err != nil {
		t.Error(err)
	}
	if Identical([]float64{0}, []float64{math.Copysign(0, -1)}) == nil {
		t.Error("0 passed for -0")
	}
	if err := Identical([]float64{1, 2}, []float64{1, 3}); err == nil || !strings.Contains(err.Error(), "element 1") {
		t.Errorf("got %v, want an error that names element 1", err)
	}
	if Identical([]float64{1}, nil) == nil {
		t.Error("a missing element passed")
	}
}
