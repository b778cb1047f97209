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
		{"rowmean(x, 4)", 0, true, "z / 4"},
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
	for _, text := range []string{"rowsum(a)", "rowmean(a, 2)"} {
		if _, err := Parse(text, Float32, "a"); err == nil {
			t.Errorf("Parse reads %s, want an error", text)
		}
	}
	for _, text := range []string{"rowmean(a)", "rowmean(a, 0)", "rowmean(a, a)", "rowmean(a, -1)", "rowmean(, 2)", "rowmean(a, 2"} {
		if f, err := ParseRows(text, Float32, "a"); err == nil {
			t.Errorf("%s: got %v and no error", text, f)
		}
	}
	mean, err := ParseRows("rowmean(a, 3)", Float32, "a")
	if want := "f32: f32(rowsum(f64(x0)) * f64(0.3333333333333333))"; err != nil || mean.String() != want {
		t.Errorf("got %v, %v, want %s", mean, err, want)
	}
}
