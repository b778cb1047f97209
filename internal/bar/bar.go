// Package bar draws progress bars in one style, on terminals alone.
package bar

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Terminal reports whether a writer is a terminal.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Bar is a progress bar on the last line of a terminal. It is drawn by Write alone, never in between, so that lines printed above it stay whole.
type Bar struct {
	w         io.Writer
	At, Total int // steps; a Total of 0 is unknown
	Width     int // columns
}

// Start returns a bar of total steps, at most 100 columns wide.
func Start(w io.Writer, total int) *Bar {
	b := &Bar{w: w, Total: total, Width: 80} // of a writer whose width is unknown
	if file, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			b.Width = min(width, 100)
		}
	}
	return b
}

// Write draws the bar, followed by a text. The bar fills the columns that counters and text leave, and a text that does not fit ends early.
func (b *Bar) Write(text string) {
	head := fmt.Sprintf("%d / ", b.At)
	if b.Total > 0 {
		head += fmt.Sprint(b.Total)
	} else {
		head += "?"
	}
	columns := max(b.Width-len(head)-utf8.RuneCountInString(text)-len(" [] "), 3)
	full := 0
	if b.Total > 0 {
		full = columns * min(b.At, b.Total) / b.Total
	}
	done := strings.Repeat("=", full)
	if 0 < full && full < columns {
		done = done[1:] + ">"
	}
	line := []rune(fmt.Sprintf("%s [%-*s] %s", head, columns, done, text))
	fmt.Fprintf(b.w, "\r%-*s", b.Width, string(line[:min(len(line), b.Width)]))
}
