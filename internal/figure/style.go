package figure

import (
	"image/color"
	"math"

	"github.com/stheno-ml/stheno/internal/theme"
	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/text"
)

// The colours of a text on a background that is the same in light and in dark mode.
var onLight, onDark = theme.RGB(0x16191d), theme.RGB(0xfdfdfd)

// viridis is the colour map of that name, by five of its colours.
func viridis() palette.ColorMap {
	m, err := moreland.NewLuminance([]color.Color{theme.RGB(0x440154), theme.RGB(0x3b528b), theme.RGB(0x21918c), theme.RGB(0x5ec962), theme.RGB(0xfde725)})
	if err != nil {
		return moreland.Kindlmann()
	}
	return m
}

var spectrum = func() (list [200]color.RGBA) {
	m := viridis()
	m.SetMax(1)
	for i, c := range m.Palette(len(list)).Colors() {
		list[i] = color.RGBAModel.Convert(c).(color.RGBA)
	}
	return list
}()

// Viridis is a colour for t from 0 to 1, from a dark violet to a bright yellow, one of 200.
func Viridis(t float64) color.RGBA {
	if t != t {
		return theme.Paper
	}
	return spectrum[int(min(max(t, 0), 1)*float64(len(spectrum)-1)+.5)]
}

// Diverging is a colour for t from -1, red, by way of white to 1, blue.
func Diverging(t float64) color.RGBA {
	end := theme.Blue
	if t < 0 {
		end = theme.Red
	}
	part := func(c uint8) uint8 { return uint8(255.5 - min(math.Abs(t), 1)*float64(255-c)) }
	return color.RGBA{part(end.R), part(end.G), part(end.B), 0xff}
}

// Grey is a colour for t from 0, white, to 1, black.
func Grey(t float64) color.RGBA {
	g := uint8(255.5 - 255*min(max(t, 0), 1))
	return color.RGBA{g, g, g, 0xff}
}

// sans is the font of the figures. It comes with the library, so that a PNG is the same
// everywhere. Arial and Helvetica have letters of the same widths.
func sans(size float64, weight xfont.Weight) font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans", Weight: weight}, font.Length(size))
}

// The sizes of texts, in pixels.
const (
	titleSize = 16
	labelSize = 14
	tickSize  = 13
)

var handler = raising{text.Plain{Fonts: font.DefaultCache}}

// style is a text of a size and colour that begins at its place, the middle of its capitals
// at the place's height.
func style(size float64, c color.Color) text.Style {
	return text.Style{Color: c, Font: sans(size, xfont.WeightNormal), YAlign: -.41, Handler: handler}
}
