package notebook

import (
	"math"
	"strconv"
	"strings"
)

// The letters are pen strokes in a small path language, in units of a seventh
// of a capital's height, y upwards from the baseline:
//
//	M x y                 lift the pen and go there
//	L x y                 draw a line
//	A x y rx ry from to   draw an arc of the ellipse around (x, y), in degrees
//	                      counter-clockwise from the right
//	O x y rx ry           draw the whole ellipse
const (
	capHeight = 7.0
	spacing   = 1.7 // between two glyphs
)

// A glyph is what a letter looks like.
type glyph struct {
	width   float64
	strokes [][]Point
}

// box stands for a character that the font does not have.
var box = parseGlyph("4 M 0 0 L 4 0 L 4 7 L 0 7 L 0 0")

// glyphs holds each letter by its width and path.
var glyphs = parseFont(map[rune]string{
	' ':  "1.6",
	'0':  "4.2 O 2.1 3.5 2.1 3.5",
	'1':  "4.2 M 0.9 5.6 L 2.4 7 L 2.4 0",
	'2':  "4.2 A 2.1 5 1.95 2 165 -40 L 0.1 0 L 4.1 0",
	'3':  "4.2 A 2 5.25 1.75 1.75 150 -90 A 2 1.8 2.05 1.8 90 -150",
	'4':  "4.2 M 3.1 0 L 3.1 7 L 0 2 L 4.2 2",
	'5':  "4.2 M 3.8 7 L 0.8 7 L 0.45 3.7 A 2 2.2 2.1 2.2 138 -150",
	'6':  "4.2 O 2.1 2.2 2 2.2 A 4.1 2.2 4 4.8 180 105",
	'7':  "4.2 M 0.1 7 L 4.1 7 L 1.5 0",
	'8':  "4.2 O 2.1 5.3 1.75 1.7 O 2.1 1.8 2.05 1.8",
	'9':  "4.2 O 2.1 4.8 2 2.2 A 0.1 4.8 4 4.8 0 -75",
	'.':  "0 M 0 0.1 L 0 0",
	',':  "0.5 M 0.5 0.1 L 0 -1.3",
	'\'': "0 M 0 7.2 L 0 5.6",
	':':  "0 M 0 0.1 L 0 0 M 0 4.5 L 0 4.4",
	'-':  "2.4 M 0 2.6 L 2.4 2.6",
	'+':  "4 M 0 2.9 L 4 2.9 M 2 4.9 L 2 0.9",
	'=':  "4 M 0 3.8 L 4 3.8 M 0 2 L 4 2",
	'/':  "3 M 0 -0.8 L 3 7.6",
	'(':  "1.5 A 3.3 3 3.3 5.2 125 235",
	')':  "1.5 A -1.8 3 3.3 5.2 55 -55",
	'_':  "4 M 0 -1 L 4 -1",
	'<':  "3.6 M 3.6 5 L 0 2.7 L 3.6 0.4",
	'>':  "3.6 M 0 5 L 3.6 2.7 L 0 0.4",
	'[':  "1.4 M 1.4 7.6 L 0 7.6 L 0 -1 L 1.4 -1",
	']':  "1.4 M 0 7.6 L 1.4 7.6 L 1.4 -1 L 0 -1",
	'*':  "3 M 1.5 6.8 L 1.5 3.6 M 0.1 6 L 2.9 4.4 M 0.1 4.4 L 2.9 6",
	'^':  "2.6 M 0 5.2 L 1.3 7.2 L 2.6 5.2",
	'×':  "3.2 M 0 4.3 L 3.2 1.1 M 0 1.1 L 3.2 4.3",
	'µ':  "3.4 M 0 -2.1 L 0 5 M 0 1.8 A 1.7 1.8 1.7 1.8 180 360 M 3.4 5 L 3.4 0",
	'!':  "0 M 0 0.1 L 0 0 M 0 7 L 0 2.2",
	'?':  "3.4 A 1.7 5.2 1.7 1.8 170 -60 A 2.9 2.1 1.2 1.6 130 180 M 1.7 0.1 L 1.7 0",
	'&':  "4.8 M 4.8 0 L 1 5 A 2.1 5.7 1.3 1.3 210 -30 L 0.5 2.6 A 1.9 1.7 1.9 1.75 150 370",
	';':  "0.5 M 0.5 0.1 L 0 -1.3 M 0.4 4.5 L 0.4 4.4",
	'#':  "4.4 M 1.4 7 L 0.8 0 M 3.6 7 L 3 0 M 0.2 4.8 L 4.4 4.8 M 0 2.2 L 4.2 2.2",
	'"':  "1.2 M 0 7.2 L 0 5.6 M 1.2 7.2 L 1.2 5.6",
	'%':  "6 M 1 0 L 5 7 O 1.3 5.5 1.3 1.5 O 4.7 1.5 1.3 1.5",
	'a':  "3.8 O 1.9 2.5 1.9 2.5 M 3.8 5 L 3.8 0",
	'b':  "3.8 M 0 7.3 L 0 0 O 1.9 2.5 1.9 2.5",
	'c':  "3.4 A 2 2.5 2 2.5 50 310",
	'd':  "3.8 M 3.8 7.3 L 3.8 0 O 1.9 2.5 1.9 2.5",
	'e':  "3.8 M 0 2.6 L 3.8 2.6 A 1.9 2.5 1.9 2.5 0 315",
	'f':  "2.3 M 0.9 0 L 0.9 5.9 A 2.2 5.9 1.3 1.4 180 80 M 0 5 L 2.3 5",
	'g':  "3.8 O 1.9 2.5 1.9 2.5 M 3.8 5 L 3.8 0 A 1.9 0 1.9 2.1 0 -150",
	'h':  "3.4 M 0 7.3 L 0 0 M 0 3.2 A 1.7 3.2 1.7 1.8 180 0 L 3.4 0",
	'i':  "0 M 0 5 L 0 0 M 0 7 L 0 6.9",
	'j':  "0.8 M 0.8 5 L 0.8 -0.9 A -0.2 -0.9 1 1.2 0 -90 M 0.8 7 L 0.8 6.9",
	'k':  "3.3 M 0 7.3 L 0 0 M 3.1 5 L 0 1.8 M 1.2 3 L 3.3 0",
	'l':  "0 M 0 7.3 L 0 0",
	'm':  "5.6 M 0 5 L 0 0 M 0 3.4 A 1.4 3.4 1.4 1.6 180 0 L 2.8 0 M 2.8 3.4 A 4.2 3.4 1.4 1.6 180 0 L 5.6 0",
	'n':  "3.4 M 0 5 L 0 0 M 0 3.2 A 1.7 3.2 1.7 1.8 180 0 L 3.4 0",
	'o':  "3.8 O 1.9 2.5 1.9 2.5",
	'p':  "3.8 M 0 5 L 0 -2.1 O 1.9 2.5 1.9 2.5",
	'q':  "3.8 M 3.8 5 L 3.8 -2.1 O 1.9 2.5 1.9 2.5",
	'r':  "2.1 M 0 5 L 0 0 M 0 3 A 1.8 3 1.8 2 180 80",
	's':  "3.2 A 1.6 3.75 1.4 1.25 35 270 A 1.6 1.25 1.6 1.25 90 -150",
	't':  "2.3 M 0.9 6.7 L 0.9 1.4 A 2.1 1.4 1.2 1.4 180 275 M 0 5 L 2.3 5",
	'u':  "3.4 M 0 5 L 0 1.8 A 1.7 1.8 1.7 1.8 180 360 M 3.4 5 L 3.4 0",
	'v':  "3.6 M 0 5 L 1.8 0 L 3.6 5",
	'w':  "5.4 M 0 5 L 1.35 0 L 2.7 5 L 4.05 0 L 5.4 5",
	'x':  "3.4 M 0 5 L 3.4 0 M 3.4 5 L 0 0",
	'y':  "3.6 M 0 5 L 1.85 0.1 M 3.6 5 L 1 -2.1",
	'z':  "3.4 M 0.1 5 L 3.3 5 L 0 0 L 3.4 0",
	'A':  "5 M 0 0 L 2.5 7 L 5 0 M 0.9 2.4 L 4.1 2.4",
	'B':  "4.2 M 0 3.6 L 2.2 3.6 A 2.2 1.8 2 1.8 90 -90 L 0 0 L 0 7 L 2.2 7 A 2.2 5.3 1.7 1.7 90 -90",
	'C':  "4.6 A 2.7 3.5 2.7 3.5 45 315",
	'D':  "4.8 M 0 0 L 0 7 L 1.8 7 A 1.8 3.5 3 3.5 90 -90 L 0 0",
	'E':  "3.8 M 3.8 7 L 0 7 L 0 0 L 3.8 0 M 0 3.7 L 3.3 3.7",
	'F':  "3.7 M 3.7 7 L 0 7 L 0 0 M 0 3.6 L 3.2 3.6",
	'G':  "5 A 2.7 3.5 2.7 3.5 45 345 L 5.3 3.2 L 3.2 3.2",
	'H':  "4.6 M 0 0 L 0 7 M 4.6 0 L 4.6 7 M 0 3.7 L 4.6 3.7",
	'I':  "0 M 0 0 L 0 7",
	'J':  "2.8 M 2.8 7 L 2.8 1.6 A 1.4 1.6 1.4 1.6 0 -160",
	'K':  "4.3 M 0 0 L 0 7 M 4.2 7 L 0 2.6 M 1.5 4.2 L 4.3 0",
	'L':  "3.6 M 0 7 L 0 0 L 3.6 0",
	'M':  "5.6 M 0 0 L 0 7 L 2.8 1.6 L 5.6 7 L 5.6 0",
	'N':  "4.6 M 0 0 L 0 7 L 4.6 0 L 4.6 7",
	'O':  "5.4 O 2.7 3.5 2.7 3.5",
	'P':  "4.1 M 0 0 L 0 7 L 2.1 7 A 2.1 5.1 2 1.9 90 -90 L 0 3.2",
	'Q':  "5.4 O 2.7 3.5 2.7 3.5 M 3.4 1.8 L 5.4 -0.5",
	'R':  "4.3 M 0 0 L 0 7 L 2.1 7 A 2.1 5.2 2 1.8 90 -90 L 0 3.4 M 2.1 3.4 L 4.3 0",
	'S':  "4.2 A 2.1 5.25 1.9 1.75 30 270 A 2.1 1.75 2.1 1.75 90 -150",
	'T':  "4.6 M 0 7 L 4.6 7 M 2.3 7 L 2.3 0",
	'U':  "4.6 M 0 7 L 0 2.3 A 2.3 2.3 2.3 2.3 180 360 L 4.6 7",
	'V':  "5 M 0 7 L 2.5 0 L 5 7",
	'W':  "7 M 0 7 L 1.75 0 L 3.5 7 L 5.25 0 L 7 7",
	'X':  "4.6 M 0 7 L 4.6 0 M 4.6 7 L 0 0",
	'Y':  "4.6 M 0 7 L 2.3 3.4 L 4.6 7 M 2.3 3.4 L 2.3 0",
	'Z':  "4.4 M 0.1 7 L 4.3 7 L 0 0 L 4.4 0",
})

