package notebook

import (
	"image"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Pictures shows images side by side, in rows from the left.
type Pictures struct {
	Title   string
	Zoom    int                        // pixels of a value's side; 0 is 1
	Colour  func(v float64) color.RGBA // of a value; nil is grey, from 0, white, to 1, black
	Columns int                        // images in a row; 0 is as many as there is room for
	Images  []Image
}

// Image is values in rows of a width, with a text below if there is one.
type Image struct {
	Width  int
	Values []float32
	Text   string
	Wrong  bool   // the text is to be seen in red
	Mark   string // in red on the upper left corner, for what must not be taken for right
}

// Grey is a colour for t from 0, white, to 1, black.
func Grey(t float64) color.RGBA {
	g := uint8(math.Round(255 * (1 - min(max(t, 0), 1))))
	return color.RGBA{g, g, g, 0xff}
}

// Diverging is a colour for t from -1, red, by way of white to 1, blue.
func Diverging(t float64) color.RGBA {
	end := Blue
	if t < 0 {
		end = Red
	}
	part := func(c uint8) uint8 { return uint8(math.Round(255 - min(math.Abs(t), 1)*float64(255-c))) }
	return color.RGBA{part(end.R), part(end.G), part(end.B), 0xff}
}

// Viridis is a colour for t from 0 to 1, from a dark violet to a bright yellow, one of 200.
func Viridis(t float64) color.RGBA {
	if !(t >= 0) {
		return spectrum[0]
	}
	return spectrum[int(math.Round(min(t, 1)*float64(len(spectrum)-1)))]
}

// viridis is the colour map of that name, by five of its colours.
func viridis() palette.ColorMap {
	m, err := moreland.NewLuminance([]color.Color{rgb(0x440154), rgb(0x3b528b), rgb(0x21918c), rgb(0x5ec962), rgb(0xfde725)})
	if err != nil {
		return moreland.Kindlmann()
	}
	m.SetMax(1)
	return m
}

var spectrum = func() (list [200]color.RGBA) {
	for i, c := range viridis().Palette(len(list)).Colors() {
		list[i] = color.RGBAModel.Convert(c).(color.RGBA)
	}
	return list
}()

// The room between pictures, and for a text.
const between, caption = 10, 20

// size is that of a picture in pixels, its text included.
func (p Pictures) size(m Image) vg.Point {
	zoom := vg.Length(max(p.Zoom, 1))
	s := vg.Point{X: zoom * vg.Length(m.Width), Y: zoom * vg.Length(len(m.Values)/max(m.Width, 1))}
	if m.Text != "" {
		s.Y += caption
	}
	return s
}

func (p Pictures) layout(width vg.Length) (vg.Point, func(draw.Canvas) error) {
	corners := make([]vg.Point, len(p.Images)) // upper left ones, y downwards
	var at vg.Point
	if p.Title != "" {
		at.Y = 28
	}
	all := vg.Point{X: style(titleSize, Ink).Width(p.Title) * 1.1, Y: at.Y}
	for i, m := range p.Images {
		size := p.size(m)
		full := p.Columns == 0 && at.X+size.X > width || p.Columns > 0 && i%p.Columns == 0
		if at.X > 0 && full {
			at = vg.Point{Y: all.Y + between}
		}
		corners[i] = at
		all = vg.Point{X: max(all.X, at.X+size.X), Y: max(all.Y, at.Y+size.Y)}
		at.X += size.X + between
	}
	return all, func(c draw.Canvas) error {
		head(c, typeset(p.Title), nil)
		for i, m := range p.Images {
			p.draw(c, vg.Point{X: c.Min.X + corners[i].X, Y: c.Max.Y - corners[i].Y}, m)
		}
		return nil
	}
}

// draw draws an image with its text below a point.
func (p Pictures) draw(c draw.Canvas, corner vg.Point, m Image) {
	size := p.size(m)
	bottom := corner.Y - size.Y
	if m.Text != "" {
		sty := style(tickSize, Ink)
		if sty.XAlign = text.XCenter; m.Wrong {
			sty.Color = Red
		}
		c.FillText(sty, vg.Point{X: corner.X + size.X/2, Y: bottom + caption/2}, m.Text)
		bottom += caption
	}
	frame := vg.Rectangle{Min: vg.Point{X: corner.X, Y: bottom}, Max: vg.Point{X: corner.X + size.X, Y: corner.Y}}
	c.SetLineStyle(draw.LineStyle{Color: Rule, Width: 2}) // half of it is covered
	c.Stroke(frame.Path())
	c.DrawImage(frame, p.image(m))
	if m.Mark != "" {
		sty := style(20, Red)
		box := vg.Rectangle{Min: corner.Sub(vg.Point{Y: 38}), Max: corner.Add(vg.Point{X: sty.Width(m.Mark) + 24})}
		c.SetColor(Paper)
		c.Fill(box.Path())
		c.FillText(sty, vg.Point{X: box.Min.X + 12, Y: box.Min.Y + 19}, m.Mark)
	}
}

// image is the picture, with a byte for each pixel if 256 colours are enough.
func (p Pictures) image(m Image) image.Image {
	of := p.Colour
	if of == nil {
		of = Grey
	}
	full := image.NewRGBA(image.Rect(0, 0, m.Width, len(m.Values)/max(m.Width, 1)))
	small, index := image.NewPaletted(full.Rect, nil), map[color.RGBA]uint8{}
	for i := range small.Pix {
		c := of(float64(m.Values[i]))
		full.SetRGBA(i%m.Width, i/m.Width, c)
		if _, ok := index[c]; !ok {
			index[c] = uint8(len(index))
			small.Palette = append(small.Palette, c)
		}
		small.Pix[i] = index[c]
	}
	if len(small.Palette) > 256 {
		return full
	}
	return small
}

func (p Pictures) describe() string {
	words := []string{p.Title}
	for _, m := range p.Images {
		words = append(words, m.Text, m.Mark)
	}
	return typeset(strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), ". "))
}
