// Package figure draws charts, bars, heat maps and pictures in one style, for pages, terminals and
// files. It has the colours of that style, and the style sheet of pages.
package figure

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
	// size is that of a drawing for a width, in pixels. Pictures have a width of their own.
	size(width vg.Length) vg.Point
	// draw fills a canvas, if there are data.
	draw(c vgdraw.Canvas)
	// Data are the panel's numbers, for a terminal and for those who do not see it.
	Data() Table
}

// The widths of a panel that is alone in its row and of one of two, and the room around them.
const (
	alone  = 760
	paired = 440
	apart  = 24
)

// columns returns how many panels stand side by side, and the width of each. A panel that is
// too wide for two stands alone, as all others then do.
func columns(panels []Panel) (n int, width vg.Length) {
	for _, p := range panels {
		if p.size(paired).X > paired || len(panels) == 1 {
			return 1, alone
		}
	}
	return 2, paired
}

// paint draws a panel, or a line of text if there is nothing to draw.
func paint(p Panel, c vgdraw.Canvas) {
	if t := p.Data(); len(t.Rows) == 0 {
		c = head(c, strings.TrimSuffix(t.Caption, ", "))
		c.FillText(style(labelSize, Muted), c.Center().Sub(vg.Point{X: 60}), "not recorded yet")
		return
	}
	p.draw(c)
}

// Save writes panels as a picture for light backgrounds, of SVG or PNG by the end of the name; it makes the folder if need be.
func Save(path string, panels ...Panel) error {
	write := drawPNG
	switch filepath.Ext(path) {
	case ".png":
	case ".svg":
		write = drawFile
	default:
		return fmt.Errorf("figure: got the file name %s, want a name that ends in .svg or .png", path)
	}
	picture, err := write(panels)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, picture, 0o644)
}

// tile draws panels in tiles of one width, in rows as high as the highest panel in them, on a canvas
// that blank makes.
func tile(panels []Panel, blank func(width, height vg.Length) vg.CanvasSizer) {
	n, width := columns(panels)
	var widest vg.Length
	heights, h := make([]vg.Length, (len(panels)+n-1)/n), vg.Length(apart)
	for i, p := range panels {
		size := p.size(width)
		widest, heights[i/n] = max(widest, size.X), max(heights[i/n], size.Y)
	}
	for _, height := range heights {
		h += height + apart
	}
	w := vg.Length(n)*(widest+apart) + apart
	c := vgdraw.NewCanvas(blank(w, h), w, h)
	top := h - apart
	for i, p := range panels {
		if i > 0 && i%n == 0 {
			top -= heights[i/n-1] + apart
		}
		left := vg.Length(i%n)*(widest+apart) + apart
		paint(p, vgdraw.Crop(c, left, left+widest-w, top-heights[i/n], top-h))
	}
}

// drawFile draws panels on white as a file of SVG.
func drawFile(panels []Panel) ([]byte, error) {
	var c *vgsvg.Canvas
	tile(panels, func(w, h vg.Length) vg.CanvasSizer {
		c = vgsvg.New(w, h)
		c.SetColor(Paper)
		c.Fill(vg.Rectangle{Max: vg.Point{X: w, Y: h}}.Path())
		return c
	})
	var b bytes.Buffer
	_, err := c.WriteTo(&b)
	return b.Bytes(), err
}

// drawPNG draws panels on white as a PNG, with two dots for a pixel each way.
func drawPNG(panels []Panel) ([]byte, error) {
	var c squares
	tile(panels, func(w, h vg.Length) vg.CanvasSizer {
		c = squares{vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(2*int(vg.Inch)))}
		return c
	})
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

// Drawings returns panels as SVG for a page, and whether they stand one below the other rather
// than in pairs. A panel that stands alone is drawn twice, for wide and for narrow windows: the
// style sheet of the page shows one of them.
func Drawings(panels []Panel) (list []template.HTML, single bool, err error) {
	add := func(p Panel, width vg.Length, attributes string) {
		svg, failed := drawSVG(p, width, attributes)
		list, err = append(list, template.HTML(svg)), errors.Join(err, failed)
	}
	n, width := columns(panels)
	for _, p := range panels {
		if _, ok := p.(Pictures); ok {
			add(p, width, fmt.Sprintf(`style="max-width: %.5gpx"`, p.size(width).X))
		} else if n == 1 {
			add(p, alone, `class="wide"`)
			add(p, paired, `class="narrow"`)
		} else {
			add(p, paired, "")
		}
	}
	return list, n == 1, err
}

