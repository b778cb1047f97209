package expr

import "testing"

// A part of the function that depends on the last operands alone and takes many operations is
// computed first; one that takes few, or depends on more operands, stays where it is.
func TestHoist(t *testing.T) {
	b := NewBuilder(Float32, Float32, Float32)
	x, sum, most := b.Operand(0), b.Operand(1), b.Operand(2)
	log := b.Apply(Log, sum)
	f, err := b.Func(b.Apply(Sub, b.Apply(Sub, x, most), log), b.Apply(Add, b.Apply(Exp, x), b.Apply(Add, most, sum)), b.Apply(Sqrt, log))
	if err != nil {
		t.Fatal(err)
	}
	early, late, err := f.Hoist(1)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := early.String(), "f32, f32, f32: t0 = log(x1); t0, sqrt(t0)"; got != want {
		t.Errorf("early is %q, want %q", got, want)
	}
	if got, want := late.String(), "f32, f32, f32, f32, f32: x0 - x2 - x3, exp(x0) + (x2 + x1), x4"; got != want {
		t.Errorf("late is %q, want %q", got, want)
	}
	if early, late, err = f.Hoist(3); err != nil || late != f || early != (Func{}) {
		t.Errorf("with nothing to hoist: %v, %v, %v", early, late, err)
	}
}
