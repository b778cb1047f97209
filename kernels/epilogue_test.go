package kernels

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Every form is found by what it computes, whatever the order of the arguments of its
// sums and products and of its operands; and no function is two forms.
func TestForms(t *testing.T) {
	if want := 2 * len(formTexts); len(forms()) != want {
		t.Fatalf("got %d functions of forms, want %d", len(forms()), want)
	}
	for _, c := range []struct {
		text  string
		names []string
		form  Form
		slots []int
	}{
		{"(0 <= c) * (0 + c)", []string{"c"}, formRectified, nil},
		{"b + c", []string{"c", "b"}, formPlus, []int{0}},
		{"tanh(b + c)", []string{"c", "b"}, formPlusTanh, []int{0}},
		{"b + (a + c)", []string{"c", "a", "b"}, formPlusPlus, []int{0, 1}},
		{"a + (b + c)", []string{"c", "a", "b"}, formPlusPlus, []int{1, 0}},
		{"(0 <= a + (b + c)) * (a + (b + c) + 0)", []string{"c", "a", "b"}, formPlusPlusRectified, []int{1, 0}},
		{"(1 - y * y) * c", []string{"c", "y"}, formTimesTanh, []int{0}},
		{"sigmoid(-t) * y * c", []string{"c", "t", "y"}, formTimesSigmoid, []int{1, 0}},
		{"c + (a + b)", []string{"c", "a", "b"}, formNone, nil}, // another order of sums
		{"c - b", []string{"c", "b"}, formNone, nil},
		{"c * c", []string{"c"}, formNone, nil},
		{"c * (0 <= b)", []string{"c", "b"}, formNone, nil},
		{"c * (0 < 1 / b)", []string{"c", "b"}, formNone, nil},
		{"a + b", []string{"c", "a", "b"}, formNone, nil},
	} {
		f, err := expr.Parse(c.text, Float64, c.names...)
		if err != nil {
			t.Fatal(err)
		}
		e, ok := newEpilogue(f, make([]View, len(c.names)-1))
		if ok != (c.form != formNone) || e.form != c.form {
			t.Errorf("%s: got form %#x, %v, want %#x", c.text, int(e.form), ok, int(c.form))
			continue
		}
		for i, slot := range c.slots {
			if e.slots[i] != slot {
				t.Errorf("%s: got operands in order %v, want %v", c.text, e.slots, c.slots)
				break
			}
		}
	}
}
