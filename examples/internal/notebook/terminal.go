package notebook

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"gonum.org/v1/plot"
)

const (
	plotWidth, plotHeight = 72, 14       // characters of a chart
	barLength             = 50           // characters of the longest bar
	pictureWidth          = 40           // characters of a picture; half as many lines
	ramp                  = " .:-=+*#%@" // from the least to the greatest value
)

// cell is the place of a value on an axis of n characters.
func cell(a plot.Axis, v float64, n int) int {
	if a.Min == a.Max {
		return 0
	}
	return int(math.Round(a.Norm(v) * float64(n-1)))
}

// text is the chart as characters: a symbol for each series.
func (ch Chart) text() string {
	const symbols = "ox+*#@%&"
	p, _ := ch.plot()
	if p == nil {
		return ""
	}
	grid := make([][]byte, plotHeight)
	for i := range grid {
		grid[i] = []byte(strings.Repeat(" ", plotWidth))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s", typeset(ch.Title))
	for k, s := range ch.Series {
		fmt.Fprintf(&b, "  %c %s", symbols[k%len(symbols)], s.Name)
		for i := range s.Y {
			if ch.known(s, i) {
				grid[plotHeight-1-cell(p.Y, s.Y[i], plotHeight)][cell(p.X, s.X[i], plotWidth)] = symbols[k%len(symbols)]
			}
		}
		for _, m := range s.Marks {
			if m.At >= 0 && m.At < len(s.Y) && ch.known(s, m.At) {
				fmt.Fprintf(&b, ", %s", m.Text)
			}
		}
	}
	fmt.Fprintln(&b)
	for i, line := range grid {
		end := map[int]string{0: Number(p.Y.Max), plotHeight - 1: Number(p.Y.Min)}[i]
		fmt.Fprintf(&b, "%10s |%s|\n", end, line)
	}
	lo, hi := Number(p.X.Min), Number(p.X.Max)
	gap := plotWidth - utf8.RuneCountInString(lo+hi)
	name := axisLabel(ch.XLabel, ch.LogX)
	middle := fmt.Sprintf("%*s", (gap+utf8.RuneCountInString(name))/2, name)
	fmt.Fprintf(&b, "%12s%s%-*s%s\n", "", lo, gap, middle, hi)
	return b.String()
}

// text is the bars as lines of blocks, or of points on a logarithmic axis.
func (b Bars) text() string {
	p, _ := b.plot(paired)
	if p == nil {
		return ""
	}
	axis, wide := p.X, 0
	if b.Standing {
		axis = p.Y
	}
	for _, n := range b.Names {
		wide = max(wide, utf8.RuneCountInString(n))
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%s, %s\n", typeset(b.Title), axisLabel(b.Label, b.Log))
	for i, name := range b.Names {
		for k, series := range b.Series {
			if k > 0 {
				name = ""
			}
			if i >= len(series.Values) || !b.known(series, i) {
				continue
			}
			v := series.Values[i]
			bar := strings.Repeat("█", cell(axis, v, barLength+1))
			if b.Log {
				bar = strings.Repeat(" ", cell(axis, v, barLength)) + "●"
			}
			fmt.Fprintln(&s, strings.TrimRight(fmt.Sprintf("  %-*s  %s %s %s", wide, name, bar, Number(v), series.Name), " "))
		}
	}
	return s.String()
}

// text is the map as a table of numbers, or of shades where it is too wide.
func (h HeatMap) text() string {
	c, ok := h.colours()
	if !ok {
		return ""
	}
	title := fmt.Sprintf("%s (%s; rows: %s, columns: %s)", h.Title, h.Label, h.YLabel, h.XLabel)
	t := Table{Caption: title, Header: append([]string{""}, h.Columns...)}
	shades := len(h.Columns) > 12
	if shades {
		t = Table{Caption: fmt.Sprintf("%s\n%q is %s to %s", title, ramp, Number(c.lo), Number(c.hi))}
	}
	for r := len(h.Rows) - 1; r >= 0; r-- {
		row, line := []string{h.Rows[r]}, ""
		for k := range h.Columns {
			v := h.at(k, r)
			s := shade((c.place(v) - c.Min()) / (c.Max() - c.Min()))
			line += s + s
			row = append(row, Number(v))
		}
		if shades {
			row = append(row[:1], "|"+line+"|")
		}
		t.Rows = append(t.Rows, row)
	}
	return t.text()
}

// shade is the character of a value from 0 to 1, "?" for NaN.
func shade(t float64) string {
	if math.IsNaN(t) {
		return "?"
	}
	return ramp[min(max(int(t*float64(len(ramp))), 0), len(ramp)-1):][:1]
}

// text is the pictures in shades from their least to their greatest value, in a row.
func (p Pictures) text() string {
	var lines []string
	for _, m := range p.Images {
		wide := 0
		for _, l := range lines {
			wide = max(wide, len(l)+4)
		}
		if wide+min(pictureWidth, m.Width) > 2*pictureWidth+4 {
			break // as many as fit side by side
		}
		for i, l := range m.shades() {
			if i == len(lines) {
				lines = append(lines, "")
			}
			lines[i] = fmt.Sprintf("%-*s%s", wide, lines[i], l)
		}
	}
	return strings.Join(append([]string{typeset(p.Title)}, lines...), "\n")
}

// shades is an image as lines of characters.
func (m Image) shades() (lines []string) {
	if m.Width <= 0 || len(m.Values) < m.Width {
		return nil
	}
	lo, hi := float64(slices.Min(m.Values)), float64(slices.Max(m.Values))
	height, columns := len(m.Values)/m.Width, min(pictureWidth, m.Width)
	rows := max(columns*height/m.Width/2, 1)
	for r := range rows {
		line := ""
		for k := range columns {
			line += shade((float64(m.Values[r*height/rows*m.Width+k*m.Width/columns]) - lo) / (hi - lo))
		}
		lines = append(lines, line)
	}
	return lines
}

// text is the table for a terminal.
func (t Table) text() string {
	numeric, width := t.numeric(), make([]int, t.columns())
	var rows [][]string
	for _, row := range append([][]string{t.Header}, t.Rows...) {
		cells := make([]string, len(row))
		for c, s := range row {
			cells[c] = typeset(s)
			width[c] = max(width[c], utf8.RuneCountInString(cells[c]))
		}
		rows = append(rows, cells)
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for c := range row {
			if numeric[c] {
				row[c] = fmt.Sprintf("%*s", width[c], row[c])
			}
		}
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	w.Flush() // into memory, which takes all
	text := strings.TrimLeft(trailing.ReplaceAllString(b.String(), "\n"), "\n")
	if t.Caption != "" {
		text = wrap(t.Caption, 100) + "\n" + text
	}
	return text
}

var trailing = regexp.MustCompile(` +\n`)

// wrap breaks a text into lines of at most width characters.
func wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(typeset(text)) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+n > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
