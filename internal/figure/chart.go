package figure

import (
	"cmp"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Series is one line of a chart: y over x, in order of x, which is 1, 2, 3 and so on if X is nil. A
// point that is not known, NaN, is left out, and the line is broken there.
type Series struct {
	Name   string
	Colour color.RGBA
	X, Y   []float64
	Spread []float64 // how far a point's y may be off, each way; nil if that is not known
	Dots   bool      // points without a line
	Marks  []Mark    // points to point out, such as the best one
}

func (s Series) x(i int) float64 {
	if s.X == nil {
		return float64(i + 1)
	}
	return s.X[i]
}

// Mark is a ring around the point of index At, which the legend explains.
type Mark struct {
	At   int
	Text string
}

// Chart is a pair of axes with lines or points. Lines differ by their dashes and by the
// shape of their points too, so that they can be distinguished where they meet.
type Chart struct {
	Title          string
	XLabel, YLabel string // quantities of the axes, with units
	Log            bool   // a logarithmic y axis; values must be above zero
	LogX           bool   // a logarithmic x axis; values must be above zero
	Zero           bool   // the y axis starts at zero
	Series         []Series
}

// mostPoints is the number of points up to which each has a shape.
const mostPoints = 40

var dashes = [][]vg.Length{nil, {7, 3}, {2, 2}, {9, 3, 2, 3}, {12, 4}, {4, 2}, {2, 4}, {12, 3, 3, 3, 3, 3}}

var shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}}

// ring is the shape of a mark.
type ring struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (ring) DrawGlyph(c *draw.Canvas, sty draw.GlyphStyle, at vg.Point) {
	var p vg.Path
	p.Move(at.Add(vg.Point{X: sty.Radius}))
	p.Arc(at, sty.Radius, 0, 2*math.Pi)
	c.SetLineStyle(draw.LineStyle{Color: sty.Color, Width: 2})
	c.Stroke(p)
}

// known reports whether a chart can show point i of a series.
func (ch Chart) known(s Series, i int) bool {
	return i >= 0 && i < len(s.Y) && visible(s.x(i), ch.LogX) && visible(s.Y[i], ch.Log)
}

// visible reports whether a value is on an axis.
func visible(v float64, log bool) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && !(log && v <= 0)
}

func (ch Chart) size(width vg.Length) vg.Point {
	return vg.Point{X: width, Y: 110 + .4*width + 9*vg.Length(len(ch.Series))} // room for the legend
}

func (ch Chart) draw(c draw.Canvas) {
	p := newPlot(ch.LogX, ch.Log)
	p.Add(&plotter.Grid{Horizontal: draw.LineStyle{Color: Rule, Width: 1}})
	var lines, marks []plot.Legend
	for k, s := range ch.Series {
		line, rings := ch.add(p, s, k)
		lines, marks = append(lines, line...), append(marks, rings...)
	}
	if ch.Zero && !ch.Log {
		p.Y.Min = min(p.Y.Min, 0)
	}
	drawPlot(head(c, ch.Title, append(lines, marks...)...), p, axisLabel(ch.XLabel, ch.LogX), axisLabel(ch.YLabel, ch.Log))
}

// add adds series k to a plot and returns its key in the legend, if it has a name, and those
// of its marks.
func (ch Chart) add(p *plot.Plot, s Series, k int) (line, marks []plot.Legend) {
	glyph := func(radius vg.Length, shape draw.GlyphDrawer, points ...plotter.XY) *plotter.Scatter {
		return &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: s.Colour, Radius: radius, Shape: shape}}
	}
	look := draw.LineStyle{Color: s.Colour, Width: 2, Dashes: dashes[k%len(dashes)]}
	points, spread := glyph(3.4, shapes[k%len(shapes)]), &plotter.YErrorBars{LineStyle: draw.LineStyle{Color: s.Colour, Width: 1.2}, CapWidth: 7}
	var piece plotter.XYs
	for i := range len(s.Y) + 1 {
		if !ch.known(s, i) {
			if len(piece) > 1 && !s.Dots {
				p.Add(&plotter.Line{XYs: piece, LineStyle: look})
			}
			piece = nil
			continue
		}
		xy := plotter.XY{X: s.x(i), Y: s.Y[i]}
		piece, points.XYs = append(piece, xy), append(points.XYs, xy)
		if i < len(s.Spread) && s.Spread[i] > 0 {
			spread.XYs, spread.YErrors = append(spread.XYs, xy), append(spread.YErrors, around(s.Y[i], s.Spread[i], ch.Log))
		}
	}
	var shown []plot.Thumbnailer
	if !s.Dots {
		shown = append(shown, &plotter.Line{LineStyle: look})
	}
	if len(spread.XYs) > 0 {
		p.Add(spread)
	}
	if s.Dots || len(points.XYs) <= mostPoints {
		shown = append(shown, points)
		if len(points.XYs) > 0 {
			p.Add(points)
		}
	}
	if s.Name != "" {
		line = append(line, key(s.Name, shown...))
	}
	for _, m := range s.Marks {
		if ch.known(s, m.At) {
			r := glyph(7, ring{}, plotter.XY{X: s.x(m.At), Y: s.Y[m.At]})
			p.Add(r)
			marks = append(marks, key(m.Text, r))
		}
	}
	return line, marks
}

// around returns a range each way, which on a logarithmic axis ends above zero.
func around(v, spread float64, log bool) struct{ Low, High float64 } {
	low := spread
	if log {
		low = min(spread, .9*v)
	}
	return struct{ Low, High float64 }{low, spread}
}

// Data are where each series begins and ends, and its marks.
func (ch Chart) Data() Table {
	t := Table{Caption: ch.Title, Header: []string{axisLabel(ch.YLabel, ch.Log) + " at " + axisLabel(ch.XLabel, ch.LogX), "first", "last", ""}}
	for _, s := range ch.Series {
		row := []string{s.Name, "", "", ""}
		for i := range s.Y {
			if ch.known(s, i) {
				row[2] = Number(s.Y[i]) + " at " + Number(s.x(i))
				row[1] = cmp.Or(row[1], row[2])
			}
		}
		for _, m := range s.Marks {
			if ch.known(s, m.At) {
				row[3] += m.Text + " "
			}
		}
		if row[1] != "" {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}