// Strokes returns how the pen draws a letter: lines through points, in units of a
// capital's height, y downwards from the top of a capital.
func Strokes(r rune) [][]Point {
	var strokes [][]Point
	for _, stroke := range glyphOf(r).strokes {
		points := make([]Point, len(stroke))
		for i, p := range stroke {
			points[i] = Point{p.X / capHeight, 1 - p.Y/capHeight}
		}
		strokes = append(strokes, points)
	}
	return strokes
}

func glyphOf(r rune) glyph {
	if g, ok := glyphs[r]; ok {
		return g
	}
	return box
}

func parseFont(paths map[rune]string) map[rune]glyph {
	font := make(map[rune]glyph, len(paths))
	for r, path := range paths {
		font[r] = parseGlyph(path)
	}
	return font
}

// parseGlyph turns a width and a path into strokes.
func parseGlyph(path string) glyph {
	fields := strings.Fields(path)
	next := func() float64 {
		v, _ := strconv.ParseFloat(fields[0], 64) // the paths are constants, tested
		fields = fields[1:]
		return v
	}
	g := glyph{width: next()}
	draw := func(p Point) { g.strokes[len(g.strokes)-1] = append(g.strokes[len(g.strokes)-1], p) }
	arc := func(join bool, x, y, rx, ry, from, to float64) {
		if !join {
			g.strokes = append(g.strokes, nil)
		}
		steps := math.Ceil(math.Abs(to-from) / 10)
		for i := 0.0; i <= steps; i++ {
			sin, cos := math.Sincos((from + (to-from)*i/steps) * math.Pi / 180)
			draw(Point{x + rx*cos, y + ry*sin})
		}
	}
	lifted := true
	for len(fields) > 0 {
		command := fields[0]
		fields = fields[1:]
		switch command {
		case "M":
			g.strokes = append(g.strokes, []Point{{next(), next()}})
		case "L":
			draw(Point{next(), next()})
		case "A":
			arc(!lifted, next(), next(), next(), next(), next(), next())
		case "O":
			arc(false, next(), next(), next(), next(), 0, 360)
		}
		lifted = command == "O"
	}
	return g
}
