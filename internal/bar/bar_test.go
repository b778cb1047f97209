package bar

import (
	"strings"
	"testing"
)

// A line fills the width: the bar takes what counters and text leave, and a long text ends early.
func TestWrite(t *testing.T) {
	for _, c := range []struct {
		at, total, width int
		text, want       string
	}{
		{0, 4, 20, "a", "0 / 4 [          ] a"},
		{1, 4, 20, "a", "1 / 4 [=>        ] a"},
		{4, 4, 20, "µs", "4 / 4 [=========] µs"},
		{5, 4, 20, "a", "5 / 4 [==========] a"},
		{3, 0, 20, "a", "3 / ? [          ] a"},
		{1, 4, 14, "longer", "1 / 4 [   ] lo"},
	} {
		var out strings.Builder
		b := Start(&out, c.total)
		b.At, b.Width = c.at, c.width
		if b.Write(c.text); out.String() != "\r"+c.want {
			t.Errorf("step %d of %d in %d columns: got %q, want %q", c.at, c.total, c.width, out.String(), "\r"+c.want)
		}
	}
}
