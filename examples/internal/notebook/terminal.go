package notebook

import (
	"fmt"
	"regexp"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// words are the caption of a table and its cells.
func (t Table) words() string {
	lines := []string{strings.Join(t.Header, " ")}
	for _, row := range t.Rows {
		lines = append(lines, strings.Join(row, " "))
	}
	return strings.Join(strings.Fields(typeset(t.Caption+": "+strings.Join(lines, "; "))), " ")
}

// text is the table for a terminal.
func (t Table) text() string {
	numeric, width := t.numeric(), make([]int, t.columns())
	rows := append([][]string{t.Header}, t.Rows...)
	for _, row := range rows {
		for c, s := range row {
			width[c] = max(width[c], utf8.RuneCountInString(typeset(s)))
		}
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 0, ' ', 0)
	for _, row := range rows {
		line := ""
		for c, s := range row {
			if s = typeset(s); numeric[c] {
				s = fmt.Sprintf("%*s", width[c], s)
			}
			line += "  " + s + "\t"
		}
		fmt.Fprintln(w, strings.TrimRight(line, "\t"))
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
