package notebook

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/internal/figure"
	"gonum.org/v1/gonum/stat"
)

// Measured is a figure that was measured. Value is NaN where it was not: it
// prints as "-", arithmetic passes it on, and charts leave it out.
type Measured struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// In returns a value in a unit.
func In(value float64, unit string) Measured { return Measured{value, unit} }

// Known reports whether there is a value.
func (m Measured) Known() bool { return !math.IsNaN(m.Value) }

// String prints the value with three digits at least and the unit.
func (m Measured) String() string {
	switch {
	case !m.Known() || m.Unit == "":
		return figure.Number(m.Value)
	case m.Unit == "us": // as records have it
		return figure.Number(m.Value) + " µs"
	}
	return figure.Number(m.Value) + " " + m.Unit
}

// Measure returns a figure of the GPU under a key that no other figure has. On a GPU it calls f,
// which returns the value in the unit, and keeps it for -record. Without one it returns the
// recorded figure of that key; the page then names its device once.
func (p *Page) Measure(key, unit string, f func() float64) (m Measured) {
	p.take(key)
	within(fmt.Sprintf("figure %q", key), func() {
		if p.gpu != nil {
			v := f()
			if math.IsNaN(v) || math.IsInf(v, 0) {
				Fail("measured %v", v)
			}
			m = Measured{round(v), unit}
			p.measured.Figures[key] = m
			return
		}
		p.note()
		var ok bool
		if m, ok = p.recorded.Figures[key]; !ok {
			m = Measured{math.NaN(), unit}
		}
		if m.Unit != unit {
			Fail("got a record in %q, want %q", m.Unit, unit)
		}
	})
	return m
}

// Keep returns a value about the GPU, of any type that JSON can hold, under a key that no other
// figure has. On a GPU it calls f and keeps the value for -record. Without one it returns the
// recorded value of that key; known is false if there is none.
func Keep[T any](p *Page, key string, f func() T) (v T, known bool) {
	p.take(key)
	within(fmt.Sprintf("figure %q", key), func() {
		if p.gpu != nil {
			v, known = f(), true
			p.measured.Data[key] = Must(json.Marshal(v))
			return
		}
		p.note()
		var text json.RawMessage
		if text, known = p.recorded.Data[key]; known {
			Check(json.Unmarshal(text, &v))
		}
	})
	return v, known
}

// take marks a key as used.
func (p *Page) take(key string) {
	if p.measured.keys[key] {
		Fail("figure %q is measured twice, want a key for each", key)
	}
	p.measured.keys[key] = true
}

// note names, once, the device that recorded figures are from.
func (p *Page) note() {
	if p.noted {
		return
	}
	p.noted = true
	p.remark(p.recorded.String())
}

// remark adds a note to the page.
func (p *Page) remark(text string) {
	fmt.Fprintf(p.terminal, "%s\n\n", figure.Wrap(text, 100))
	p.add("note", spans(text))
}

// Time measures f on the host, here and now, in ms: the median of five runs after a first one,
// fewer where they take more than a second, and one alone under -small. The key names it in errors.
func (p *Page) Time(key string, f func()) Measured {
	_, m := Timed(p, key, func() any { f(); return nil })
	return m
}

// Timed measures f as [Page.Time] does, and returns what it returned last.
func Timed[T any](p *Page, key string, f func() T) (v T, m Measured) {
	var times []float64
	within(fmt.Sprintf("time of %q", key), func() {
		start := time.Now()
		for run := 0; run < 6 && (run < 2 || time.Since(start) < time.Second); run++ {
			begin := time.Now()
			v = f()
			times = append(times, float64(time.Since(begin))/float64(time.Millisecond))
			if p.options.Small {
				break
			}
		}
	})
	if len(times) > 1 {
		times = times[1:]
	}
	slices.Sort(times)
	return v, Measured{round(stat.Quantile(0.5, stat.Empirical, times, nil)), "ms"}
}
