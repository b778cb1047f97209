package train

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// slow yields n batches, each after a while.
func (l *line) slow(n int, each time.Duration) Source {
	return Seq(func(yield func(Batch, error) bool) {
		for k := range n {
			time.Sleep(each)
			if !yield(l.batch(k, points), nil) {
				return
			}
		}
	})
}

// The next batch is made while a step runs, and as many more as Prefetch asks for.
func TestPrefetch(t *testing.T) {
	const n, each = 10, time.Second
	for ahead, want := range map[int]time.Duration{0: 2 * n * each, 1: (n + 1) * each, 3: (n + 1) * each} {
		synctest.Test(t, func(t *testing.T) {
			l := newLine(t, false)
			start := time.Now()
			h := testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, l.slow(n, each), Prefetch(ahead),
				AfterStep(1, func(Step) error { time.Sleep(each); return nil }))) // as long as a step may take
			if took := time.Since(start); took != want || h.Time != want || h.Steps != n {
				t.Errorf("with %d ahead %d steps took %v, want %v", ahead, h.Steps, took, want)
			}
		})
	}
}

// No more batches are made than Prefetch allows.
func TestPrefetchIsBounded(t *testing.T) {
	for ahead := range 4 {
		synctest.Test(t, func(t *testing.T) {
			l := newLine(t, false)
			made := 0
			source := Seq(func(yield func(Batch, error) bool) {
				for yield(l.batch(made, points), nil) {
					made++
				}
			})
			testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, source, Prefetch(ahead), Steps(9), AfterStep(1, func(s Step) error {
				synctest.Wait() // until the source can do no more
				if got, want := made+1, min(s.Step+ahead, 9); got != want {
					t.Errorf("with %d ahead, %d batches were made for step %d, want %d", ahead, got, s.Step, want)
				}
				return nil
			})))
		})
	}
}

// On a device each batch is staged before its step, and another one is made in the meantime.
func TestStagedAhead(t *testing.T) {
	for ahead := range 4 {
		synctest.Test(t, func(t *testing.T) {
			l := newLine(t, false)
			var made, staged atomic.Int32
			source := Seq(func(yield func(Batch, error) bool) {
				for yield(l.batch(int(made.Load()), points), nil) {
					made.Add(1)
				}
			})
			h := testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, source, Prefetch(ahead), Steps(9), onDevice(func(b Batch) {
				k := int(staged.Load())
				if x, _ := batch(k, points); b[l.x].Data().([]float64)[0] != x[0] {
					t.Errorf("staged as number %d: %v, want one that begins with %v", k, b[l.x], x[0])
				}
				time.Sleep(time.Second)
				staged.Add(1)
			}), AfterStep(1, func(s Step) error {
				if there := int(staged.Load()); ahead > 0 && there < s.Step {
					t.Errorf("step %d was made with %d staged", s.Step, there)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait() // until the source can do no more
				want := [2]int{min(s.Step+ahead+1, 9), min(s.Step+1, 9)}
				if ahead == 0 {
					want = [2]int{s.Step, 0}
				}
				if got := [2]int{int(made.Load()) + 1, int(staged.Load())}; got != want {
					t.Errorf("with %d ahead, %v batches were made and staged for step %d, want %v", ahead, got, s.Step, want)
				}
				return nil
			})))
			var of []int
			for k := range 9 {
				of = append(of, k)
			}
			steps(constant, of...).check(t, l, h)
		})
	}
}

// Into a file: a line every ten seconds, and one at the end.
func TestProgressInALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, false)
		var log strings.Builder
		testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, l.slow(50, time.Second/2), Prefetch(0), Epochs(2), Progress(&log)))
		lines := strings.Split(regexp.MustCompile(`loss [-+.e\d]+`).ReplaceAllString(log.String(), "loss L"), "\n")
		want := []string{
			"step 20  loss L  2 steps/s  10s", "step 40  loss L  2 steps/s  20s", // how long an epoch is, nobody knows yet
			"step 60 of 100  loss L  2 steps/s  20s left", "step 80 of 100  loss L  2 steps/s  10s left",
			"step 100 of 100  loss L  2 steps/s  50s", "",
		}
		if !slices.Equal(lines, want) {
			t.Errorf("the log is %q, want %q", lines, want)
		}
	})
}

// A metric that no validation has computed yet, as after a checkpoint of a training without it, is not shown.
func TestProgressOfNewMetrics(t *testing.T) {
	var log strings.Builder
	p := startProgress(&log, false, 10, 5)
	p.setScores([]Metric{{Name: "accuracy"}, {Name: "F1"}}, map[string]float64{"F1": 0.5})
	p.end(Position{Step: 6}, 2)
	if got := log.String(); !strings.HasPrefix(got, "step 6 of 10  loss 2  F1 0.5  ") {
		t.Errorf("got %q, want F1 alone", got)
	}
}

// On a terminal: a bar, redrawn five times a second, which makes room for the output of callbacks.
func TestProgressBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen strings.Builder
		p := startProgress(&screen, true, 40, 10)
		for step := 11; step <= 25; step++ {
			time.Sleep(time.Second / 10)
			p.step(Position{Step: step}, 0.25)
		}
		p.clear()
		screen.WriteString("epoch 1\n")
		p.clear()
		p.step(Position{Step: 26}, 0.25)
		p.end(Position{Step: 40}, 0.125)
		lines := strings.FieldsFunc(screen.String(), func(r rune) bool { return r == '\r' || r == '\n' })
		var shown []string
		for _, line := range lines {
			if line = regexp.MustCompile(`\[.*\]`).ReplaceAllString(strings.TrimSpace(line), "[]"); line != "" {
				shown = append(shown, line)
			}
		}
		want := []string{
			"12 / 40 [] loss 0.25  10 steps/s  3s left", "14 / 40 [] loss 0.25  10 steps/s  3s left", "16 / 40 [] loss 0.25  10 steps/s  2s left",
			"18 / 40 [] loss 0.25  10 steps/s  2s left", "20 / 40 [] loss 0.25  10 steps/s  2s left", "22 / 40 [] loss 0.25  10 steps/s  2s left",
			"24 / 40 [] loss 0.25  10 steps/s  2s left", "epoch 1", "40 / 40 [] loss 0.125  20 steps/s  1.5s",
		}
		if !slices.Equal(shown, want) {
			t.Errorf("the screen shows\n%s\nwant\n%s", strings.Join(shown, "\n"), strings.Join(want, "\n"))
		}
		if !strings.Contains(screen.String(), "\r"+strings.Repeat(" ", 80)+"\repoch 1\n") || !strings.HasSuffix(screen.String(), "\n") {
			t.Errorf("the bar leaves no room: %q", screen.String())
		}
	})
}

// A file is not a terminal, and without the option nothing is shown.
func TestProgressOfAFile(t *testing.T) {
	f := testutil.Get[*os.File](t)(os.CreateTemp(t.TempDir(), ""))
	defer f.Close()
	if p := newProgress(f, 10, 0); p.bar != nil {
		t.Error("a file has a bar")
	}
	if newProgress(nil, 10, 0) != nil {
		t.Error("there is progress for nobody")
	}
}
