package figure

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// BarSeries is one colour of bars, with a value for each name of the [Bars]; NaN has no
// bar.
type BarSeries struct {
	Name   string // for the legend; "" where there is one series only
	Colour color.RGBA
	Values []float64
	Spread []float64 // how far a value may be off, each way; nil if that is not known
}

// Bars compares values by name: with one row a name, lying, or with one column a name,
// standing, which suits many short names such as letters. Several series have several bars
// for each name.
type Bars struct {
	Title, Label string // Label is the quantity, with the unit
	// Log draws a logarithmic axis, and points in place of bars: such an axis has no
	// zero from which a bar could start. Values must be above zero. They lie.
	Log      bool
	Standing bool
	Names    []string
	Series   []BarSeries
}

// Add adds a name with a value for each series.
func (b *Bars) Add(name string, values ...float64) {
	b.Names = append(b.Names, name)
	for k, v := range values {
		b.Series[k].Values = append(b.Series[k].Values, v)
	}
}

// known reports whether bar i of a series can be shown.
func (b Bars) known(s BarSeries, i int) bool {
	return i < len(b.Names) && i < len(s.Values) && visible(s.Values[i], b.Log)
}

// pitch is from one bar of a name to the next one, in pixels, on a drawing of that width.
func (b Bars) pitch(width vg.Length) vg.Length {
	if b.Standing {
		return .8 * (width - 60) / vg.Length(max(len(b.Names)*len(b.Series), 1))
	}
	return 18
}

func (b Bars) size(width vg.Length) vg.Point {
	height := .2 * width
	if !b.Standing {
		height = vg.Length(len(b.Names)) * (vg.Length(len(b.Series))*b.pitch(width) + 8)
	}
	if len(b.Series) > 1 {
		height += 28 // for a legend
	}
	return vg.Point{X: width, Y: 92 + height}
}

func (b Bars) draw(c draw.Canvas) {
	width := c.Max.X - c.Min.X
	p, keys := b.plot(width)
	c = head(c, b.Title, keys...)
	if b.Standing {
		nominal(&p.X, b.Names, width)
		drawPlot(c, p, "", axisLabel(b.Label, false))
	} else {
		nominal(&p.Y, b.Names, 0)
		c.Max.Y += 20 // there is no name above
		drawPlot(c, p, axisLabel(b.Label, b.Log), "")
	}
}

// plot is the bars with the keys of their legend, on a width.
func (b Bars) plot(width vg.Length) (p *plot.Plot, keys []plot.Legend) {
	p = newPlot(b.Log, false)
	lines := draw.LineStyle{Color: Rule, Width: 1}
	if b.Standing {
		p.Y.Min = 0
		p.Add(&plotter.Grid{Horizontal: lines})
	} else {
		p.Y.Scale = plot.InvertedScale{Normalizer: plot.LinearScale{}} // from the top
		p.Add(&plotter.Grid{Vertical: lines})
	}
	if !b.Log && !b.Standing {
		p.X.Min = 0
	}
	for k, s := range b.Series {
		mark := b.add(p, s, k, b.pitch(width))
		if s.Name != "" {
			keys = append(keys, key(s.Name, mark))
		}
	}
	return p, keys
}

// add adds series k and returns its mark in a legend.
func (b Bars) add(p *plot.Plot, s BarSeries, k int, pitch vg.Length) plot.Thumbnailer {
	n := float64(len(b.Series))
	off := (float64(k) - (n-1)/2) * .8 / n // of the middle of the name
	bars := &plotter.BarChart{Values: make(plotter.Values, len(b.Names)), Width: .9 * pitch, Color: s.Colour, XMin: off, Horizontal: !b.Standing}
	points := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: s.Colour, Radius: 4.4, Shape: shapes[k%len(shapes)]}}
	ranges := &plotter.XErrorBars{LineStyle: draw.LineStyle{Color: Ink, Width: 1.2}, CapWidth: 8}
	values := &plotter.Labels{Offset: vg.Point{X: 9}}
	for i, v := range s.Values {
		if !b.known(s, i) {
			continue
		}
		at, end := plotter.XY{X: v, Y: float64(i) + off}, v
		bars.Values[i], points.XYs = v, append(points.XYs, at)
		if i < len(s.Spread) && s.Spread[i] > 0 {
			ranges.XYs, ranges.XErrors = append(ranges.XYs, at), append(ranges.XErrors, around(v, s.Spread[i], b.Log))
			end += s.Spread[i]
		}
		values.XYs, values.Labels = append(values.XYs, plotter.XY{X: end, Y: at.Y}), append(values.Labels, Number(v))
		values.TextStyle = append(values.TextStyle, style(tickSize, Ink))
	}
	if len(points.XYs) == 0 || b.Standing {
		p.Add(bars)
		return bars
	}
	if b.Log {
		p.Add(leaders(points.XYs))
	} else {
		p.Add(bars)
	}
	if len(ranges.XYs) > 0 {
		p.Add(ranges)
	}
	p.Add(values)
	if !b.Log {
		return bars
	}
	p.Add(points) // hides a range that is smaller
	return points
}

// leaders draws dotted lines from the names to the points.
type leaders plotter.XYs

// Plot implements plot.Plotter.
func (l leaders) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, at := range l {
		c.StrokeLine2(draw.LineStyle{Color: Muted, Width: 1, Dashes: []vg.Length{1, 4}}, c.Min.X, y(at.Y), x(at.X)-7, y(at.Y))
	}
}

// nominal labels an axis with names instead of numbers, on a horizontal axis of that length as many
// as fit.
func nominal(a *plot.Axis, names []string, length vg.Length) {
	list, most := make(plot.ConstantTicks, len(names)), vg.Length(0)
	for i, n := range names {
		list[i] = plot.Tick{Value: float64(i), Label: Typeset(n)}
		most = max(most, a.Tick.Label.Width(list[i].Label)+3)
	}
	for i := range list {
		if length > 0 && i%int(math.Ceil(float64(most*vg.Length(len(list))/(length-60)))) != 0 {
			list[i].Label = ""
		}
	}
	a.Tick.Marker, a.Min, a.Max = list, -.5, float64(len(names))-.5
	a.Width, a.Tick.Width, a.Tick.Length, a.Tick.Label.Color = 0, 0, 0, Ink
}

// Data are the values by name.
func (b Bars) Data() Table {
	t := Table{Caption: b.Title + ", " + axisLabel(b.Label, b.Log), Header: []string{""}}
	for _, s := range b.Series {
		t.Header = append(t.Header, s.Name)
	}
	for i, name := range b.Names {
		row, any := []string{name}, false
		for _, s := range b.Series {
			row = append(row, "")
			if b.known(s, i) {
				row[len(row)-1], any = Number(s.Values[i]), true
			}
		}
		if any {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}
