package figure

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table is rows of cells under a header. Columns of numbers are aligned right.
type Table struct {
	Caption string
	Header  []string
	Rows    [][]string
}

// Add adds a row of cells: numbers as [Number] prints them, all else as fmt.Sprint does.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		if v, ok := c.(float64); ok {
			c = Number(v)
		}
		row[i] = fmt.Sprint(c)
	}
	t.Rows = append(t.Rows, row)
}

// number matches the beginning of a number, or an empty cell, but not the name of a numbered thing
// such as 3: shared tile.
var number = regexp.MustCompile(`^([-+−]?[0-9.]+([^0-9.:]|$)|-$|$)`)

// Numeric reports which columns have numbers only, perhaps with units.
func (t Table) Numeric() []bool {
	columns := len(t.Header)
	for _, row := range t.Rows {
		columns = max(columns, len(row))
	}
	is := make([]bool, columns)
	for c := range is {
		is[c] = len(t.Rows) > 0
		for _, row := range t.Rows {
			is[c] = is[c] && (c >= len(row) || number.MatchString(row[c]))
		}
	}
	return is
}

// words returns the caption of a table and its cells.
func (t Table) words() string {
	lines := []string{strings.Join(t.Header, " ")}
	for _, row := range t.Rows {
		lines = append(lines, strings.Join(row, " "))
	}
	return strings.Join(strings.Fields(Typeset(t.Caption+": "+strings.Join(lines, "; "))), " ")
}

// Text returns the table for a terminal.
func (t Table) Text() string {
	numeric := t.Numeric()
	width := make([]int, len(numeric))
	rows := append([][]string{t.Header}, t.Rows...)
	for _, row := range rows {
		for c, s := range row {
			width[c] = max(width[c], utf8.RuneCountInString(Typeset(s)))
		}
	}
	var text strings.Builder
	if t.Caption != "" {
		text.WriteString(Wrap(t.Caption, 100) + "\n")
	}
	for i, row := range rows {
		line := ""
		for c, s := range row {
			align := -width[c]
			if numeric[c] {
				align = width[c]
			}
			line += fmt.Sprintf("  %*s", align, Typeset(s))
		}
		if line = strings.TrimRight(line, " "); i > 0 || line != "" { // there may be no header
			text.WriteString(line + "\n")
		}
	}
	return text.String()
}

// Wrap breaks a text into lines of at most width characters.
func Wrap(text string, width int) string {
	lines := []string{""}
	for _, word := range strings.Fields(Typeset(text)) {
		switch last := &lines[len(lines)-1]; {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last+word) >= width:
			lines = append(lines, word)
		default:
			*last += " " + word
		}
	}
	return strings.Join(lines, "\n")
}

// Number prints a value for people: three digits, or all of those before the
// point, and "-" for NaN.
func Number(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	if math.Abs(v) < 1000 {
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	}
	switch a := math.Abs(v); {
	case a >= 1e7 || a != 0 && a < 1e-3:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case v == math.Trunc(v) || a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2-int(math.Floor(math.Log10(a))), 64)
	}
}
