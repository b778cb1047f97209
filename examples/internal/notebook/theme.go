package notebook

import (
	"fmt"
	"image/color"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"

	xfont "golang.org/x/image/font"
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
}

// The colours of a text on a colour that is the same in light and in dark mode.
var onLight, onDark = rgb(0x16191d), rgb(0xfdfdfd)

func rgb(hex uint32) color.RGBA {
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 0xff}
}

// hex is a colour as CSS and SVG write it.
func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// variables are the declarations of the theme's colours in CSS.
func variables(dark bool) string {
	var b strings.Builder
	for _, c := range theme {
		value := c.light
		if dark {
			value = c.dark
		}
		fmt.Fprintf(&b, "--%s: %s; ", c.name, hex(value))
	}
	return b.String()
}

// themed puts the variables into the place of the theme's colours.
var themed = func() *strings.Replacer {
	var pairs []string
	for _, c := range theme {
		pairs = append(pairs, hex(c.light), "var(--"+c.name+")")
	}
	return strings.NewReplacer(pairs...)
}()

// sans is the font of the figures: it comes with the library, so that a PNG is the same
// everywhere. Arial and Helvetica have letters of the same widths.
func sans(size float64, weight xfont.Weight) font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans", Weight: weight}, font.Length(size))
}

// middle is the alignment of a text by the middle of its capitals.
const middle text.YAlignment = -.41

var handler = raising{text.Plain{Fonts: font.DefaultCache}}

// style is a text of a size and colour that begins at its place, the middle of its capitals
// at the place's height.
func style(size float64, c color.Color) text.Style {
	return text.Style{Color: c, Font: sans(size, xfont.WeightNormal), YAlign: middle, Handler: handler}
}
