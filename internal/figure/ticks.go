package figure

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// ticks are the ticks of an axis: round values with a label, and minor ones without.
type ticks struct{ log bool }

// Ticks implements plot.Ticker.
func (t ticks) Ticks(lo, hi float64) []plot.Tick {
	decades := math.Log10(hi / lo)
	var list []plot.Tick
	if !t.log || lo <= 0 || decades < .8 {
		step := math.Pow(10, math.Floor(math.Log10((hi-lo)/5)))
		for _, f := range []float64{1, 2, 5, 10} {
			if (hi-lo)/(step*f) <= 6 {
				step *= f
				break
			}
		}
		for i := math.Ceil(lo/step - 1e-9); i*step <= hi*(1+1e-9); i++ {
			list = append(list, plot.Tick{Value: i * step, Label: label(i * step)})
		}
		return list
	}
	every := int(math.Ceil(decades / 9)) // named power of ten
	for e := int(math.Floor(math.Log10(lo))); e <= int(math.Ceil(math.Log10(hi))); e++ {
		for f := 1.; f < 10; f++ {
			tick := plot.Tick{Value: f * math.Pow10(e)}
			if e < 0 {
				tick.Value = f / math.Pow10(-e) // exactly the float64 of 0.05
			}
			if tick.Value < lo || tick.Value > hi {
				continue
			}
			switch {
			case f == 1 && e%every == 0 && hi >= 1e5 && e > 1:
				tick.Label = power(1, e)
			case f == 1 && e%every == 0 || decades < 2.2 && (f == 2 || f == 5):
				tick.Label = label(tick.Value)
			}
			list = append(list, tick)
		}
	}
	return list
}

// label prints a value: in full below 100000, else as 2×10⁶.
func label(v float64) string {
	a := math.Abs(v)
	if a == 0 {
		return "0" // -0 too
	}
	if a >= 1e-3 && a < 1e5 {
		digits := strconv.FormatFloat(v, 'g', 5, 64) // 3 times 0.1 is not 0.3
		v, _ = strconv.ParseFloat(digits, 64)
		return minus(strconv.FormatFloat(v, 'f', -1, 64))
	}
	e := int(math.Floor(math.Log10(a) + 1e-9))
	return power(v/math.Pow10(e), e)
}

// power prints a number as a product with a power of ten.
func power(f float64, e int) string {
	digits := minus(strconv.FormatFloat(f, 'g', 4, 64)) + "×"
	return strings.TrimPrefix(digits, "1×") + "10" + raise.Replace(strconv.Itoa(e))
}

func minus(s string) string { return strings.Replace(s, "-", "−", 1) }

const raisedDigits = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"

var (
	raise = strings.NewReplacer("0", "⁰", "1", "¹", "2", "²", "3", "³", "4", "⁴", "5", "⁵", "6", "⁶", "7", "⁷", "8", "⁸", "9", "⁹", "-", "⁻")
	lower = strings.NewReplacer("⁰", "0", "¹", "1", "²", "2", "³", "3", "⁴", "4", "⁵", "5", "⁶", "6", "⁷", "7", "⁸", "8", "⁹", "9", "⁻", "−")
)

// raising writes superscripts as small digits above the line: the font has not all of them.
type raising struct{ text.Plain }

var raised = regexp.MustCompile("[" + raisedDigits + "]+|[^" + raisedDigits + "]+")

// run returns a piece of a text with its font and its height above the line.
func (h raising) run(piece string, f font.Font) (string, font.Face, vg.Length) {
	if !strings.ContainsAny(piece, raisedDigits) {
		return piece, h.Fonts.Lookup(f, f.Size), 0
	}
	return lower.Replace(piece), h.Fonts.Lookup(f, .7*f.Size), .36 * f.Size
}

// Box implements text.Handler.
func (h raising) Box(s string, f font.Font) (width, height, depth vg.Length) {
	_, height, depth = h.Plain.Box("", f)
	for _, piece := range raised.FindAllString(s, -1) {
		piece, face, _ := h.run(piece, f)
		width += face.Width(piece)
	}
	return width, height, depth
}

// Draw implements text.Handler, for a line that is not rotated.
func (h raising) Draw(c vg.Canvas, s string, sty text.Style, at vg.Point) {
	width, ascent, depth := h.Box(s, sty.Font)
	at.X += vg.Length(sty.XAlign) * width
	at.Y += vg.Length(sty.YAlign)*(ascent+depth) - ascent + sty.Font.Size
	c.SetColor(sty.Color)
	for _, piece := range raised.FindAllString(s, -1) {
		piece, face, up := h.run(piece, sty.Font)
		from := strings.TrimLeft(piece, " ") // SVG leaves spaces at the beginning out
		c.FillString(face, at.Add(vg.Point{X: face.Width(piece) - face.Width(from), Y: up}), from)
		at.X += face.Width(piece)
	}
}

var caret = regexp.MustCompile(`([0-9A-Za-z)])\^(-?\d+)\b`)

// Typeset writes powers such as 2^28 and N^3 with superscripts.
func Typeset(s string) string {
	return caret.ReplaceAllStringFunc(s, func(m string) string {
		base, exponent, _ := strings.Cut(m, "^")
		return base + raise.Replace(exponent)
	})
}

// axisLabel returns the label of an axis, which mentions that it is logarithmic.
func axisLabel(s string, log bool) string {
	if log {
		s += " (log)"
	}
	return strings.TrimSpace(Typeset(s))
}
