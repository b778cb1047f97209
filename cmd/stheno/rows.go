package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/internal/bar"
	"github.com/stheno-ml/stheno/internal/maintain"
)

// column is a column of a table whose rows are printed one by one: its title and the width of its
// widest cell. Cells are aligned right, in the first column left.
type column struct {
	title string
	width int
}

// rows prints a table, each row as soon as it is complete. If standard error is a terminal, its last line is a bar. The bar is drawn when
// something changed, never in between, so that rows printed above it stay whole.
type rows struct {
	columns  []column
	out, err io.Writer
	bar      *bar.Bar  // nil where there is none
	start    time.Time // of the bar
}

// newRows prints the titles of a table of n rows.
func newRows(c *console, n int, columns ...column) *rows {
	titles := make([]string, len(columns))
	for i, col := range columns {
		titles[i] = col.title
		columns[i].width = max(col.width, utf8.RuneCountInString(col.title))
	}
	r := &rows{columns: columns, out: c.out, err: c.err}
	if bar.Terminal(c.err) {
		r.startBar(n)
	}
	r.print(titles)
	return r
}

func (r *rows) startBar(n int) {
	r.bar, r.start = bar.Start(r.err, n), time.Now()
}

// begin shows which row is being measured.
func (r *rows) begin(name string) {
	if r.bar != nil {
		left := "?"
		if r.bar.At > 0 {
			left = (time.Since(r.start) / time.Duration(r.bar.At) * time.Duration(r.bar.Total-r.bar.At)).Round(time.Second).String()
		}
		r.bar.Write(left + " left  " + name)
	}
}

// add prints the next row.
func (r *rows) add(cells ...string) {
	r.end()
	r.print(cells)
	if r.bar != nil {
		r.bar.At++ // which the next write shows
	}
}

// fail prints, in place of a row, why it is missing, and returns the error with the name of the case.
func (r *rows) fail(c maintain.Case, err error) error {
	r.add(caseName(c), fmt.Sprintf("failed: %v", err))
	return fmt.Errorf("%s: %w", caseName(c), err)
}

// end takes the bar away until it changes again.
func (r *rows) end() {
	if r.bar != nil {
		io.WriteString(r.err, "\r\x1b[K")
	}
}

func (r *rows) print(cells []string) {
	line := fmt.Sprintf("%-*s", r.columns[0].width, cells[0])
	for i, cell := range cells[1:] {
		line += fmt.Sprintf("  %*s", r.columns[i+1].width, cell)
	}
	fmt.Fprintln(r.out, strings.TrimRight(line, " "))
}

// longest returns the width of the widest name.
func longest(cases []maintain.Case) (width int) {
	for _, c := range cases {
		width = max(width, utf8.RuneCountInString(caseName(c)))
	}
	return width
}
