package train

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/stheno-ml/stheno/internal/bar"
)

// progress shows the progress of a training. A nil progress shows nothing.
type progress struct {
	w      io.Writer
	bar    *bar.Bar // nil if w is not a terminal
	every  time.Duration
	total  int // steps, or 0 if unknown
	first  int // steps made before this Run
	start  time.Time
	shown  time.Time // when a step was last shown
	at     int       // the step last shown
	onLine bool      // the bar is visible
	scores string    // of the last validation
}

// newProgress returns a progress for a writer, or nil for a nil writer.
func newProgress(w io.Writer, total, first int) *progress {
	if w == nil {
		return nil
	}
	return startProgress(w, bar.Terminal(w), total, first)
}

func startProgress(w io.Writer, terminal bool, total, first int) *progress {
	p := &progress{w: w, every: 10 * time.Second, first: first, start: time.Now()}
	p.shown = p.start
	if terminal {
		p.every = 200 * time.Millisecond
		p.bar = bar.Start(w, total)
	}
	p.setTotal(total)
	return p
}

func (p *progress) setTotal(n int) {
	if p == nil {
		return
	}
	p.total = n
	if p.bar != nil {
		p.bar.Total = n
	}
}

// step shows a step unless the last one was shown very recently.
func (p *progress) step(at Position, loss float64) {
	if p == nil || time.Since(p.shown) < p.every {
		return
	}
	p.show(at, loss, false)
}

func (p *progress) show(at Position, loss float64, last bool) {
	p.shown, p.at = time.Now(), at.Step
	text := p.text(at, loss, last)
	if p.bar != nil {
		p.bar.At = at.Step
		p.bar.Write(text)
		p.onLine = true
		return
	}
	total := ""
	if p.total > 0 {
		total = fmt.Sprintf(" of %d", p.total)
	}
	fmt.Fprintf(p.w, "step %d%s  %s\n", at.Step, total, text)
}

// setScores sets the metrics to show from the next step on.
func (p *progress) setScores(metrics []Metric, scores map[string]float64) {
	if p == nil {
		return
	}
	p.scores = ""
	for _, m := range metrics {
		if score, ok := scores[m.Name]; ok { // a checkpoint's scores may be of other metrics
			p.scores += fmt.Sprintf("%s %.4g  ", m.Name, score)
		}
	}
}

// text returns the loss, the metrics, steps per second and the remaining time or, at the end, the total time.
func (p *progress) text(at Position, loss float64, last bool) string {
	text := ""
	if !math.IsNaN(loss) {
		text = fmt.Sprintf("loss %.4g  ", loss)
	}
	text += p.scores
	took := time.Since(p.start)
	rate := float64(at.Step-p.first) / max(took.Seconds(), 1e-9)
	if rate < 100 {
		text += fmt.Sprintf("%.3g steps/s", rate)
	} else {
		text += fmt.Sprintf("%.0f steps/s", rate)
	}
	if left := p.total - at.Step; !last && left > 0 && rate > 0 {
		text += fmt.Sprintf("  %v left", time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second))
	} else {
		text += fmt.Sprintf("  %v", took.Round(time.Second/10))
	}
	return text
}

// clear removes the bar, so that callbacks can print.
func (p *progress) clear() {
	if p == nil || !p.onLine {
		return
	}
	p.onLine = false
	fmt.Fprintf(p.w, "\r%*s\r", p.bar.Width, "")
}

// end shows the last step unless it has been shown.
func (p *progress) end(at Position, loss float64) {
	if p == nil || p.bar == nil && p.at == at.Step {
		return
	}
	p.show(at, loss, true)
	if p.bar != nil {
		fmt.Fprintln(p.w)
	}
}
