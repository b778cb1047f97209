package notebook

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"html/template"
	"image"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/image/draw"
	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A Panel is one drawing of a figure: a [Chart], [Bars], a [HeatMap] or [Pictures].
type Panel interface {
	// layout returns the size of a drawing for that width, in pixels, and what draws it.
	// Pictures have a width of their own.
	layout(width vg.Length) (size vg.Point, draw func(vgdraw.Canvas) error)
	// describe says in words what is to be seen.
	describe() string
	// text is what a terminal can show of it, and a line behind that.
	text() string
}

// The widths of a panel that is alone in its figure and of one of several, which stand
// two by two where there is room.
const (
	alone  = 760
	paired = 440
	apart  = 24 // between panels, and around all in a PNG
)

// columns returns how many panels stand side by side, and the width of each. A panel that is
// too wide for two stands alone, as all others then do.
func columns(panels []Panel) (n int, width vg.Length) {
	for _, p := range panels {
		if size, _ := p.layout(paired); size.X > paired || len(panels) == 1 {
			return 1, alone
		}
	}
	return 2, paired
}

// Save writes panels as a PNG; it makes the folder if need be.
func Save(path string, panels ...Panel) error {
	picture, err := drawPNG(panels)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, picture, 0o644)
}

// drawPNG draws panels on white, with two dots for a pixel each way.
func drawPNG(panels []Panel) ([]byte, error) {
	n, width := columns(panels)
	type place struct {
		corner, size vg.Point // the upper left corner, y downwards
		draw         func(vgdraw.Canvas) error
	}
	places, all := make([]place, len(panels)), vg.Point{}
	row, left := vg.Length(apart), vg.Length(apart)
	for i, p := range panels {
		if i%n == 0 {
			row, left = all.Y+apart, apart
		}
		size, draw := p.layout(width)
		places[i] = place{vg.Point{X: left, Y: row}, size, draw}
		left += max(size.X, width) + apart
		all = vg.Point{X: max(all.X, places[i].corner.X+size.X), Y: max(all.Y, row+size.Y)}
	}
	all = all.Add(vg.Point{X: apart, Y: apart})
	c := squares{vgimg.NewWith(vgimg.UseWH(all.X, all.Y), vgimg.UseDPI(2*int(vg.Inch)))}
	for _, p := range places {
		corner := vg.Point{X: p.corner.X, Y: all.Y - p.corner.Y - p.size.Y}
		if err := p.draw(vgdraw.Canvas{Canvas: c, Rectangle: vg.Rectangle{Min: corner, Max: corner.Add(p.size)}}); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: c.Canvas}.WriteTo(&b)
	return b.Bytes(), err
}

// squares draws images with pixels that are squares, whatever their size.
type squares struct{ *vgimg.Canvas }

func (c squares) DrawImage(r vg.Rectangle, img image.Image) {
	dots := func(l vg.Length) int { return int(math.Round(l.Dots(c.DPI()))) }
	bottom := c.Image().Bounds().Dy()
	draw.NearestNeighbor.Scale(c.Image(), image.Rect(dots(r.Min.X), bottom-dots(r.Max.Y), dots(r.Max.X), bottom-dots(r.Min.Y)), img, img.Bounds(), draw.Src, nil)
}

// drawings are panels as SVG for a page. One that is alone is drawn twice, for wide and for
// narrow windows: the style of the page shows one of them.
func drawings(panels []Panel) (list []template.HTML, err error) {
	add := func(p Panel, width vg.Length, attributes string) {
		svg, failed := drawSVG(p, width, attributes)
		list, err = append(list, template.HTML(svg)), errors.Join(err, failed)
	}
	n, width := columns(panels)
	for _, p := range panels {
		if _, ok := p.(Pictures); ok {
			size, _ := p.layout(width)
			add(p, width, fmt.Sprintf(`style="max-width: %.5gpx"`, size.X))
		} else if n == 1 {
			add(p, alone, `class="wide"`)
			add(p, paired, `class="narrow"`)
		} else {
			add(p, paired, "")
		}
	}
	return list, err
}

