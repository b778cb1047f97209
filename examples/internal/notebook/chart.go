package notebook

import (
	"fmt"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Series is one line of a chart: y over x, in order of x. A point that is not known, NaN, is
// left out, and the line is broken there.
type Series struct {
	Name   string
	Colour color.RGBA
	X, Y   []float64
	Spread []float64 // how far a point's y may be off, each way; nil if that is not known
	Dots   bool      // points without a line
	Marks  []Mark    // points to point out, such as the best one
}

// Mark is a ring around the point of index At with a text beside it.
type Mark struct {
	At   int
	Text string
}

// Chart is a pair of axes with lines or points. Lines differ by their dashes and by the
// shape of their points too, so that they are told apart where they meet.
type Chart struct {
	Title          string
	XLabel, YLabel string // what the axes show, with units
	Log            bool   // a logarithmic y axis; values must be above zero
	LogX           bool   // a logarithmic x axis, likewise
	Zero           bool   // the y axis starts at zero
	Series         []Series
}

// most is the number of points up to which each has a shape of its own.
const mostPoints = 40

var dashes = [][]vg.Length{nil, {7, 3}, {2, 2}, {9, 3, 2, 3}, {12, 4}, {4, 2}, {2, 4}, {12, 3, 3, 3, 3, 3}}

// polygon is the shape of a point: a regular polygon of n corners, turned by a share of
// the angle between two of them; a circle if n is zero.
type polygon struct {
	n    int
	turn float64
}

var shapes = []polygon{{}, {4, .5}, {3, 0}, {4, 0}, {3, .5}, {6, 0}, {5, 0}, {8, .5}}

// DrawGlyph implements draw.GlyphDrawer.
func (g polygon) DrawGlyph(c *draw.Canvas, sty draw.GlyphStyle, at vg.Point) {
	if g.n == 0 {
		draw.CircleGlyph{}.DrawGlyph(c, sty, at)
		return
	}
	corners := make([]vg.Point, g.n)
	for i := range corners {
		sin, cos := math.Sincos(2*math.Pi*(float64(i)+g.turn)/float64(g.n) + math.Pi/2)
		corners[i] = at.Add(vg.Point{X: vg.Length(cos), Y: vg.Length(sin)}.Scale(1.25 * sty.Radius))
	}
	c.FillPolygon(sty.Color, corners)
}

// known reports whether a chart can show point i of a series.
func (ch Chart) known(s Series, i int) bool {
	x, y := s.X[i], s.Y[i]
	return !math.IsNaN(x) && !math.IsInf(x, 0) && !math.IsNaN(y) && !math.IsInf(y, 0) && !(ch.LogX && x <= 0) && !(ch.Log && y <= 0)
}

// pieces are the points of a series from one that is not known to the next.
func (ch Chart) pieces(s Series) (list []plotter.XYs) {
	fresh := true
	for i := range s.Y {
		if !ch.known(s, i) {
			fresh = true
			continue
		}
		if fresh {
			list, fresh = append(list, nil), false
		}
		list[len(list)-1] = append(list[len(list)-1], plotter.XY{X: s.X[i], Y: s.Y[i]})
	}
	return list
}

// plot is the chart without what stands above it; keys is its legend. It is nil if there is
// no point to show.
func (ch Chart) plot() (p *plot.Plot, keys []key) {
	p, any := newPlot(), false
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{ch.LogX}, ticks{ch.Log}
	if ch.LogX {
		p.X.Scale = plot.LogScale{}
	}
	if ch.Log {
		p.Y.Scale = plot.LogScale{}
	}
	p.Add(grid(false, true))
	for k, s := range ch.Series {
		name := key{name: typeset(s.Name)}
		line := draw.LineStyle{Color: s.Colour, Width: 2, Dashes: dashes[k%len(dashes)]}
		points := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: s.Colour, Radius: 3.4, Shape: shapes[k%len(shapes)]}}
		for _, piece := range ch.pieces(s) {
			any = true
			if !s.Dots && len(piece) > 1 {
				p.Add(&plotter.Line{XYs: piece, LineStyle: line})
			}
			points.XYs = append(points.XYs, piece...)
		}
		if !s.Dots {
			name.mark = append(name.mark, &plotter.Line{LineStyle: line})
		}
		if e := ch.errors(s); len(e.XYs) > 0 {
			p.Add(e)
		}
		if s.Dots || len(points.XYs) <= mostPoints {
			name.mark = append(name.mark, points)
			if len(points.XYs) > 0 {
				p.Add(points)
			}
		}
		keys = append(keys, name)
	}
	if !any {
		return nil, nil
	}
	if ch.Zero && !ch.Log {
		p.Y.Min = min(p.Y.Min, 0)
	}
	widen(&p.X, ch.LogX)
	widen(&p.Y, ch.Log)
	return p, keys
}

// widen makes an axis of a single value longer, above zero if it is logarithmic.
func widen(a *plot.Axis, log bool) {
	if a.Min == a.Max && log {
		a.Min, a.Max = a.Min/2, a.Max*2
	}
}

// errors are the spreads of a series, where they are known. On a logarithmic axis the lower
// end stays above zero.
func (ch Chart) errors(s Series) *plotter.YErrorBars {
	e := &plotter.YErrorBars{LineStyle: draw.LineStyle{Color: s.Colour, Width: 1.2}, CapWidth: 7}
	for i, v := range s.Spread {
		if !ch.known(s, i) || !(v > 0) {
			continue
		}
		e.XYs = append(e.XYs, plotter.XY{X: s.X[i], Y: s.Y[i]})
		e.YErrors = append(e.YErrors, struct{ Low, High float64 }{lower(s.Y[i], v, ch.Log), v})
	}
	return e
}

