package notebook

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

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
// standing, which suits many short names such as letters. Several series give several bars
// for each name.
type Bars struct {
	Title, Label string // Label says what the values are, with the unit
	// Log gives a logarithmic axis, and points in the place of bars: such an axis has no
	// zero from which a bar could start. Values must be above zero.
	Log      bool
	Standing bool
	Names    []string
	Series   []BarSeries
}

// pitch is from one bar of a name to the next one, in pixels, on a drawing of that width.
func (b Bars) pitch(width vg.Length) vg.Length {
	if b.Standing {
		return .8 * (width - 60) / vg.Length(max(len(b.Names)*len(b.Series), 1))
	}
	return 18
}

// slot is the room for the bars of a name that lie.
func (b Bars) slot() vg.Length { return vg.Length(len(b.Series))*b.pitch(0) + 8 }

// known reports whether bar i of a series can be shown.
func (b Bars) known(s BarSeries, i int) bool {
	return i < len(b.Names) && !math.IsNaN(s.Values[i]) && !math.IsInf(s.Values[i], 0) && !(b.Log && s.Values[i] <= 0)
}

// plot is the bars on a width, without what stands above them; keys is their legend. It is nil if
// there is no value to show.
func (b Bars) plot(width vg.Length) (p *plot.Plot, keys []key) {
	p, any := newPlot(), false
	value, names := &p.X, &p.Y
	if b.Standing {
		value, names = names, value
	}
	value.Tick.Marker = ticks{b.Log}
	if b.Log {
		value.Scale = plot.LogScale{}
	} else {
		value.Min = 0
	}
	p.Add(grid(!b.Standing, b.Standing))
	for k, s := range b.Series {
		// Rows from the top, and in a row the series from the top.
		offset := vg.Length(len(b.Series)-1-2*k) / 2 * b.pitch(width)
		if b.Standing {
			offset = -offset
		}
		mark := b.add(p, s, k, offset, .9*b.pitch(width))
		keys = append(keys, key{typeset(s.Name), []plot.Thumbnailer{mark}})
		for i := range s.Values {
			any = any || b.known(s, i)
		}
	}
	if !any {
		return nil, nil
	}
	widen(value, b.Log)
	names.Min, names.Max = -.5, float64(len(b.Names))-.5
	names.Width, names.Tick.Width, names.Tick.Length = 0, 0, 0
	names.Tick.Label.Color = Ink
	return p, keys
}

// at is where the bar of name i stands: its row or column.
func (b Bars) at(i int) float64 {
	if b.Standing {
		return float64(i)
	}
	return float64(len(b.Names) - 1 - i)
}

// add adds a series, whose bars are off the middle of their rows by an offset, and returns
// what shows it in a legend.
func (b Bars) add(p *plot.Plot, s BarSeries, k int, offset, wide vg.Length) plot.Thumbnailer {
	bars := &plotter.BarChart{Values: make(plotter.Values, len(b.Names)), Width: wide, Color: s.Colour, Offset: offset, Horizontal: !b.Standing}
	off := float64(offset / b.slot())
	points := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: s.Colour, Radius: 4.4, Shape: shapes[k%len(shapes)]}}
	ranges := &plotter.XErrorBars{LineStyle: draw.LineStyle{Color: Ink, Width: 1.2}, CapWidth: 8}
	values := &plotter.Labels{Offset: vg.Point{X: 9}}
	for i, v := range s.Values {
		if !b.known(s, i) {
			continue
		}
		row, end := b.at(i), v
		bars.Values[int(row)] = v
		points.XYs = append(points.XYs, plotter.XY{X: v, Y: row + off})
		if i < len(s.Spread) && s.Spread[i] > 0 {
			ranges.XYs = append(ranges.XYs, plotter.XY{X: v, Y: row + off})
			ranges.XErrors = append(ranges.XErrors, struct{ Low, High float64 }{lower(v, s.Spread[i], b.Log), s.Spread[i]})
			end += s.Spread[i]
		}
		values.XYs = append(values.XYs, plotter.XY{X: end, Y: row + off})
		values.Labels = append(values.Labels, Number(v))
		values.TextStyle = append(values.TextStyle, style(tickSize, Ink))
	}
	if len(points.XYs) == 0 {
		return bars
	}
	if b.Standing {
		p.Add(bars)
		return bars
	}
	// A range that is smaller than its point is hidden by it.
	var shown interface {
		plot.Plotter
		plot.Thumbnailer
	} = bars
	order := []plot.Plotter{bars, ranges, values}
	if b.Log {
		shown, order = points, []plot.Plotter{leaders(points.XYs), ranges, points, values}
	}
	if len(ranges.XYs) == 0 {
		order = slices.DeleteFunc(order, func(p plot.Plotter) bool { return p == ranges })
	}
	p.Add(order...)
	return shown
}

// leaders are dotted lines from the names to the points.
type leaders plotter.XYs

// Plot implements plot.Plotter.
func (l leaders) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, at := range l {
		c.StrokeLine2(draw.LineStyle{Color: Muted, Width: 1, Dashes: []vg.Length{1, 4}}, c.Min.X, y(at.Y), x(at.X)-7, y(at.Y))
	}
}

func (b Bars) layout(width vg.Length) (vg.Point, func(draw.Canvas) error) {
	height := 100 + .3*width
	if !b.Standing {
		height = 28 + 28 + 56 + vg.Length(len(b.Names))*b.slot()
	}
	return vg.Point{X: width, Y: height}, func(c draw.Canvas) error {
		p, keys := b.plot(c.Max.X - c.Min.X)
		if p == nil {
			return none(c, typeset(b.Title))
		}
		c = head(c, typeset(b.Title), keys)
		b.name(p, c.Max.X-c.Min.X)
		if b.Standing {
			drawPlot(c, p, "", axisLabel(b.Label, b.Log))
		} else {
			drawPlot(c, p, axisLabel(b.Label, b.Log), "")
		}
		return nil
	}
}

// name puts the names to the rows, or to the columns of an axis of that length, as many as
// there is room for.
func (b Bars) name(p *plot.Plot, length vg.Length) {
	list, widest := make(plot.ConstantTicks, len(b.Names)), vg.Length(0)
	for i, n := range b.Names {
		list[i] = plot.Tick{Value: b.at(i), Label: typeset(n)}
		widest = max(widest, p.X.Tick.Label.Width(n)+6)
	}
	if !b.Standing {
		p.Y.Tick.Marker = list
		return
	}
	thin(list, widest, length)
	p.X.Tick.Marker = list
}

// thin takes the names of ticks away for which there is no room on an axis of that length.
func thin(list []plot.Tick, widest, length vg.Length) {
	every := max(int(math.Ceil(float64(widest*vg.Length(len(list))/length))), 1)
	for i := range list {
		if i%every != 0 {
			list[i].Label = ""
		}
	}
}

func (b Bars) describe() string {
	var values []string
	for i, name := range b.Names {
		for _, s := range b.Series {
			if i < len(s.Values) && b.known(s, i) {
				values = append(values, strings.TrimSpace(name+" "+s.Name)+" "+Number(s.Values[i]))
			}
		}
	}
	if values == nil {
		values = []string{notRecorded}
	}
	return typeset(fmt.Sprintf("%s. %s: %s.", b.Title, axisLabel(b.Label, b.Log), strings.Join(values, "; ")))
}
