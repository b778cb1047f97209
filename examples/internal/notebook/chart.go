package notebook

import (
	"image/color"
	"math"
	"strconv"
)

// Series is one line of a chart: y over x, in order of x.
type Series struct {
	Name   string
	Colour color.RGBA
	X, Y   []float64
}

// Chart is one pair of axes with lines.
type Chart struct {
	Title, XLabel string
	Log           bool // a logarithmic y axis; values must be above zero
	Series        []Series
}

// Draw draws the chart into the rectangle, title and labels included.
func (ch Chart) Draw(c *Canvas, x, y, width, height float64) {
	const size = 14 // capitals, in pixels
	left, right := x+84, x+width-24
	top, bottom := y+84, y+height-66

	// Ranges: as wide as the data, and never empty.
	x0, x1, y0, y1 := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, s := range ch.Series {
		for i := range s.X {
			x0, x1 = min(x0, s.X[i]), max(x1, s.X[i])
			y0, y1 = min(y0, ch.scale(s.Y[i])), max(y1, ch.scale(s.Y[i]))
		}
	}
	if x1 <= x0 {
		x0, x1 = x0-.5, x0+.5
	}
	if y1 <= y0 {
		y0, y1 = y0-.5, y0+.5
	}
	margin := (y1 - y0) * .04
	y0, y1 = y0-margin, y1+margin
	px := func(v float64) float64 { return left + (v-x0)/(x1-x0)*(right-left) }
	py := func(v float64) float64 { return bottom - (v-y0)/(y1-y0)*(bottom-top) }

	c.Text(left, y+36, 17, Left, Ink, ch.Title)
	for _, t := range ch.yTicks(y0, y1) {
		at := math.Round(py(ch.scale(t))) + .5
		c.Line([]Point{{left, at}, {right, at}}, 1, Rule)
		c.Text(left-12, at+size/2, size, Right, Muted, label(t))
	}
	for _, t := range ticks(x0, x1, 8) {
		at := math.Round(px(t)) + .5
		c.Line([]Point{{at, bottom}, {at, bottom + 6}}, 1, Muted)
		c.Text(at, bottom+12+size, size, Centre, Muted, label(t))
	}
	c.Line([]Point{{left, bottom + .5}, {right, bottom + .5}}, 1, Muted)
	c.Text((left+right)/2, bottom+28+2*size, size, Centre, Muted, ch.XLabel)

	at := left
	for _, s := range ch.Series {
		points := make([]Point, len(s.X))
		for i := range s.X {
			points[i] = Point{px(s.X[i]), py(ch.scale(s.Y[i]))}
		}
		c.Line(points, 2.6, s.Colour)
		if len(points) > 0 {
			c.Line(points[len(points)-1:], 8, s.Colour)
		}
		c.Line([]Point{{at, y + 60}, {at + 22, y + 60}}, 3, s.Colour)
		c.Text(at+32, y+60+size/2, size, Left, Ink, s.Name)
		at += 32 + TextWidth(s.Name, size) + 36
	}
}

func (ch Chart) scale(v float64) float64 {
	if ch.Log {
		return math.Log10(v)
	}
	return v
}

// yTicks are the values to label: round ones, or 1, 2 and 5 times powers of
// ten on a logarithmic axis.
func (ch Chart) yTicks(lo, hi float64) []float64 {
	if !ch.Log {
		return ticks(lo, hi, 6)
	}
	factors := []float64{1, 2, 5}
	if hi-lo > 3 {
		factors = factors[:1]
	}
	var out []float64
	for e := math.Floor(lo); e <= hi; e++ {
		for _, f := range factors {
			if v := f * math.Pow(10, e); math.Log10(v) >= lo && math.Log10(v) <= hi {
				out = append(out, v)
			}
		}
	}
	return out
}

// ticks are at most n+1 round values in [lo, hi], 1, 2 or 5 times a power of
// ten apart.
func ticks(lo, hi float64, n int) []float64 {
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/float64(n))))
	for _, f := range []float64{1, 2, 5, 10} {
		if (hi-lo)/(step*f) <= float64(n) {
			step *= f
			break
		}
	}
	var out []float64
	for i := math.Ceil(lo / step); i*step <= hi; i++ {
		out = append(out, i*step)
	}
	return out
}

func label(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
