package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// column is a column of a table whose rows are printed one by one: its title and the width of its
// widest cell. Cells are aligned right, in the first column left.
type column struct {
	title string
	width int
}

// rows prints a table, each row as soon as it is complete.
type rows struct {
	columns  []column
	progress *progress
	out      io.Writer
}

// newRows prints the titles of a table of n rows.
func newRows(c *console, n int, columns ...column) *rows {
	titles := make([]string, len(columns))
	for i, col := range columns {
		titles[i] = col.title
		columns[i].width = max(col.width, utf8.RuneCountInString(col.title))
	}
	r := &rows{columns, newProgress(c.err, n), c.out}
	r.print(titles)
	return r
}

// begin shows which row is being measured.
func (r *rows) begin(name string) { r.progress.describe(name) }

// add prints the next row.
func (r *rows) add(cells ...string) {
	r.progress.hide()
	r.print(cells)
	r.progress.advance()
}

// fail prints, in place of a row, why it is missing.
func (r *rows) fail(name string, err error) {
	r.add(name, fmt.Sprintf("failed: %v", err))
}

// end takes the progress bar away.
func (r *rows) end() { r.progress.hide() }

func (r *rows) print(cells []string) {
	var line strings.Builder
	for i, cell := range cells {
		switch width := r.columns[i].width; {
		case i == 0:
			fmt.Fprintf(&line, "%-*s", width, cell)
		default:
			fmt.Fprintf(&line, "  %*s", width, cell)
		}
	}
	fmt.Fprintln(r.out, strings.TrimRight(line.String(), " "))
}

// longest returns the width of the widest name.
func longest[T any](cases []T, name func(T) string) (width int) {
	for _, c := range cases {
		width = max(width, utf8.RuneCountInString(name(c)))
	}
	return width
}