// drawSVG draws a panel as SVG: an element whose colours are the theme's variables.
func drawSVG(p Panel, width vg.Length, attributes string) (string, error) {
	size, draw := p.layout(width)
	c := vgsvg.New(size.X, size.Y)
	if err := draw(vgdraw.New(c)); err != nil {
		return "", err
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	_, elements, _ := strings.Cut(b.String(), "<g ")
	elements = svgText.ReplaceAllStringFunc(themed.Replace("<g "+elements), fitText)
	elements = strings.NewReplacer("data:image/jpg", "data:image/png", "xlink:href", `preserveAspectRatio="none" href`).Replace(elements)
	return fmt.Sprintf(`<svg viewBox="0 0 %.5g %.5g" %s role="img" aria-label="%s">%s`, size.X, size.Y, attributes, html.EscapeString(p.describe()), elements), nil
}

// svgText is a text as vgsvg writes it: place, weight, size and colour, characters.
var svgText = regexp.MustCompile(`(<text [^>]*?)\s+style="font-family:[^;]*;font-variant:[^;]*;font-weight:(\w+);font-style:\w+;font-size:([\d.]+)px;?([^"]*)">([^<]*)</text>`)

// fitText leaves the font of a text to the page, and gives it the width that it has in
// the font that it was laid out for.
func fitText(element string) string {
	m := svgText.FindStringSubmatch(element)
	weight, attribute := xfont.WeightNormal, ""
	if m[2] == "bold" {
		weight, attribute = xfont.WeightBold, ` font-weight="bold"`
	}
	size, err := strconv.ParseFloat(m[3], 64)
	if err != nil {
		return element
	}
	face := font.DefaultCache.Lookup(sans(size, weight), font.Length(size))
	width := face.Width(html.UnescapeString(m[5]))
	return fmt.Sprintf(`%s font-size="%s"%s textLength="%.5g" lengthAdjust="spacingAndGlyphs" style="%s">%s</text>`, m[1], m[3], attribute, width, m[4], m[5])
}

// A key tells in a legend what a mark stands for.
type key struct {
	name string
	mark []plot.Thumbnailer
}

// The sizes of texts, in pixels.
const (
	titleSize = 16
	labelSize = 14
	tickSize  = 13
)

// head draws a title and under it a legend, in lines of the canvas's width, and returns
// what is left of the canvas. Keys without a name are left out.
func head(c vgdraw.Canvas, title string, keys []key) vgdraw.Canvas {
	const icon, gap, line = 28, 18, 20
	if title != "" {
		sty := style(titleSize, Ink)
		sty.Font.Weight = xfont.WeightBold
		for sty.Width(title) > c.Max.X-c.Min.X && sty.Font.Size > 8 {
			sty.Font.Size -= .5
		}
		c.FillText(sty, vg.Point{X: c.Min.X, Y: c.Max.Y - 10}, title)
		c.Max.Y -= 28
	}
	sty, x := style(labelSize, Ink), c.Min.X
	for _, k := range keys {
		if k.name == "" {
			continue
		}
		wide := icon + 6 + sty.Width(k.name)
		if x > c.Min.X && x+wide > c.Max.X {
			x = c.Min.X
			c.Max.Y -= line
		}
		box := vgdraw.Canvas{Canvas: c, Rectangle: vg.Rectangle{Min: vg.Point{X: x, Y: c.Max.Y - 14}, Max: vg.Point{X: x + icon, Y: c.Max.Y - 2}}}
		for _, m := range k.mark {
			m.Thumbnail(&box)
		}
		c.FillText(sty, vg.Point{X: x + icon + 6, Y: c.Max.Y - 8}, k.name)
		x += wide + gap
	}
	if x > c.Min.X {
		c.Max.Y -= line + 8
	}
	return c
}

// newPlot is a plot with axes in the style of the figures.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color, a.Width, a.Tick.Width, a.Tick.Length, a.Padding = Muted, Muted, 1, 1, 5, 5
		a.Tick.Label.Font, a.Tick.Label.Color, a.Tick.Label.Handler = sans(tickSize, xfont.WeightNormal), Muted, handler
	}
	return p
}

// drawPlot draws a plot and names its axes: y above its end, x below its middle. It returns
// the area of the data. (The library leaves room for its own labels in the wrong place where
// an axis is logarithmic.)
func drawPlot(c vgdraw.Canvas, p *plot.Plot, x, y string) vgdraw.Canvas {
	const line = 20
	sty := style(labelSize, Muted)
	if y != "" {
		c.FillText(sty, vg.Point{X: c.Min.X, Y: c.Max.Y - 8}, strings.TrimSpace(y))
		c.Max.Y -= line
	}
	inner := c
	if x != "" {
		inner = vgdraw.Crop(c, 0, 0, line, 0)
	}
	p.Draw(inner)
	area := p.DataCanvas(inner)
	sty.XAlign = text.XCenter
	c.FillText(sty, vg.Point{X: area.Center().X, Y: c.Min.Y + 8}, x)
	return area
}

// none draws a panel that has nothing to show.
func none(c vgdraw.Canvas, title string) error {
	sty := style(labelSize, Muted)
	sty.XAlign = text.XCenter
	c = head(c, title, nil)
	c.FillText(sty, c.Center(), notRecorded)
	return nil
}

const notRecorded = "not recorded yet"
