// Package theme is the look that pages and figures share: colours in light and dark mode, and
// how code is highlighted.
package theme

import (
	"fmt"
	"image/color"
	"strings"
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

// Hex returns a colour as CSS and SVG write it.
func Hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// Themed replaces the theme's colours, as [Hex] writes them, by the variables of the style sheet.
func Themed(text string) string { return themed.Replace(text) }

var themed = func() *strings.Replacer {
	var pairs []string
	for _, c := range variables {
		pairs = append(pairs, Hex(c.light), "var(--"+c.name+")")
	}
	return strings.NewReplacer(pairs...)
}()
