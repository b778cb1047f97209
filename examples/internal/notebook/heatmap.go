package notebook

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// HeatMap shows values over a plane: Values[row][column] with the names of the rows, the
// first at the bottom, and of the columns. NaN is left out. Colours go by the logarithm of
// a value's distance from zero (with Gain) or from the least value, on a scale that begins at
// their median: a single great value does not make all others alike.
type HeatMap struct {
	Title, XLabel, YLabel string
	Label                 string // what the colours show, with the unit
	Columns, Rows         []string
	Values                [][]float64
	// Gain colours around zero: blue above, red below. Without it colours go from dark to
	// bright, from the least to the greatest value.
	Gain bool
}

// colours is how a map colours its values.
type colours struct {
	zero, lo, hi float64 // where the scale begins, the least and the greatest value
	median       float64 // of the distances from zero
	palette.ColorMap
}

// colours of the map's values; ok is false if there are none.
func (h HeatMap) colours() (c colours, ok bool) {
	c.lo, c.hi = math.Inf(1), math.Inf(-1)
	var all []float64
	for _, v := range slices.Concat(h.Values...) {
		if !math.IsNaN(v) {
			c.lo, c.hi, all = min(c.lo, v), max(c.hi, v), append(all, v)
		}
	}
	if len(all) == 0 {
		return c, false
	}
	c.ColorMap = viridis()
	if c.zero = c.lo; h.Gain {
		c.zero, c.ColorMap = 0, palette.Reverse(moreland.SmoothBlueRed())
		c.hi = max(-c.lo, c.hi)
		c.lo = -c.hi
	}
	if c.lo == c.hi {
		c.hi++
	}
	distances := all[:0]
	for _, v := range all {
		if v != c.zero {
			distances = append(distances, math.Abs(v-c.zero))
		}
	}
	if c.median = 1; len(distances) > 0 {
		slices.Sort(distances)
		c.median = distances[len(distances)/2]
	}
	c.SetMin(c.place(c.lo))
	c.SetMax(c.place(c.hi))
	return c, true
}

// place is where a value stands on the scale.
func (c colours) place(v float64) float64 {
	return math.Copysign(math.Log1p(math.Abs(v-c.zero)/c.median), v-c.zero)
}

// of is the colour of a value.
func (c colours) of(v float64) color.RGBA {
	col, err := c.At(min(max(c.place(v), c.Min()), c.Max()))
	if err != nil {
		return Paper
	}
	return color.RGBAModel.Convert(col).(color.RGBA)
}

// Ticks are round values of the scale, powers of ten first and none close to another one.
// It implements plot.Ticker.
func (c colours) Ticks(lo, hi float64) (list []plot.Tick) {
	add := func(v float64) {
		at := c.place(v)
		if v < c.lo || v > c.hi || slices.ContainsFunc(list, func(t plot.Tick) bool { return math.Abs(t.Value-at) < (hi-lo)/14 }) {
			return
		}
		list = append(list, plot.Tick{Value: at, Label: label(v)})
	}
	add(0)
	top := math.Ceil(math.Log10(max(math.Abs(c.lo), math.Abs(c.hi))))
	for _, f := range []float64{1, 2, 5} {
		for e := top; e > top-6; e-- {
			v := f * math.Pow(10, e)
			add(v)
			add(-v)
		}
	}
	return list
}

// GridXYZ of the places of the values, for the library.
type places struct {
	h HeatMap
	c colours
}

func (g places) Dims() (columns, rows int) { return max(len(g.h.Columns), 1), max(len(g.h.Rows), 1) }
func (g places) X(column int) float64      { return float64(column) }
func (g places) Y(row int) float64         { return float64(row) }
func (g places) Z(column, row int) float64 { return g.c.place(g.h.at(column, row)) }

// at is a value, NaN if there is none.
func (h HeatMap) at(column, row int) float64 {
	if row >= len(h.Values) || column >= len(h.Values[row]) {
		return math.NaN()
	}
	return h.Values[row][column]
}

