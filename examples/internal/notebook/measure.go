package notebook

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/internal/figure"
)

// Measured is a figure that was measured. Value is NaN where it was not: it
// prints as "-", arithmetic passes it on, and charts leave it out.
type Measured struct {
	Value float64
	Unit  string
}

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
func (p *Page) Measure(key, unit string, f func() (float64, error)) (Measured, error) {
	if err := p.take(key); err != nil {
		return Measured{}, err
	}
	if p.gpu != nil {
		v, err := f()
		if err != nil {
			return Measured{}, fmt.Errorf("figure %q: %w", key, err)
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return Measured{}, fmt.Errorf("figure %q: measured %v", key, v)
		}
		m := Measured{round(v), unit}
		p.measured.Figures[key] = kept(m)
		return m, nil
	}
	p.note()
	kept, ok := p.recorded.Figures[key]
	if !ok {
		return Measured{math.NaN(), unit}, nil
	}
	if kept.Unit != unit {
		return Measured{}, fmt.Errorf("figure %q is recorded in %q, want %q", key, kept.Unit, unit)
	}
	return Measured(kept), nil
}

// Keep returns a value about the GPU, of any type that JSON can hold, under a key that no other
// figure has. On a GPU it calls f and keeps the value for -record. Without one it returns the
// recorded value of that key; known is false if there is none.
func Keep[T any](p *Page, key string, f func() (T, error)) (v T, known bool, err error) {
	if err := p.take(key); err != nil {
		return v, false, err
	}
	if p.gpu == nil {
		p.note()
		text, ok := p.recorded.Data[key]
		if ok {
			err = json.Unmarshal(text, &v)
		}
	} else if v, err = f(); err == nil {
		p.measured.Data[key], err = json.Marshal(v)
	}
	if err != nil {
		return v, false, fmt.Errorf("figure %q: %w", key, err)
	}
	return v, p.gpu != nil || p.recorded.Data[key] != nil, nil
}

// take marks a key as used.
func (p *Page) take(key string) error {
	if p.measured.keys[key] {
		return fmt.Errorf("figure %q is measured twice, want a key for each", key)
	}
	p.measured.keys[key] = true
	return nil
}

// note names, once, the device that recorded figures are from.
func (p *Page) note() {
	if p.noted {
		return
	}
	p.noted = true
	text := p.recorded.String()
	fmt.Fprintf(p.terminal, "%s\n\n", figure.Wrap(text, 100))
	p.add("note", spans(text))
}
