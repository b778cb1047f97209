// Package bar draws progress bars in one style, on terminals alone.
package bar

import (
	"io"
	"os"

	"github.com/cheggaaa/pb/v3"
	"github.com/mattn/go-isatty"
)

// Terminal reports whether a writer is a terminal.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && (isatty.IsTerminal(file.Fd()) || isatty.IsCygwinTerminal(file.Fd()))
}

// Start begins a bar of total steps, at most 100 columns wide, followed by a template of package
// pb. It is drawn by Write alone, never in between, so that lines printed above it stay whole.
func Start(w io.Writer, total int, after string) *pb.ProgressBar {
	b := pb.ProgressBarTemplate(`{{counters .}} {{bar . "[" "=" ">" " " "]"}} ` + after).New(total).SetMaxWidth(100)
	b.Set(pb.Static, true).Set(pb.Terminal, true).Set(pb.Color, false).SetWriter(w) // which uses these settings
	if b.Width() <= 0 {                                                             // of a terminal that does not know its width
		b.SetWidth(80)
	}
	return b.Start()
}
