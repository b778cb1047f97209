package notebook

import (
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Series is one line of a chart: y over x, in order of x. A point whose y is
// NaN is left out, and the line is broken there.
type Series struct {
	Name   string
	Colour color.RGBA
	X, Y   []float64
	Right  bool   // y belongs to the right axis
	Dots   bool   // points without a line
	Marks  []Mark // points to point out, such as the best one
}

// Mark is a ring around the point of index At with a text beside it.
type Mark struct {
	At   int
	Text string
}

// Chart is one pair of axes with lines or points. A second y axis is drawn on
// the right if a series belongs to it.
type Chart struct {
	Title, XLabel      string
	YLabel, RightLabel string // what the axes show, with units; drawn above them
	Log                bool   // logarithmic y axes; values must be above zero
	LogX               bool   // a logarithmic x axis, likewise
	Zero               bool   // y axes start at zero
	Series             []Series
}

// textSize is the height of capitals in labels, in pixels.
const textSize = 14

// An axis maps the values from lo to hi (decimal logarithms, on a logarithmic
// axis) to the pixels from a to b.
type axis struct {
	lo, hi, a, b float64
	log, any     bool
}

func newAxis(log bool) axis { return axis{lo: math.Inf(1), hi: math.Inf(-1), log: log} }

func (x *axis) scale(v float64) float64 {
	if x.log {
		return math.Log10(v)
	}
	return v
}

// include widens the axis to a value.
func (x *axis) include(v float64) {
	if v = x.scale(v); math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	x.lo, x.hi, x.any = min(x.lo, v), max(x.hi, v), true
}

// span fixes the pixels, with a part of the range as a margin at both ends.
// The range is never empty.
func (x *axis) span(a, b, margin float64) {
	if !x.any {
		x.lo, x.hi = 0, 1
	}
	if x.hi <= x.lo {
		x.lo, x.hi = x.lo-.5, x.hi+.5
	}
	m := (x.hi - x.lo) * margin
	x.lo, x.hi, x.a, x.b = x.lo-m, x.hi+m, a, b
}

func (x *axis) at(v float64) float64 { return x.a + (x.scale(v)-x.lo)/(x.hi-x.lo)*(x.b-x.a) }

// ticks are the values to label: round ones, or 1, 2 and 5 times powers of ten
// on a logarithmic axis.
func (x *axis) ticks(n int) []float64 {
	if !x.log {
		return ticks(x.lo, x.hi, n)
	}
	factors := []float64{1, 2, 5}
	if x.hi-x.lo > 3 {
		factors = factors[:1]
	}
	var out []float64
	for e := math.Floor(x.lo); e <= x.hi; e++ {
		for _, f := range factors {
			if v := f * math.Pow(10, e); math.Log10(v) >= x.lo && math.Log10(v) <= x.hi {
				out = append(out, v)
			}
		}
	}
	return out
}

// label draws ticks with values below a horizontal axis, powers of ten first and
// no two closer than a letter.
func (x *axis) label(c *Canvas, y float64) {
	all := x.ticks(8)
	var taken [][2]float64
	for _, powers := range []bool{true, false} {
		for _, t := range all {
			e := math.Log10(math.Abs(t))
			if x.log && powers != (e == math.Round(e)) || !x.log && !powers {
				continue
			}
			at, half := math.Round(x.at(t))+.5, TextWidth(label(t), textSize)/2+textSize/2
			if slices.ContainsFunc(taken, func(o [2]float64) bool { return at-half < o[1] && o[0] < at+half }) {
				continue
			}
			taken = append(taken, [2]float64{at - half, at + half})
			c.Line([]Point{{at, y}, {at, y + 6}}, 1, Muted)
			c.Text(at, y+12+textSize, textSize, Centre, Muted, label(t))
		}
	}
}

// Draw draws the chart into the rectangle, title and labels included.
func (ch Chart) Draw(c *Canvas, x, y, width, height float64) {
	left, right := x+84, x+width-24
	top, bottom := y+84, y+height-66
	keys := make([]key, len(ch.Series))
	for i, s := range ch.Series {
		keys[i] = key{s.Name, s.Colour, s.Dots}
	}
	top += c.legend(left, y+60, x+width-24-left, keys)
	horizontal := newAxis(ch.LogX)
	vertical := [2]axis{newAxis(ch.Log), newAxis(ch.Log)} // left, right
	for _, s := range ch.Series {
		for i := range s.Y {
			if !math.IsNaN(s.Y[i]) {
				horizontal.include(s.X[i])
				vertical[side(s)].include(s.Y[i])
			}
		}
	}
	two := vertical[1].any
	if two {
		right -= 60
	}
	if ch.YLabel != "" || two {
		top += 28
	}
	horizontal.span(left, right, 0)
	tight := vertical // for the terminal, which prints the ends: there they are values
	for k := range vertical {
		margin := .04
		if ch.Zero && !ch.Log && vertical[k].any {
			vertical[k].include(0)
		}
		tight[k] = vertical[k]
		tight[k].span(bottom, top, 0)
		vertical[k].span(bottom, top, margin)
		if ch.Zero && !ch.Log && vertical[k].lo < 0 && vertical[k].lo > -margin*vertical[k].hi {
			vertical[k].lo = 0
		}
	}
	c.title(left, y+36, x+width-24-left, ch.Title)
	if ch.YLabel != "" {
		c.Text(left, top-16, textSize, Left, Muted, ch.YLabel)
	}
	if !vertical[0].any && !two {
		c.Text((left+right)/2, (top+bottom)/2, textSize, Centre, Muted, "not recorded yet")
		return
	}
	c.text += ch.text(horizontal, tight) + "\n"
	for _, t := range vertical[0].ticks(6) {
		at := math.Round(vertical[0].at(t)) + .5
		c.Line([]Point{{left, at}, {right, at}}, 1, Rule)
		c.Text(left-12, at+textSize/2, textSize, Right, Muted, label(t))
	}
	if two {
		c.Text(right, top-16, textSize, Right, Muted, ch.RightLabel)
		for _, t := range vertical[1].ticks(6) {
			at := math.Round(vertical[1].at(t)) + .5
			c.Line([]Point{{right, at}, {right + 6, at}}, 1, Muted)
			c.Text(right+12, at+textSize/2, textSize, Left, Muted, label(t))
		}
		c.Line([]Point{{right + .5, top}, {right + .5, bottom}}, 1, Muted)
	}
	horizontal.label(c, bottom)
	c.Line([]Point{{left, bottom + .5}, {right, bottom + .5}}, 1, Muted)
	c.Text((left+right)/2, bottom+28+2*textSize, textSize, Centre, Muted, ch.XLabel)

	pl := plot{rectangle{left, top, right, bottom}, horizontal, vertical}
	for _, s := range ch.Series {
		pl.line(c, s)
		for _, m := range s.Marks {
			if m.At >= 0 && m.At < len(s.Y) && !math.IsNaN(s.Y[m.At]) {
				ch.mark(c, pl, s, m)
			}
		}
	}
}

// mark draws a mark of a series.
func (ch Chart) mark(c *Canvas, pl plot, s Series, m Mark) {
	p := pl.at(s, m.At)
	c.ring(p, 9, s.Colour)
	at := ch.free(p, TextWidth(m.Text, textSize), pl)
	c.Rect(int(at.X)-4, int(at.Y)-textSize-3, int(TextWidth(m.Text, textSize))+8, textSize+6, Paper)
	c.Text(at.X, at.Y, textSize, Left, s.Colour, m.Text)
}

// A plot is the area between the axes of a chart.
type plot struct {
	area       rectangle
	horizontal axis
	vertical   [2]axis // left, right
}

// at returns where point i of a series is.
func (pl plot) at(s Series, i int) Point {
	return Point{pl.horizontal.at(s.X[i]), pl.vertical[side(s)].at(s.Y[i])}
}

// line draws a series: its points, or lines between those that are numbers.
func (pl plot) line(c *Canvas, s Series) {
	var line []Point
	flush := func() {
		if !s.Dots && len(line) > 0 {
			c.Line(line, 2.6, s.Colour)
			c.Line(line[len(line)-1:], 8, s.Colour)
		}
		line = nil
	}
	for i := range s.Y {
		p := pl.at(s, i)
		switch {
		case math.IsNaN(p.Y) || math.IsInf(p.Y, 0):
			flush()
			continue
		case s.Dots:
			c.Line([]Point{p}, 5, s.Colour)
		}
		line = append(line, p)
	}
	flush()
}

// A rectangle is an area of the canvas, in pixels.
type rectangle struct{ left, top, right, bottom float64 }

// free is where the text of a mark at p starts, above or below the point and
// within the area, with as little of the lines under it as may be: it stands on
// white and hides them.
func (ch Chart) free(p Point, wide float64, pl plot) Point {
	best, least := Point{p.X, p.Y - 16}, math.MaxInt
	for _, y := range []float64{p.Y - 16, p.Y + 18 + textSize, p.Y - 46, p.Y + 48 + textSize} {
		if y-textSize < pl.area.top || y+3 > pl.area.bottom {
			continue
		}
		for _, x := range []float64{p.X, p.X - wide/2, p.X - wide} {
			x = min(max(x, pl.area.left+4), pl.area.right-wide-4)
			hidden := 0
			for _, s := range ch.Series {
				for i := 1; i < len(s.Y); i++ {
					from, to := pl.at(s, i-1), pl.at(s, i)
					da, db := to.X-from.X, to.Y-from.Y
					pieces := min(math.Ceil(max(math.Abs(da), math.Abs(db))/4), 4096) // a zero on a logarithmic axis is far away
					for k := 1.; k <= pieces; k++ {                                   // of the line, by their ends
						a, b := from.X+da*k/pieces, from.Y+db*k/pieces
						if a > x-4 && a < x+wide+4 && b > y-textSize-3 && b < y+3 {
							hidden++
						}
					}
				}
			}
			if hidden < least {
				best, least = Point{x, y}, hidden
			}
		}
	}
	return best
}

// A key tells what a colour stands for.
type key struct {
	name   string
	colour color.RGBA
	dot    bool
}

// legend draws keys in lines of at most the given width and says how much lower
// than one line's the end is. Keys without a name are left out.
func (c *Canvas) legend(x, y, width float64, keys []key) (lower float64) {
	at, first := x, y
	for _, k := range keys {
		if k.name == "" {
			continue
		}
		wide := 32 + TextWidth(k.name, textSize)
		if at > x && at+wide > x+width {
			at, y = x, y+textSize+12
		}
		if k.dot {
			c.Line([]Point{{at + 11, y}}, 7, k.colour)
		} else {
			c.Line([]Point{{at, y}, {at + 22, y}}, 3, k.colour)
		}
		c.Text(at+32, y+textSize/2, textSize, Left, Ink, k.name)
		at += wide + 36
	}
	return y - first
}

// title draws a title, smaller where it would be wider than it may.
func (c *Canvas) title(x, y, width float64, text string) {
	const size = 17
	c.Text(x, y, size*min(1, width/max(TextWidth(text, size), 1)), Left, Ink, text)
}

func side(s Series) int {
	if s.Right {
		return 1
	}
	return 0
}

// ring draws a circle.
func (c *Canvas) ring(centre Point, r float64, col color.RGBA) {
	points := make([]Point, 33)
	for i := range points {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / 32)
		points[i] = Point{centre.X + r*cos, centre.Y + r*sin}
	}
	c.Line(points, 2, col)
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

// label prints a tick: in full below a million, else as 2e6.
func label(v float64) string {
	if a := math.Abs(v); a >= 1e4 && a < 1e6 && v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	text := strconv.FormatFloat(v, 'g', 4, 64)
	if digits, power, ok := strings.Cut(text, "e+"); ok {
		return digits + "e" + strings.TrimLeft(power, "0")
	}
	return text
}
