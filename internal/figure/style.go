package figure

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

// The colours of pages and figures in light mode, which are those of a PNG too. A page has
// them as variables of its style sheet, with other values in dark mode.
var (
	Paper = RGB(0xffffff)
	Ink   = RGB(0x1f242b)
	Muted = RGB(0x5c6570)
	Rule  = RGB(0xdfe3e8)
	Blue  = RGB(0x1f6fb4)
	Amber = RGB(0xd97a06)
	Red   = RGB(0xc62b2b)
	Green = RGB(0x2e8b57)
)

var variables = []struct {
	name        string
	light, dark color.RGBA
}{
	{"paper", Paper, RGB(0x14181d)}, {"ink", Ink, RGB(0xe4e7eb)}, {"muted", Muted, RGB(0xa3adb8)}, {"rule", Rule, RGB(0x39424d)},
	{"blue", Blue, RGB(0x6cb2f0)}, {"amber", Amber, RGB(0xf0a83c)}, {"red", Red, RGB(0xf07a7a)}, {"green", Green, RGB(0x63c08d)},
	{"code", RGB(0xf5f7f9), RGB(0x1d232a)}, {"note", RGB(0xfff6e0), RGB(0x2e2710)}, // the backgrounds of code and notes
}

// RGB returns a colour by its number, such as 0x1f6fb4.
func RGB(hex uint32) color.RGBA {
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 0xff}
}

// hex returns a colour as CSS and SVG write it.
func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// themed replaces the colours, as [hex] writes them, by the variables of the style sheet.
var themed = func() *strings.Replacer {
	var pairs []string
	for _, c := range variables {
		pairs = append(pairs, hex(c.light), "var(--"+c.name+")")
	}
	return strings.NewReplacer(pairs...)
}()

// The colours of a text on a background that is the same in light and in dark mode.
var onLight, onDark = RGB(0x16191d), RGB(0xfdfdfd)

// viridis is the colour map of that name, by five of its colours.
func viridis() palette.ColorMap {
	m, err := moreland.NewLuminance([]color.Color{RGB(0x440154), RGB(0x3b528b), RGB(0x21918c), RGB(0x5ec962), RGB(0xfde725)})
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
