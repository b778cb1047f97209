package notebook

import (
	"image/color"
	"math"
	"strings"
)

// HeatMap shows values over a plane: Values[row][column] with the names of the
// rows, the first at the bottom, and of the columns. NaN is left white.
type HeatMap struct {
	Title, XLabel, YLabel string
	Label                 string // what the colours show, with the unit
	Columns, Rows         []string
	Values                [][]float64
	// Gain colours around zero: blue above, red below. Without it colours run
	// through the spectrum from the least to the greatest value.
	Gain bool
}

// Draw draws the map into the rectangle, title, labels and the scale of the
// colours included. Values are written into cells that have room for them.
func (h HeatMap) Draw(c *Canvas, x, y, width, height float64) {
	left, right := x+84, x+width-130
	top, bottom := y+84, y+height-66
	for _, n := range h.Rows {
		left = max(left, x+40+TextWidth(n, textSize))
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, row := range h.Values {
		for _, v := range row {
			if !math.IsNaN(v) {
				lo, hi = min(lo, v), max(hi, v)
			}
		}
	}
	c.title(left, y+36, x+width-24-left, h.Title)
	c.Text(left, y+66, textSize, Left, Muted, h.YLabel)
	c.Text(x+width-24, y+66, textSize, Right, Muted, h.Label)
	if lo > hi {
		c.Text((left+right)/2, (top+bottom)/2, textSize, Centre, Muted, "not recorded yet")
		return
	}
	if h.Gain {
		hi = max(math.Abs(lo), math.Abs(hi))
		lo = -hi
	}
	if lo == hi {
		lo, hi = lo-.5, hi+.5
	}
	c.text += h.text(lo, hi) + "\n"
	colour := func(v float64) color.RGBA {
		t := (v - lo) / (hi - lo)
		if h.Gain {
			return Diverging(2*t - 1)
		}
		return Spectral(t)
	}
	rows, columns := max(len(h.Rows), 1), max(len(h.Columns), 1)
	edge := func(a, b float64, i, n int) int { return int(math.Round(a + (b-a)*float64(i)/float64(n))) }
	for r, row := range h.Values {
		for k, v := range row {
			if math.IsNaN(v) {
				continue
			}
			x0, x1 := edge(left, right, k, columns), edge(left, right, k+1, columns)
			y0, y1 := edge(bottom, top, r+1, rows), edge(bottom, top, r, rows)
			drawCell(c, x0, y0, x1-x0, y1-y0, colour(v), Number(v))
		}
	}
	// Names: every one that has room.
	step := max(int(math.Ceil(22*float64(rows)/(bottom-top))), 1)
	for r := 0; r < len(h.Rows); r += step {
		c.Text(left-12, float64(edge(bottom, top, r, rows)+edge(bottom, top, r+1, rows))/2+textSize/2, textSize, Right, Muted, h.Rows[r])
	}
	widest := 0.0
	for _, n := range h.Columns {
		widest = max(widest, TextWidth(n, textSize)+12)
	}
	step = max(int(math.Ceil(widest*float64(columns)/(right-left))), 1)
	for k := 0; k < len(h.Columns); k += step {
		c.Text(float64(edge(left, right, k, columns)+edge(left, right, k+1, columns))/2, bottom+12+textSize, textSize, Centre, Muted, h.Columns[k])
	}
	c.Text((left+right)/2, bottom+28+2*textSize, textSize, Centre, Muted, h.XLabel)
	// The scale.
	scale := axis{lo: lo, hi: hi, a: bottom, b: top}
	for py := int(top); py < int(bottom); py++ {
		c.Rect(int(right)+28, py, 18, 1, colour(lo+(hi-lo)*(bottom-float64(py))/(bottom-top)))
	}
	for _, t := range scale.ticks(6) {
		at := math.Round(scale.at(t)) + .5
		c.Line([]Point{{right + 46, at}, {right + 52, at}}, 1, Muted)
		c.Text(right+58, at+textSize/2, textSize, Left, Muted, label(t))
	}
}

// drawCell draws a cell with its value, if there is room for it.
func drawCell(c *Canvas, x, y, width, height int, col color.RGBA, text string) {
	c.Rect(x, y, width, height, col)
	if TextWidth(text, 11)+8 > float64(width) || height < 22 {
		return
	}
	ink := Ink
	if luminance(col) < .4 {
		ink = Paper
	}
	c.Text(float64(x)+float64(width)/2, float64(y)+float64(height)/2+5.5, 11, Centre, ink, text)
}

// Picture draws an image of the given row width, each value a square of the
// given side in the colour that the map gives it.
func (c *Canvas) Picture(x, y, side, width int, values []float32, colour func(v float64) color.RGBA) {
	text := pictureText(width, values)
	if c.pictures != "" && strings.Count(c.pictures, "\n") == strings.Count(text, "\n") {
		c.text, c.pictures = c.text+beside(c.pictures, text)+"\n", ""
	} else {
		c.pictures = text
	}
	for i, v := range values {
		c.Rect(x+i%width*side, y+i/width*side, side, side, colour(float64(v)))
	}
}

// Spectral is a colour for t from 0 to 1: violet, blue, green, yellow, red.
func Spectral(t float64) color.RGBA {
	return gradient(t, [][3]float64{{94, 79, 162}, {50, 136, 189}, {102, 194, 165}, {230, 245, 152}, {254, 224, 139}, {244, 109, 67}, {158, 1, 66}})
}

// Diverging is a colour for t from -1 to 1: red, white at 0, blue.
func Diverging(t float64) color.RGBA {
	return gradient((t+1)/2, [][3]float64{{165, 15, 21}, {239, 101, 72}, {247, 247, 247}, {88, 150, 210}, {8, 69, 148}})
}

// gradient is the colour at t from 0 to 1 between stops at equal distances.
func gradient(t float64, stops [][3]float64) color.RGBA {
	t = min(max(t, 0), 1) * float64(len(stops)-1)
	if math.IsNaN(t) {
		return Paper
	}
	i := min(int(t), len(stops)-2)
	var v [3]uint8
	for k := range v {
		a, b := stops[i][k], stops[i+1][k]
		v[k] = uint8(math.Round(a + (b-a)*(t-float64(i))))
	}
	return color.RGBA{v[0], v[1], v[2], 0xff}
}

// luminance of a colour, from 0 to 1.
func luminance(c color.RGBA) float64 {
	return (.299*float64(c.R) + .587*float64(c.G) + .114*float64(c.B)) / 255
}
