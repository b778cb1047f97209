package figure

import (
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"
)

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		log    bool
		lo, hi float64
		want   string
	}{
		{false, 0, 10, "0 2 4 6 8 10"},
		{false, 0, .5, "0 0.1 0.2 0.3 0.4 0.5"},
		{false, -2.5, 31, "0 10 20 30"},
		{false, 0, 3e6, "0 5×10⁵ 10⁶ 1.5×10⁶ 2×10⁶ 2.5×10⁶ 3×10⁶"},
		{true, 1, 132, "1 2 5 10 20 50 100"},
		{true, 4000, 4400, "4000 4100 4200 4300 4400"},
		{true, 4096, 2.7e8, "10⁴ 10⁵ 10⁶ 10⁷ 10⁸"},
		{true, .05, 2e4, "0.1 1 10 100 1000 10000"},
		{true, 1e-9, 1e20, "10⁻⁸ 0.001" /* every fourth */},
	} {
		var named []string
		for _, tick := range (ticks{c.log}).Ticks(c.lo, c.hi) {
			if tick.Value < c.lo*(1-1e-9) || tick.Value > c.hi*(1+1e-9) {
				t.Errorf("%v to %v has a tick at %v", c.lo, c.hi, tick.Value)
			}
			if !tick.IsMinor() {
				named = append(named, tick.Label)
			}
		}
		if s := strings.Join(named, " "); s != c.want && !strings.HasSuffix(c.want, " 0.001") {
			t.Errorf("ticks of %v to %v, log %v: %s, want %s", c.lo, c.hi, c.log, s, c.want)
		} else if len(named) > 11 {
			t.Errorf("%d ticks of %v to %v", len(named), c.lo, c.hi)
		}
	}
}

func TestLabel(t *testing.T) {
	for v, want := range map[float64]string{0: "0", math.Copysign(0, -1): "0", 0.05: "0.05", -3 * .1: "−0.3", 5000: "5000", 2e4: "20000", 1e5: "10⁵", 1e6: "10⁶", 2e7: "2×10⁷", -5e10: "−5×10¹⁰", 1e-7: "10⁻⁷", 12345678: "1.235×10⁷"} {
		if got := label(v); got != want {
			t.Errorf("label(%v) = %s, want %s", v, got, want)
		}
	}
	for s, want := range map[string]string{"2^28 bytes": "2²⁸ bytes", "units of 2^-23": "units of 2⁻²³", "N^3": "N³", "A^T B": "A^T B", "(a+b)^2": "(a+b)²", "x ^2": "x ^2"} {
		if got := Typeset(s); got != want {
			t.Errorf("Typeset(%q) = %q, want %q", s, got, want)
		}
	}
}

// Superscripts are smaller digits above the line, behind their base.
func TestSuperscripts(t *testing.T) {
	var c recorder.Canvas
	sty := style(20, Ink)
	area := draw.NewCanvas(&c, 100, 100)
	area.FillText(sty, vg.Point{X: 10, Y: 50}, "2⁻⁹ µs")
	type run struct {
		text string
		size vg.Length
		at   vg.Point
	}
	var runs []run
	for _, a := range c.Actions {
		if f, ok := a.(*recorder.FillString); ok {
			runs = append(runs, run{f.String, f.Size, f.Point})
		}
	}
	if len(runs) != 3 || runs[0].text != "2" || runs[1].text != "−9" || runs[2].text != "µs" {
		t.Fatalf("wrote %+v, want 2, -9 and µs", runs)
	}
	if !(runs[1].size < runs[0].size && runs[1].at.Y > runs[0].at.Y+5 && runs[0].at.Y == runs[2].at.Y && runs[0].at.X < runs[1].at.X && runs[1].at.X < runs[2].at.X) {
		t.Errorf("wrote %+v, want a small run above the line between two others", runs)
	}
	if w := runs[2].at.X - 10 + sty.Width("µs"); math.Abs(float64(w-sty.Width("2⁻⁹ µs"))) > 1e-9 {
		t.Errorf("the width is %v, that of the runs %v", sty.Width("2⁻⁹ µs"), w)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 12: "12", 1.5: "1.50", 12.345: "12.3", 123.45: "123", 99.96: "100", 9.996: "10", 9.96: "9.96", 4585.3: "4585", 0.12345: "0.123", 31418: "31418",
		-3.14159: "-3.14", 1e-4: "0.0001", 1.234e-5: "1.23e-05", 1 << 30: "1.07e+09",
	} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) = %s, want %s", v, got, want)
		}
	}
	if got := Number(math.NaN()); got != "-" {
		t.Errorf("Number(NaN) = %s, want -", got)
	}
}

// Numbers, with units or without, make a column of numbers; numbered names do not.
func TestNumericColumns(t *testing.T) {
	table := Table{Rows: [][]string{{"-1.5", "12 us", "2 / 8", "-", "1: one", "fast"}, {"", "0", "3", "5e-08", "12: two", "1"}}}
	if got, want := table.Numeric(), []bool{true, true, true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
