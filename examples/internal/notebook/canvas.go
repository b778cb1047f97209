// Package notebook draws the figures of the examples: lines, text, images and
// charts into a PNG, with nothing but the standard library.
package notebook

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
)

// The colours of the figures.
var (
	Paper = color.RGBA{0xff, 0xff, 0xff, 0xff}
	Ink   = color.RGBA{0x1f, 0x24, 0x2b, 0xff}
	Muted = color.RGBA{0x6b, 0x74, 0x80, 0xff}
	Rule  = color.RGBA{0xe3, 0xe6, 0xea, 0xff}
	Blue  = color.RGBA{0x1f, 0x6f, 0xb4, 0xff}
	Amber = color.RGBA{0xd9, 0x7a, 0x06, 0xff}
	Red   = color.RGBA{0xc6, 0x2b, 0x2b, 0xff}
	Green = color.RGBA{0x2e, 0x8b, 0x57, 0xff}
)

// Canvas is a white picture to draw on. Coordinates are in pixels from the top
// left corner; everything is anti-aliased.
type Canvas struct {
	img      *image.RGBA
	text     string // what a terminal shows
	pictures string // those of one row, not yet in text
}

// NewCanvas is a white canvas of the given size in pixels.
func NewCanvas(width, height int) *Canvas {
	c := &Canvas{img: image.NewRGBA(image.Rect(0, 0, width, height))}
	for i := range c.img.Pix {
		c.img.Pix[i] = 0xff
	}
	return c
}

// PNG is the canvas as a file, with a palette if it has few colours.
func (c *Canvas) PNG() ([]byte, error) {
	var b bytes.Buffer
	err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, c.compact())
	return b.Bytes(), err
}

// compact is the picture with a byte for each pixel, if that is enough.
func (c *Canvas) compact() image.Image {
	p := image.NewPaletted(c.img.Rect, nil)
	index := map[color.RGBA]uint8{}
	for i := range p.Pix {
		s := c.img.Pix[4*i:]
		col := color.RGBA{s[0], s[1], s[2], s[3]}
		k, ok := index[col]
		if !ok {
			if len(index) == 256 {
				return c.img
			}
			k = uint8(len(index))
			index[col] = k
			p.Palette = append(p.Palette, col)
		}
		p.Pix[i] = k
	}
	return p
}

// Save writes the canvas as a PNG; it makes the folder if need be.
func (c *Canvas) Save(path string) error {
	picture, err := c.PNG()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, picture, 0o644)
}

// blend lays a colour over a pixel with the given coverage from 0 to 1.
func (c *Canvas) blend(x, y int, col color.RGBA, coverage float64) {
	if coverage <= 0 || !(image.Point{X: x, Y: y}).In(c.img.Rect) {
		return
	}
	coverage = min(coverage, 1)
	p := c.img.Pix[c.img.PixOffset(x, y):]
	for i, v := range [3]uint8{col.R, col.G, col.B} {
		p[i] = uint8(math.Round(float64(p[i])*(1-coverage) + float64(v)*coverage))
	}
}

// Rect fills a rectangle with whole-pixel edges.
func (c *Canvas) Rect(x, y, width, height int, col color.RGBA) {
	for j := y; j < y+height; j++ {
		for i := x; i < x+width; i++ {
			c.blend(i, j, col, 1)
		}
	}
}

// Point is a position in pixels.
type Point struct{ X, Y float64 }

// Line draws a polyline with round caps and joints. A pixel's coverage follows
// from its distance to the nearest segment, so joints are not drawn twice.
func (c *Canvas) Line(points []Point, width float64, col color.RGBA) {
	if len(points) == 0 {
		return
	}
	if len(points) == 1 {
		points = append(points, points[0])
	}
	lo, hi := points[0], points[0]
	for _, p := range points {
		lo = Point{min(lo.X, p.X), min(lo.Y, p.Y)}
		hi = Point{max(hi.X, p.X), max(hi.Y, p.Y)}
	}
	r := width / 2
	x0, y0 := int(lo.X-r)-2, int(lo.Y-r)-2
	w, h := int(hi.X+r)+3-x0, int(hi.Y+r)+3-y0
	coverage := make([]float64, w*h)
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		for y := int(min(a.Y, b.Y)-r) - 1; y <= int(max(a.Y, b.Y)+r)+1; y++ {
			for x := int(min(a.X, b.X)-r) - 1; x <= int(max(a.X, b.X)+r)+1; x++ {
				d := distance(Point{float64(x) + .5, float64(y) + .5}, a, b)
				k := (y-y0)*w + x - x0
				coverage[k] = max(coverage[k], r+.5-d)
			}
		}
	}
	for k, v := range coverage {
		c.blend(x0+k%w, y0+k/w, col, v)
	}
}

// distance from a point to the segment from a to b.
func distance(p, a, b Point) float64 {
	dx, dy := b.X-a.X, b.Y-a.Y
	t := 0.0
	if l := dx*dx + dy*dy; l > 0 {
		t = min(max(((p.X-a.X)*dx+(p.Y-a.Y)*dy)/l, 0), 1)
	}
	return math.Hypot(p.X-a.X-t*dx, p.Y-a.Y-t*dy)
}

// Gray draws an image of the given row width whose values run from 0 (white)
// to 1 (black), each pixel as a square of the given side.
func (c *Canvas) Gray(x, y, side, width int, values []float32) {
	for i, v := range values {
		g := uint8(255 - 255*min(max(v, 0), 1))
		c.Rect(x+i%width*side, y+i/width*side, side, side, color.RGBA{g, g, g, 0xff})
	}
}

// Align says which point of a text its position is.
type Align float64

// The alignments of a text.
const (
	Left   Align = 0
	Centre Align = 0.5
	Right  Align = 1
)

// Text writes one line with its baseline at y. The size is the height of the
// capitals in pixels.
func (c *Canvas) Text(x, y, size float64, align Align, col color.RGBA, text string) {
	unit := size / capHeight
	x -= TextWidth(text, size) * float64(align)
	for _, r := range text {
		g := glyphOf(r)
		for _, stroke := range g.strokes {
			points := make([]Point, len(stroke))
			for i, p := range stroke {
				points[i] = Point{x + p.X*unit, y - p.Y*unit}
			}
			c.Line(points, max(size*0.125, 1.2), col)
		}
		x += (g.width + spacing) * unit
	}
}

// TextWidth is the width of a text in pixels.
func TextWidth(text string, size float64) float64 {
	w := 0.0
	for _, r := range text {
		w += glyphOf(r).width + spacing
	}
	return max(w-spacing, 0) * size / capHeight
}
