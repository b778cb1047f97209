package expr

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/bigmath"
)

// Each operation has what the table of operations asks for: a name, gradients that differences confirm, a Go body and, if it is a function of math.cu, a
// reference. Package codegen reads math.cu, and fails if a body lacks there.
func TestOps(t *testing.T) {
	names := map[string]Op{}
	for op := Neg; op < opCount; op++ {
		o := ops[op]
		if other, ok := names[o.name]; ok || o.name == "" || o.arity < 1 || o.arity > 3 {
			t.Errorf("operation %d has the name %q, which %v has too, and %d arguments", op, o.name, other, o.arity)
		}
		names[o.name] = op
	}
	exact, functions := Ops()
	for _, op := range append(exact, functions...) {
		o := ops[op]
		if op != Select && len(o.gradients) != o.arity {
			t.Errorf("%v has %d gradients, want %d: \"0\" for none", op, len(o.gradients), o.arity)
		}
		b := NewBuilder(Float64, Float64, Float64)
		args := []Value{b.Operand(0), b.Operand(1), b.Operand(2)}
		if op == Select {
			args[0] = b.Apply(Ne, args[0], b.Constant(Float64, 0))
		}
		f, err := b.Func(b.Apply(op, args[:o.arity]...))
		if err != nil {
			t.Errorf("%v: %v", op, err)
			continue
		}
		checkGradient(t, f)
		// A Go body writes other numbers than it reads, at one of several arguments.
		x, y, z := []float64{0.75, -2.5, 3}, []float64{2, 0.5, -1.5}, []float64{9, 9, 9}
		if got := call(t, f, x, y, z); got[0] == 0 && got[1] == 0 && got[2] == 0 {
			t.Errorf("%v of %v and %v is %v: it has no Go body", op, x, y, got)
		}
	}
	for _, op := range functions {
		if bigmath.Function(op.String()) == nil {
			t.Errorf("%v has no reference in bigmath", op)
		}
	}
}

// The greatest results of an exponential are finite, as they are of the function and
// not of every math.Exp.
func TestExpNearOverflow(t *testing.T) {
	for _, x := range []float64{709.0001, 709.43, 709.44, 709.6003409688213, 709.78, 709.782712893384, 709.7827128933841, 710} {
		half := math.Exp(x / 2)
		if got, want := exp(x), half*half; math.Abs(got-want) > 1e-13*want && got != want {
			t.Errorf("exp of %v is %v, want %v", x, got, want)
		}
	}
}
