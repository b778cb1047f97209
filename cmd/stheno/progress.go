package main

import (
	"io"

	"github.com/cheggaaa/pb/v3"
	"github.com/stheno-ml/stheno/internal/bar"
)

// progress is a bar on the last line of a terminal; nil is none. It is drawn when
// something changed, never in between, so that rows printed above it stay whole.
type progress struct {
	bar *pb.ProgressBar
	out io.Writer
}

// newProgress begins a bar of n steps where w is a terminal.
func newProgress(w io.Writer, n int) *progress {
	if !bar.Terminal(w) {
		return nil
	}
	return startProgress(w, n)
}

func startProgress(w io.Writer, n int) *progress {
	return &progress{bar.Start(w, n, `{{rtime . "%s left" "%s" "?"}}  {{string . "case"}}`), w}
}

// describe names the next step.
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
