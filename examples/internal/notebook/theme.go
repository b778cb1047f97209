package notebook

import (
	"fmt"
	"image/color"
	"math"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/text"
)

// The colours of the figures, as a PNG has them. In a page they are variables of its
// style, which have other values in dark mode.
var (
	Paper = rgb(0xffffff)
	Ink   = rgb(0x1f242b)
	Muted = rgb(0x5c6570)
	Rule  = rgb(0xdfe3e8)
	Blue  = rgb(0x1f6fb4)
	Amber = rgb(0xd97a06)
	Red   = rgb(0xc62b2b)
	Green = rgb(0x2e8b57)
)

var theme = []struct {
	name        string
	light, dark color.RGBA
}{
	{"paper", Paper, rgb(0x14181d)}, {"ink", Ink, rgb(0xe4e7eb)}, {"muted", Muted, rgb(0xa3adb8)}, {"rule", Rule, rgb(0x39424d)},
	{"blue", Blue, rgb(0x6cb2f0)}, {"amber", Amber, rgb(0xf0a83c)}, {"red", Red, rgb(0xf07a7a)}, {"green", Green, rgb(0x63c08d)},
	{"code", rgb(0xf5f7f9), rgb(0x1d232a)}, {"note", rgb(0xfff6e0), rgb(0x2e2710)}, // the grounds of code and notes
}

// The colours of a text on a colour that is the same in light and in dark mode.
var onLight, onDark = rgb(0x16191d), rgb(0xfdfdfd)

func rgb(hex uint32) color.RGBA {
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 0xff}
}

// hex is a colour as CSS and SVG write it.
func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// themed puts the variables into the place of the theme's colours.
var themed = func() *strings.Replacer {
	var pairs []string
	for _, c := range theme {
		pairs = append(pairs, hex(c.light), "var(--"+c.name+")")
	}
	return strings.NewReplacer(pairs...)
}()

// viridis is the colour map of that name, by five of its colours.
func viridis() palette.ColorMap {
	m, err := moreland.NewLuminance([]color.Color{rgb(0x440154), rgb(0x3b528b), rgb(0x21918c), rgb(0x5ec962), rgb(0xfde725)})
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
		return Paper
	}
	return spectrum[int(min(max(t, 0), 1)*float64(len(spectrum)-1)+.5)]
}

// Diverging is a colour for t from -1, red, by way of white to 1, blue.
func Diverging(t float64) color.RGBA {
	end := Blue
	if t < 0 {
		end = Red
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