// lower is how far a value's range goes down.
func lower(v, spread float64, log bool) float64 {
	if log {
		return min(spread, .9*v)
	}
	return spread
}

// grid is lines at the ticks with names.
func grid(x, y bool) *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical, g.Horizontal = draw.LineStyle{}, draw.LineStyle{}
	if x {
		g.Vertical = draw.LineStyle{Color: Rule, Width: 1}
	}
	if y {
		g.Horizontal = draw.LineStyle{Color: Rule, Width: 1}
	}
	return g
}

func (ch Chart) layout(width vg.Length) (vg.Point, func(draw.Canvas) error) {
	return vg.Point{X: width, Y: 120 + .42*width}, func(c draw.Canvas) error {
		p, keys := ch.plot()
		if p == nil {
			return none(c, typeset(ch.Title))
		}
		c = head(c, typeset(ch.Title), keys)
		ch.marks(drawPlot(c, p, axisLabel(ch.XLabel, ch.LogX), axisLabel(ch.YLabel, ch.Log)), p)
		return nil
	}
}

// marks draws rings and texts, which stand where they hide least of the lines.
func (ch Chart) marks(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, s := range ch.Series {
		for _, m := range s.Marks {
			if m.At < 0 || m.At >= len(s.Y) || !ch.known(s, m.At) {
				continue
			}
			at := vg.Point{X: x(s.X[m.At]), Y: y(s.Y[m.At])}
			var ring vg.Path
			ring.Move(at.Add(vg.Point{X: 7}))
			ring.Arc(at, 7, 0, 2*math.Pi)
			c.SetLineStyle(draw.LineStyle{Color: s.Colour, Width: 2})
			c.Stroke(ring)
			sty := style(labelSize, s.Colour)
			box := ch.free(c, p, at, sty.Width(typeset(m.Text)))
			c.SetColor(Paper)
			c.Fill(box.Path())
			c.FillText(sty, vg.Point{X: box.Min.X + 3, Y: (box.Min.Y + box.Max.Y) / 2}, typeset(m.Text))
		}
	}
}

// free is the place of a text of that width around a point, within the canvas and with the
// fewest pieces of lines and points in it.
func (ch Chart) free(c draw.Canvas, p *plot.Plot, at vg.Point, width vg.Length) (best vg.Rectangle) {
	const height = labelSize + 6
	size, margin := vg.Point{X: width + 6, Y: height}, vg.Point{X: 3, Y: 3}
	offsets := []vg.Point{{X: 12, Y: -height / 2}, {X: -12 - size.X, Y: -height / 2}} // beside it
	for _, dy := range []vg.Length{10, -10 - height, 32, -32 - height, 60, 100} {
		offsets = append(offsets, vg.Point{Y: dy}, vg.Point{X: -size.X / 2, Y: dy}, vg.Point{X: -size.X, Y: dy})
	}
	least := math.MaxInt
	for _, o := range offsets {
		corner := at.Add(o)
		corner.X = max(min(corner.X, c.Max.X-size.X), c.Min.X)
		box := vg.Rectangle{Min: corner, Max: corner.Add(size)}
		hidden := ch.inside(c, p, vg.Rectangle{Min: box.Min.Sub(margin), Max: box.Max.Add(margin)})
		if box.Min.Y < c.Min.Y || box.Max.Y > c.Max.Y {
			hidden += 1000
		}
		if hidden < least {
			best, least = box, hidden
		}
	}
	return best
}

// inside counts the pieces of lines, of three pixels each, and the points in a rectangle.
func (ch Chart) inside(c draw.Canvas, p *plot.Plot, box vg.Rectangle) (n int) {
	x, y := p.Transforms(&c)
	for _, s := range ch.Series {
		for _, piece := range ch.pieces(s) {
			for i, xy := range piece {
				to := vg.Point{X: x(xy.X), Y: y(xy.Y)}
				from, steps := to, vg.Length(1)
				if i > 0 && !s.Dots {
					from = vg.Point{X: x(piece[i-1].X), Y: y(piece[i-1].Y)}
					steps = vg.Length(math.Ceil(math.Hypot(float64(to.X-from.X), float64(to.Y-from.Y)) / 3))
				}
				for k := vg.Length(1); k <= steps; k++ {
					q := from.Add(to.Sub(from).Scale(k / steps))
					if q.X > box.Min.X && q.X < box.Max.X && q.Y > box.Min.Y && q.Y < box.Max.Y {
						n++
					}
				}
			}
		}
	}
	return n
}

func (ch Chart) describe() string {
	var names []string
	for _, s := range ch.Series {
		if pieces := ch.pieces(s); len(pieces) > 0 {
			last := pieces[len(pieces)-1]
			names = append(names, fmt.Sprintf("%s from %s to %s", s.Name, Number(pieces[0][0].Y), Number(last[len(last)-1].Y)))
		}
	}
	if names == nil {
		names = []string{notRecorded}
	}
	return typeset(fmt.Sprintf("%s. %s over %s: %s.", ch.Title, axisLabel(ch.YLabel, ch.Log), axisLabel(ch.XLabel, ch.LogX), strings.Join(names, "; ")))
}
