package figure

import (
	"fmt"
	"image"
	"image/color"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Pictures shows images side by side, in rows from the left.
type Pictures struct {
	Title   string
	Zoom    int                        // pixels of a value's side; 0 is 1
	Columns int                        // images in a row; 0 is as many as there is room for
	Colour  func(v float64) color.RGBA // of a value; nil is [Grey]
	Images  []Image
}

// Image is values in rows of a width, with a text below if there is one.
type Image struct {
	Width  int
	Values []float32
	Text   string
	Wrong  bool   // the text is to be seen in red
	Mark   string // in red on the upper left corner, for wrong results that must not be taken for right
}

// The room between pictures, and for a text.
const between, caption = 10, 20

// pixels is the size of a picture, without its text.
func (p Pictures) pixels(m Image) vg.Point {
	zoom := vg.Length(max(p.Zoom, 1))
	return vg.Point{X: zoom * vg.Length(m.Width), Y: zoom * vg.Length(len(m.Values)/max(m.Width, 1))}
}

// corners are the upper left ones of the images, y downwards; all is the size of all.
func (p Pictures) corners(width vg.Length) (corners []vg.Point, all vg.Point) {
	var at vg.Point
	if p.Title != "" {
		at.Y, all = 28, vg.Point{X: 1.1 * style(titleSize, Ink).Width(p.Title), Y: 28}
	}
	for i, m := range p.Images {
		size := p.pixels(m)
		if m.Text != "" {
			size.Y += caption
		}
		full := p.Columns == 0 && at.X+size.X > width || p.Columns > 0 && i%p.Columns == 0
		if at.X > 0 && full {
			at = vg.Point{Y: all.Y + between}
		}
		corners = append(corners, at)
		all = vg.Point{X: max(all.X, at.X+size.X), Y: max(all.Y, at.Y+size.Y)}
		at.X += size.X + between
	}
	return corners, all
}

func (p Pictures) size(width vg.Length) vg.Point {
	_, all := p.corners(width)
	return all
}

func (p Pictures) draw(c draw.Canvas) {
	head(c, p.Title)
	corners, _ := p.corners(c.Max.X - c.Min.X)
	for i, m := range p.Images {
		p.image(c, vg.Point{X: c.Min.X + corners[i].X, Y: c.Max.Y - corners[i].Y}, m)
	}
}

// image draws an image with its texts below a point.
func (p Pictures) image(c draw.Canvas, corner vg.Point, m Image) {
	size := p.pixels(m)
	frame := vg.Rectangle{Min: vg.Point{X: corner.X, Y: corner.Y - size.Y}, Max: vg.Point{X: corner.X + size.X, Y: corner.Y}}
	c.SetLineStyle(draw.LineStyle{Color: Rule, Width: 2}) // half of it is covered
	c.Stroke(frame.Path())
	c.DrawImage(frame, p.coloured(m))
	sty := style(tickSize, Ink)
	if sty.XAlign = text.XCenter; m.Wrong {
		sty.Color = Red
	}
	c.FillText(sty, vg.Point{X: corner.X + size.X/2, Y: frame.Min.Y - caption/2}, m.Text)
	if m.Mark != "" {
		sty := style(20, Red)
		box := vg.Rectangle{Min: corner.Sub(vg.Point{Y: 38}), Max: corner.Add(vg.Point{X: sty.Width(m.Mark) + 24})}
		c.SetColor(Paper)
		c.Fill(box.Path())
		c.FillText(sty, vg.Point{X: box.Min.X + 12, Y: box.Min.Y + 19}, m.Mark)
	}
}

// coloured is the picture, with a byte for each pixel if 256 colours are enough.
func (p Pictures) coloured(m Image) image.Image {
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

// Data are the texts of the images, or their sizes.
func (p Pictures) Data() Table {
	t := Table{Caption: p.Title}
	for _, m := range p.Images {
		row := []string{m.Text + m.Mark}
		if row[0] == "" {
			row[0] = fmt.Sprintf("%d x %d", m.Width, len(m.Values)/max(m.Width, 1))
		}
		if n := len(t.Rows); n == 0 || t.Rows[n-1][0] != row[0] {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}
