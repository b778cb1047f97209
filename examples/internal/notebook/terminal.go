package notebook

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Charts, bars, maps and pictures leave what a terminal can show of them on the
// canvas that they are drawn on; [Page.Figure] prints it.

const (
	plotWidth, plotHeight = 72, 14       // characters of a chart
	pictureWidth          = 40           // characters of a picture; half as many lines
	ramp                  = " .:-=+*#%@" // from the least to the greatest value
)

// terminal is what to print for the canvas.
func (c *Canvas) terminal() string { return c.text + c.pictures }

// shade is the character of a value from 0 to 1, "?" for NaN.
func shade(t float64) byte {
	if math.IsNaN(t) {
		return '?'
	}
	return ramp[min(max(int(t*float64(len(ramp))), 0), len(ramp)-1)]
}

// text is the chart as characters: a symbol for each series.
func (ch Chart) text(horizontal axis, vertical [2]axis) string {
	const symbols = "ox+*#@%&"
	grid := make([][]byte, plotHeight)
	for i := range grid {
		grid[i] = []byte(strings.Repeat(" ", plotWidth))
	}
	horizontal.a, horizontal.b = 0, plotWidth-1
	legend := ""
	for k, s := range ch.Series {
		v := vertical[side(s)]
		v.a, v.b = plotHeight-1, 0
		symbol := symbols[k%len(symbols)]
		legend += fmt.Sprintf("  %c %s", symbol, s.Name)
		if s.Right {
			legend += " (right)"
		}
		for i := range s.Y {
			if y := v.at(s.Y[i]); !math.IsNaN(y) && !math.IsInf(y, 0) {
				grid[int(math.Round(y))][int(math.Round(horizontal.at(s.X[i])))] = symbol
			}
		}
		for _, m := range s.Marks {
			if m.At >= 0 && m.At < len(s.Y) && !math.IsNaN(s.Y[m.At]) {
				legend += ", " + m.Text
			}
		}
	}
	ends := func(v axis) (lo, hi string) {
		lo, hi = Number(v.lo), Number(v.hi)
		if v.log {
			lo, hi = Number(math.Pow(10, v.lo)), Number(math.Pow(10, v.hi))
		}
		return lo, hi
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n", pad(ch.Title, 12), legend)
	lo, hi := ends(vertical[0])
	rlo, rhi := "", ""
	if vertical[1].any {
		rlo, rhi = ends(vertical[1])
	}
	for i, line := range grid {
		left, right := "", ""
		switch i {
		case 0:
			left, right = hi, rhi
		case plotHeight - 1:
			left, right = lo, rlo
		}
		fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("%10s |%s| %s", left, line, right), " "))
	}
	x0, x1 := ends(horizontal)
	gap := max(plotWidth-len(x0)-len(x1), 1)
	middle := centred(ch.XLabel, gap)
	fmt.Fprintf(&b, "%12s%s%s%s\n", "", x0, middle, x1)
	return b.String()
}

// text is the bars as lines of blocks.
func (b Bars) text(values axis) string {
	const most = 50
	values.a, values.b = 0, most
	wide := 0
	for _, n := range b.Names {
		wide = max(wide, utf8.RuneCountInString(n))
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%s (%s)\n", b.Title, b.Label)
	for i, name := range b.Names {
		for k, series := range b.Series {
			if k > 0 {
				name = ""
			}
			if i >= len(series.Values) || math.IsNaN(series.Values[i]) {
				continue
			}
			n := int(math.Round(values.at(series.Values[i])))
			line := fmt.Sprintf("  %s  %s %s %s", pad(name, wide), strings.Repeat("█", max(n, 0)), Number(series.Values[i]), series.Name)
			fmt.Fprintln(&s, strings.TrimRight(line, " "))
		}
	}
	return s.String()
}

// text is the map as a table of numbers, or of shades where it is too wide.
func (h HeatMap) text(lo, hi float64) string {
	title := fmt.Sprintf("%s (%s; rows: %s, columns: %s)", h.Title, h.Label, h.YLabel, h.XLabel)
	if len(h.Columns) <= 12 {
		t := Table{Caption: title, Header: append([]string{""}, h.Columns...)}
		for r := len(h.Values) - 1; r >= 0; r-- {
			row := []string{""}
			if r < len(h.Rows) {
				row[0] = h.Rows[r]
			}
			for _, v := range h.Values[r] {
				row = append(row, Number(v))
			}
			t.Rows = append(t.Rows, row)
		}
		return t.text()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%q is %s to %s\n", title, ramp, Number(lo), Number(hi))
	for r := len(h.Values) - 1; r >= 0; r-- {
		name := ""
		if r < len(h.Rows) {
			name = h.Rows[r]
		}
		fmt.Fprintf(&b, "%10s |", name)
		for _, v := range h.Values[r] {
			s := shade((v - lo) / (hi - lo))
			fmt.Fprintf(&b, "%c%c", s, s)
		}
		fmt.Fprintln(&b, "|")
	}
	if n := len(h.Columns); n > 0 {
		fmt.Fprintf(&b, "%12s%s%s%s\n", "", h.Columns[0], strings.Repeat(" ", max(2*n-len(h.Columns[0])-len(h.Columns[n-1]), 1)), h.Columns[n-1])
	}
	return b.String()
}

// pictureText is a picture in shades from its least to its greatest value.
func pictureText(width int, values []float32) string {
	if width <= 0 || len(values) < width {
		return ""
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if v == v { // not NaN
			lo, hi = min(lo, float64(v)), max(hi, float64(v))
		}
	}
	height := len(values) / width
	columns := min(pictureWidth, width)
	rows := max(columns*height/width/2, 1)
	var b strings.Builder
	for r := range rows {
		for k := range columns {
			v := float64(values[r*height/rows*width+k*width/columns])
			b.WriteByte(shade((v - lo) / (hi - lo)))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// beside puts two texts of as many lines next to each other.
func beside(a, b string) string {
	left, right := strings.Split(strings.TrimRight(a, "\n"), "\n"), strings.Split(strings.TrimRight(b, "\n"), "\n")
	wide := 0
	for _, l := range left {
		wide = max(wide, utf8.RuneCountInString(l))
	}
	for i := range left {
		left[i] = pad(left[i], wide+4) + right[i]
	}
	return strings.Join(left, "\n") + "\n"
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0))
}

func centred(s string, width int) string {
	space := max(width-utf8.RuneCountInString(s), 0)
	return strings.Repeat(" ", space/2) + s + strings.Repeat(" ", space-space/2)
}
