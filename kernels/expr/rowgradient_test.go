package expr

import "testing"

// Gradients of functions of rows, as text: by an operand of elements, and by one that repeats along a row.
func TestRowGradient(t *testing.T) {
	for _, c := range []struct {
		text   string
		of     int
		perRow bool
		want   string
	}{
		{"rowsum(x * y)", 0, true, "z * y"},
		{"rowsum(x * y)", 1, true, "rowsum(z * x)"},
		{"y * rowsum(x)", 1, true, "z * rowsum(x)"},
		{"x * rowsum(x)", 0, false, "z * rowsum(x) + rowsum(z * x)"},
		{"x * y + y", 1, false, "rowsum(z + z * x)"},
		{"rowmax(x)", 0, true, "z / rowsum(x == rowmax(x)) * (x == rowmax(x))"},
		{"rowmin(x)", 1, true, "0"},
	} {
		f, err := ParseRows(c.text, Float64, "x", "y")
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.RowGradient(c.of, c.perRow, []bool{false, true})
		if err != nil {
			t.Fatal(err)
		}
		want, err := ParseRows(c.want, Float64, "x", "y", "z")
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() {
			t.Errorf("%s by operand %d: got %v, want %v", c.text, c.of, got, want)
		}
	}
	f := parse(t, "a", Float32, "a")
	for _, bad := range []struct {
		of   int
		rows []bool
	}{{1, []bool{false}}, {-1, []bool{false}}, {0, nil}} {
		if g, err := f.RowGradient(bad.of, false, bad.rows); err == nil {
			t.Errorf("operand %d, flags %v: got %v and no error", bad.of, bad.rows, g)
		}
	}
	if _, err := Parse("rowsum(a)", Float32, "a"); err == nil {
		t.Error("Parse reads a reduction, want an error")
	}
}