// drawSVG draws a panel as SVG: an element whose colours are variables of the style sheet.
func drawSVG(p Panel, width vg.Length, attributes string) (string, error) {
	size := p.size(width)
	c := vgsvg.New(size.X, size.Y)
	paint(p, vgdraw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	_, elements, _ := strings.Cut(b.String(), "<g ")
	elements = svgText.ReplaceAllStringFunc(themed.Replace("<g "+elements), fitText)
	elements = strings.NewReplacer("data:image/jpg", "data:image/png", "xlink:href", `preserveAspectRatio="none" href`).Replace(elements)
	return fmt.Sprintf(`<svg viewBox="0 0 %.5g %.5g" %s role="img" aria-label="%s">%s`, size.X, size.Y, attributes, html.EscapeString(p.Data().words()), elements), nil
}

// svgText is a text as vgsvg writes it: place, weight, size and colour, characters.
var svgText = regexp.MustCompile(`(<text [^>]*?)\s+style="font-family:[^;]*;font-variant:[^;]*;font-weight:(\w+);font-style:\w+;font-size:([\d.]+)px;?([^"]*)">([^<]*)</text>`)

// fitText leaves the font of a text to the page, and sets it to the width that it has in
// the font that it was laid out for.
func fitText(element string) string {
	m := svgText.FindStringSubmatch(element)
	weight := xfont.WeightNormal
	if m[2] == "bold" {
		weight = xfont.WeightBold
	}
	size, err := strconv.ParseFloat(m[3], 64)
	if err != nil {
		return element
	}
	face := font.DefaultCache.Lookup(sans(size, weight), font.Length(size))
	return fmt.Sprintf(`%s font-size="%s" font-weight="%s" textLength="%.5g" lengthAdjust="spacingAndGlyphs" style="%s">%s</text>`,
		m[1], m[3], m[2], face.Width(html.UnescapeString(m[5])), m[4], m[5])
}

// head draws a title and under it keys, in lines of the canvas's width, and returns the rest
// of the canvas.
func head(c vgdraw.Canvas, title string, keys ...plot.Legend) vgdraw.Canvas {
	const gap, line = 20, 20
	if title = Typeset(title); title != "" {
		sty := style(titleSize, Ink)
		sty.Font.Weight = xfont.WeightBold
		sty.Font.Size *= min(1, (c.Max.X-c.Min.X)/sty.Width(title))
		c.FillText(sty, vg.Point{X: c.Min.X, Y: c.Max.Y - 10}, title)
		c.Max.Y -= 28
	}
	x := vg.Length(0)
	for _, l := range keys {
		width := l.Rectangle(c).Size().X
		if x > 0 && c.Min.X+x+width > c.Max.X {
			x, c.Max.Y = 0, c.Max.Y-line
		}
		l.XOffs = x
		l.Draw(c)
		x += width + gap
	}
	if len(keys) > 0 {
		c.Max.Y -= line + 8
	}
	return c
}

// key is the entry of a legend for marks.
func key(name string, marks ...plot.Thumbnailer) plot.Legend {
	l := plot.NewLegend()
	l.Top, l.Left, l.ThumbnailWidth, l.TextStyle = true, true, 28, style(labelSize, Ink)
	l.TextStyle.YAlign = text.YBottom
	l.Add(Typeset(name), marks...)
	return l
}

// newPlot is a plot with axes in the style of the figures.
func newPlot(logX, logY bool) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for i, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color, a.Width, a.Tick.Width, a.Tick.Length, a.Padding = Muted, Muted, 1, 1, 5, 5
		a.Tick.Label.Font, a.Tick.Label.Color, a.Tick.Label.Handler = sans(tickSize, xfont.WeightNormal), Muted, handler
		log := [2]bool{logX, logY}[i]
		if a.Tick.Marker = (ticks{log}); log {
			a.Scale = plot.LogScale{}
		}
	}
	return p
}

// drawPlot draws a plot and names its axes: y above its end, x below its middle. It returns
// the area of the data. (The library leaves room for its own labels in the wrong place where
// an axis is logarithmic.)
func drawPlot(c vgdraw.Canvas, p *plot.Plot, x, y string) vgdraw.Canvas {
	for _, a := range []*plot.Axis{&p.X, &p.Y} { // the library goes below zero for a single value
		if _, log := a.Scale.(plot.LogScale); log && a.Min == a.Max {
			a.Min, a.Max = a.Min/2, a.Max*2
		}
	}
	sty := style(labelSize, Muted)
	c.FillText(sty, vg.Point{X: c.Min.X + 1, Y: c.Max.Y - 8}, y) // a browser's box of a text begins before its first letter
	inner := vgdraw.Crop(c, 0, 0, 20, -20)
	p.Draw(inner)
	area := p.DataCanvas(inner)
	sty.XAlign = text.XCenter
	c.FillText(sty, vg.Point{X: area.Center().X, Y: c.Min.Y + 8}, x)
	return area
}
