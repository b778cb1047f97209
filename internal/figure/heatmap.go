package figure

import (
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat"
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
	Label                 string // quantity of the colours, with the unit
	Columns, Rows         []string
	Values                [][]float64
	// Gain colours around zero: blue above, red below. Without it colours go from dark to
	// bright, from the least to the greatest value.
	Gain bool
}

// at returns a value, NaN if there is none.
func (h HeatMap) at(column, row int) float64 {
	if row >= len(h.Values) || column >= len(h.Values[row]) {
		return math.NaN()
	}
	return h.Values[row][column]
}

// A scale is how a map colours its values: the places of values, from that of the least to
// that of the greatest, have colours. For the library it is the grid of these places.
type scale struct {
	HeatMap
	zero, lo, hi, median float64 // where it begins, its ends, and the median of the distances from zero
	palette.ColorMap
}

// scale of the values; ok is false if there are none.
func (h HeatMap) scale() (s scale, ok bool) {
	all := slices.DeleteFunc(slices.Concat(h.Values...), math.IsNaN)
	if len(all) == 0 {
		return s, false
	}
	s = scale{h, slices.Min(all), slices.Min(all), slices.Max(all), 1, viridis()}
	if h.Gain {
		s.hi = max(-s.lo, s.hi)
		s.zero, s.lo, s.ColorMap = 0, -s.hi, palette.Reverse(moreland.SmoothBlueRed())
	}
	if s.lo == s.hi {
		s.hi++
	}
	for i, v := range all {
		all[i] = math.Abs(v - s.zero)
	}
	slices.Sort(all)
	if all = slices.DeleteFunc(all, func(d float64) bool { return d == 0 }); len(all) > 0 {
		s.median = stat.Quantile(0.5, stat.Empirical, all, nil)
	}
	s.SetMin(s.place(s.lo))
	s.SetMax(s.place(s.hi))
	return s, true
}

// place returns the position of a value on the scale.
func (s scale) place(v float64) float64 {
	return math.Copysign(math.Log1p(math.Abs(v-s.zero)/s.median), v-s.zero)
}

func (s scale) Dims() (columns, rows int) { return len(s.Columns), len(s.Rows) }
func (s scale) X(column int) float64      { return float64(column) }
func (s scale) Y(row int) float64         { return float64(row) }
func (s scale) Z(column, row int) float64 { return s.place(s.at(column, row)) }

// Ticks are round values of the scale, powers of ten first and none close to another one.
func (s scale) Ticks(lo, hi float64) (list []plot.Tick) {
	add := func(v float64) {
		at := s.place(v)
		if v >= s.lo && v <= s.hi && !slices.ContainsFunc(list, func(t plot.Tick) bool { return math.Abs(t.Value-at) < (hi-lo)/14 }) {
			list = append(list, plot.Tick{Value: at, Label: label(v)})
		}
	}
	add(0)
	for _, f := range []float64{1, 2, 5} {
		for e := math.Ceil(math.Log10(max(-s.lo, s.hi))); e > -12 && len(list) < 15; e-- {
			add(f * math.Pow(10, e))
			add(-f * math.Pow(10, e))
		}
	}
	return list
}

func (h HeatMap) size(width vg.Length) vg.Point {
	return vg.Point{X: width, Y: 28 + 72 + min(max(vg.Length(len(h.Rows))*30, 160), .7*width)}
}

func (h HeatMap) draw(c draw.Canvas) {
	s, _ := h.scale()
	c = head(c, h.Title)
	sty := style(labelSize, Muted)
	sty.XAlign = text.XRight
	c.FillText(sty, vg.Point{X: c.Max.X, Y: c.Max.Y - 8}, axisLabel(h.Label, true))
	colours := newPlot(false, false)
	colours.HideX()
	colours.Y.Tick.Marker = s
	colours.Add(&plotter.ColorBar{ColorMap: s.ColorMap, Vertical: true, Colors: 128})
	bar := colours.DataCanvas(c).Min.X - c.Min.X + 14 // its ticks and itself

	p := newPlot(false, false)
	heat := plotter.NewHeatMap(s, s.Palette(256)) // an odd palette that was reversed lacks its middle
	heat.Min, heat.Max = s.Min(), s.Max()
	p.Add(heat, s.cells(heat, (c.Max.X-c.Min.X-bar-60)/vg.Length(len(h.Columns))))
	nominal(&p.X, h.Columns, c.Max.X-c.Min.X-bar)
	nominal(&p.Y, h.Rows, 0)
	area := drawPlot(draw.Crop(c, 0, -bar-16, 0, 0), p, Typeset(h.XLabel), Typeset(h.YLabel))
	colours.Draw(draw.Canvas{Canvas: c, Rectangle: vg.Rectangle{Min: vg.Point{X: c.Max.X - bar, Y: area.Min.Y}, Max: vg.Point{X: c.Max.X, Y: area.Max.Y}}})
}

// cells are the values in the cells of a map, if there is room in each.
func (s scale) cells(h *plotter.HeatMap, wide vg.Length) *plotter.Labels {
	all, list := &plotter.Labels{}, h.Palette.Colors()
	for r := range s.Rows {
		for k := range s.Columns {
			z, value := s.Z(k, r), short(s.at(k, r))
			if math.IsNaN(z) {
				continue
			}
			sty := style(11, onLight)
			sty.XAlign = text.XCenter
			if ground := list[int(float64(len(list)-1)*(z-s.Min())/(s.Max()-s.Min())+.5)]; color.GrayModel.Convert(ground).(color.Gray).Y < 115 {
				sty.Color = onDark
			}
			if sty.Width(value)+4 > wide || len(s.Rows) > 20 {
				return &plotter.Labels{}
			}
			all.XYs, all.Labels, all.TextStyle = append(all.XYs, plotter.XY{X: float64(k), Y: float64(r)}), append(all.Labels, value), append(all.TextStyle, sty)
		}
	}
	return all
}

// short prints a value with three digits at most.
func short(v float64) string {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	return label(v)
}

// Data are the values, the first row last.
func (h HeatMap) Data() Table {
	t := Table{Caption: h.Title + ", " + h.Label, Header: append([]string{h.YLabel + " by " + h.XLabel}, h.Columns...)}
	if _, ok := h.scale(); !ok {
		return t
	}
	for r := len(h.Rows) - 1; r >= 0; r-- {
		row := []string{h.Rows[r]}
		for k := range h.Columns {
			row = append(row, Number(h.at(k, r)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
