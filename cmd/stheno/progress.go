package main

import (
	"io"
	"os"

	"github.com/cheggaaa/pb/v3"
	"github.com/mattn/go-isatty"
)

// progress is a bar on the last line of a terminal; nil is none. It is drawn when
// something changed, never in between, so that rows printed above it stay whole.
type progress struct {
	bar *pb.ProgressBar
	out io.Writer
}

// newProgress begins a bar of n steps where w is a terminal.
func newProgress(w io.Writer, n int) *progress {
	file, ok := w.(*os.File)
	if !ok || !isatty.IsTerminal(file.Fd()) && !isatty.IsCygwinTerminal(file.Fd()) {
		return nil
	}
	return startProgress(w, n)
}

func startProgress(w io.Writer, n int) *progress {
	bar := pb.New(n).SetWriter(w).SetMaxWidth(100).Set(pb.Static, true).Set(pb.Terminal, true).Set(pb.Color, false)
	bar.SetTemplateString(`{{counters .}} {{bar . "[" "=" ">" " " "]"}} {{rtime . "%s left" "%s" "?"}}  {{string . "case"}}`)
	return &progress{bar.Start(), w}
}

// describe says what the next step is.
func (p *progress) describe(step string) {
	if p != nil {
		p.bar.Set("case", step).Write()
	}
}

// advance counts a step; the bar shows it with the next one.
func (p *progress) advance() {
	if p != nil {
		p.bar.Increment()
	}
}

// hide takes the bar away until it changes again.
func (p *progress) hide() {
	if p != nil {
		io.WriteString(p.out, "\r\x1b[K")
	}
}
