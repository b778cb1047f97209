package notebook

import (
	"image/color"
	"math"
)

// BarSeries is one colour of bars, with a value for each name of the [Bars];
// NaN has no bar.
type BarSeries struct {
	Name   string // for the legend; "" where there is one series only
	Colour color.RGBA
	Values []float64
}

// Bars compares values by name: with one row a name, lying, or with one column
// a name, standing, which suits many short names such as letters. Several series
// give several bars for each name.
type Bars struct {
	Title, Label string // Label says what the values are, with the unit
	Log          bool   // a logarithmic axis; values must be above zero
	Standing     bool
	Names        []string
	Series       []BarSeries
}

// Height is a good height in pixels for lying bars.
func (b Bars) Height() float64 { return 130 + float64(len(b.Names)*max(len(b.Series)*22+14, 36)) }

// Draw draws the bars into the rectangle, title and labels included. Lying bars
// have their values written beside them.
func (b Bars) Draw(c *Canvas, x, y, width, height float64) {
	left, right := x+84, x+width-24
	top, bottom := y+56, y+height-66
	keys := make([]key, len(b.Series))
	for i, s := range b.Series {
		keys[i] = key{s.Name, s.Colour, true}
		if s.Name != "" {
			top = y + 84
		}
	}
	wide := width - 48
	if b.Standing {
		wide -= TextWidth(b.Label, textSize) + 36
	}
	top += c.legend(x+24, y+60, wide, keys)
	values, any := b.axis()
	if !b.Standing {
		left = x + 24
		for _, n := range b.Names {
			left = max(left, x+36+TextWidth(n, textSize))
		}
	}
	c.title(x+24, y+36, width-48, b.Title)
	if !any {
		c.Text((left+right)/2, (top+bottom)/2, textSize, Centre, Muted, "not recorded yet")
		return
	}
	if b.Standing {
		values.span(bottom, top, 0)
	} else {
		room := 0.0 // for the values
		for _, s := range b.Series {
			for _, v := range s.Values {
				room = max(room, TextWidth(Number(v), textSize)+10)
			}
		}
		right -= room
		values.span(left, right, 0)
	}
	c.text += b.text(values) + "\n"
	area := rectangle{left, top, right, bottom}
	b.drawAxis(c, values, area, y+60)
	b.drawBars(c, values, area)
}

// axis returns the axis of the values, and whether there are any.
func (b Bars) axis() (values axis, any bool) {
	values = newAxis(b.Log)
	if !b.Log {
		values.include(0)
	}
	for _, s := range b.Series {
		for _, v := range s.Values {
			values.include(v)
			any = any || !math.IsNaN(v)
		}
	}
	if b.Log && values.any { // a bar of the least value is to be seen
		values.lo = math.Floor(values.lo - .3)
	}
	return values, any
}

// drawAxis draws the ticks of the axis and its label, which is at that height where the
// bars stand.
func (b Bars) drawAxis(c *Canvas, values axis, area rectangle, y float64) {
	left, top, right, bottom := area.left, area.top, area.right, area.bottom
	for _, t := range values.ticks(6) {
		at := math.Round(values.at(t)) + .5
		if b.Standing {
			c.Line([]Point{{left, at}, {right, at}}, 1, Rule)
			c.Text(left-12, at+textSize/2, textSize, Right, Muted, label(t))
		} else {
			c.Line([]Point{{at, top}, {at, bottom}}, 1, Rule)
		}
	}
	if b.Standing {
		c.Text(right, y+textSize/2, textSize, Right, Muted, b.Label)
	} else {
		values.label(c, bottom)
		c.Text((left+right)/2, bottom+28+2*textSize, textSize, Centre, Muted, b.Label)
	}
}

// drawBars draws the bars, with their names and values. Each name has a slot, four fifths
// of it for its bars.
func (b Bars) drawBars(c *Canvas, values axis, area rectangle) {
	from, to := area.top, area.bottom
	if b.Standing {
		from, to = area.left, area.right
	}
	slot := (to - from) / float64(max(len(b.Names), 1))
	thick := slot * .8 / float64(max(len(b.Series), 1))
	every := 1 // name that has room, where they stand
	for _, n := range b.Names {
		every = max(every, int(math.Ceil((TextWidth(n, textSize)+4)/slot)))
	}
	for i, name := range b.Names {
		middle := from + (float64(i)+.5)*slot
		if b.Standing && i%every == 0 {
			c.Text(middle, area.bottom+12+textSize, textSize, Centre, Ink, name)
		} else if !b.Standing {
			c.Text(area.left-12, middle+textSize/2, textSize, Right, Ink, name)
		}
		for k, s := range b.Series {
			if i >= len(s.Values) || math.IsNaN(s.Values[i]) {
				continue
			}
			a := int(math.Round(middle + (float64(k)-float64(len(b.Series))/2)*thick))
			wide := max(int(thick+.5)-1, 1)
			end := int(math.Round(values.at(s.Values[i])))
			zero := int(values.a)
			if !b.Log {
				zero = int(math.Round(values.at(0)))
			}
			if b.Standing {
				c.Rect(a, min(end, zero), wide, max(zero-end, end-zero), s.Colour)
				continue
			}
			c.Rect(min(end, zero), a, max(zero-end, end-zero), wide, s.Colour)
			c.Text(float64(max(end, zero))+10, float64(a)+float64(wide+textSize)/2, textSize, Left, Ink, Number(s.Values[i]))
		}
	}
}
