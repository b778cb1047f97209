package expr

import (
	"strings"
	"testing"
)

// Of a softmax the exponentials are kept for its last step; values that are cheap, or of which
// a row has only one, are computed again.
func TestStagesKept(t *testing.T) {
	b := NewBuilder(Float32, Float32)
	x := b.Operand(0)
	centered := b.Apply(Sub, x, b.Apply(RowMax, x))
	e := b.Apply(Exp, centered)
	sum := b.Apply(RowSum, e)
	f, err := b.Func(b.Apply(Div, e, sum), b.Apply(Add, centered, b.Apply(Log, sum)), b.Apply(Exp, b.Apply(Tanh, b.Operand(1))))
	if err != nil {
		t.Fatal(err)
	}
	staged, kept, err := f.StagesKept([]bool{false, false, false})
	if err != nil || len(kept) != 1 || kept[0] != Float32 || staged.Stages[0].Kept != 0 || staged.Stages[1].Kept != 1 {
		t.Fatalf("got %+v, %v, %v, want the exponentials kept by the second stage", staged, kept, err)
	}
	if n := len(staged.Stages[1].Func.Outputs()); n != 2 {
		t.Errorf("the second stage has %d outputs, want the sum's argument and the exponentials", n)
	}
	last := staged.Elements.String() // operands: 2, the kept one, a maximum, a sum
	if strings.Count(last, "exp") != 1 || !strings.Contains(last, "exp(tanh(x1))") || !strings.Contains(last, "x2 / x4") {
		t.Errorf("the last step is %s, want x2 / x4 and one exponential", last)
	}
	plain, err := f.Stages([]bool{false, false, false})
	if err != nil || plain.Stages[1].Kept != 0 || strings.Count(plain.Elements.String(), "exp") != 2 {
		t.Errorf("got %+v, %v, want nothing kept", plain, err)
	}
}