func (h HeatMap) layout(width vg.Length) (vg.Point, func(draw.Canvas) error) {
	height := 28 + 72 + min(max(vg.Length(len(h.Rows))*30, 160), .7*width)
	return vg.Point{X: width, Y: height}, func(c draw.Canvas) error {
		colours, ok := h.colours()
		if !ok {
			return none(c, typeset(h.Title))
		}
		c = head(c, typeset(h.Title), nil)
		sty := style(labelSize, Muted)
		sty.XAlign = text.XRight
		c.FillText(sty, vg.Point{X: c.Max.X, Y: c.Max.Y - 8}, axisLabel(h.Label, true))
		scale := newPlot()
		scale.HideX()
		scale.Y.Tick.Marker = colours
		scale.Add(&plotter.ColorBar{ColorMap: colours.ColorMap, Vertical: true, Colors: 128})
		bar := scale.DataCanvas(c).Min.X - c.Min.X + 14 // its ticks and itself
		p, cells := h.plot(colours, c.Max.X-c.Min.X-bar)
		area := drawPlot(draw.Crop(c, 0, -bar-16, 0, 0), p, typeset(h.XLabel), typeset(h.YLabel)+" ") // leaves a line above for both labels
		scale.Draw(draw.Canvas{Canvas: c, Rectangle: vg.Rectangle{Min: vg.Point{X: c.Max.X - bar, Y: area.Min.Y}, Max: vg.Point{X: c.Max.X, Y: area.Max.Y}}})
		cells.write(area)
		return nil
	}
}

// plot is the map on a width, and what to write into its cells.
func (h HeatMap) plot(c colours, width vg.Length) (*plot.Plot, cells) {
	p := newPlot()
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Width, a.Tick.Width, a.Tick.Length = 0, 0, 0
		a.Tick.Label.Color = Ink
	}
	heat := plotter.NewHeatMap(places{h, c}, c.Palette(256)) // an odd reversed palette lacks its middle
	heat.Min, heat.Max = c.Min(), c.Max()
	p.Add(heat)
	columns, rows, widest := make(plot.ConstantTicks, len(h.Columns)), make(plot.ConstantTicks, len(h.Rows)), vg.Length(0)
	for i, n := range h.Columns {
		columns[i] = plot.Tick{Value: float64(i), Label: typeset(n)}
		widest = max(widest, p.X.Tick.Label.Width(n)+8)
	}
	for i, n := range h.Rows {
		rows[i] = plot.Tick{Value: float64(i), Label: typeset(n)}
	}
	thin(columns, widest, width-60)
	thin(rows, tickSize+4, .7*width)
	p.X.Tick.Marker, p.Y.Tick.Marker = columns, rows
	return p, cells{h, c}
}

// cells writes values into a map.
type cells struct {
	h HeatMap
	c colours
}

// write writes the values into the cells of an area, if there is room in each.
func (w cells) write(area draw.Canvas) {
	columns, rows := places(w).Dims()
	wide, tall := (area.Max.X-area.Min.X)/vg.Length(columns), (area.Max.Y-area.Min.Y)/vg.Length(rows)
	sty := style(11, Ink)
	sty.XAlign = text.XCenter
	for _, v := range slices.Concat(w.h.Values...) {
		if sty.Width(short(v))+4 > wide || tall < 15 {
			return
		}
	}
	for r := range rows {
		for k := range columns {
			v := w.h.at(k, r)
			if math.IsNaN(v) {
				continue
			}
			sty.Color = onLight
			if luminance(w.c.of(v)) < .45 {
				sty.Color = onDark
			}
			area.FillText(sty, vg.Point{X: area.Min.X + (vg.Length(k)+.5)*wide, Y: area.Min.Y + (vg.Length(r)+.5)*tall}, short(v))
		}
	}
}

// short prints a value with three digits at most.
func short(v float64) string {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	return label(v)
}

// luminance of a colour, from 0 to 1.
func luminance(c color.RGBA) float64 {
	return (.299*float64(c.R) + .587*float64(c.G) + .114*float64(c.B)) / 255
}

func (h HeatMap) describe() string {
	c, ok := h.colours()
	if !ok {
		return typeset(h.Title + ". " + notRecorded + ".")
	}
	lo := c.lo
	if h.Gain {
		lo = math.Inf(1)
		for _, v := range slices.Concat(h.Values...) {
			if !math.IsNaN(v) {
				lo = min(lo, v)
			}
		}
	}
	return typeset(fmt.Sprintf("%s. %s by %s and %s, from %s to %s.", h.Title, h.Label, h.YLabel, h.XLabel, Number(lo), Number(c.hi)))
}
