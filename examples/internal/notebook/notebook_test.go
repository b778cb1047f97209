package notebook

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Every path of the font must be well formed: the parser does not say so.
func TestFont(t *testing.T) {
	for r := rune('!'); r <= '~'; r++ {
		g, ok := glyphs[r]
		if !ok {
			continue
		}
		if len(g.strokes) == 0 {
			t.Errorf("%q has no strokes", r)
		}
		for _, s := range g.strokes {
			for _, p := range s {
				if p.X < -2.5 || p.X > g.width+0.5 || p.Y < -2.5 || p.Y > 8.5 {
					t.Errorf("%q: point %v is outside the glyph, which is %v wide", r, p, g.width)
				}
			}
		}
	}
	for _, r := range "0123456789.-%abcdefghijklmnopqrstuvwxyz" {
		if _, ok := glyphs[r]; !ok {
			t.Errorf("the font has no %q", r)
		}
	}
}

// The strokes of a digit fill its height, from the top down.
func TestStrokes(t *testing.T) {
	for r := '0'; r <= '9'; r++ {
		top, bottom := math.Inf(1), math.Inf(-1)
		for _, s := range Strokes(r) {
			for _, p := range s {
				top, bottom = min(top, p.Y), max(bottom, p.Y)
			}
		}
		if math.Abs(top) > 0.03 || math.Abs(bottom-1) > 0.03 {
			t.Errorf("%q goes from %.2f to %.2f, want 0 to 1", r, top, bottom)
		}
	}
	if one := Strokes('1')[0]; one[1].Y != 0 || one[2].Y != 1 {
		t.Errorf("1 is %v, want its pole to go down", one)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   string
	}{
		{0, 10, "0 2 4 6 8 10"},
		{0.83, 0.98, "0.85 0.9 0.95"},
		{1, 20, "5 10 15 20"},
	} {
		var got []string
		for _, v := range ticks(c.lo, c.hi, 5) {
			got = append(got, strconv.FormatFloat(v, 'g', 3, 64))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("ticks(%v, %v) = %s, want %s", c.lo, c.hi, s, c.want)
		}
	}
}

// A chart of one point, and of many, draws inside its canvas and is saved.
func TestChart(t *testing.T) {
	for _, n := range []int{1, 2, 100} {
		s := Series{Name: "loss", Colour: Blue}
		for i := range n {
			s.X, s.Y = append(s.X, float64(i)), append(s.Y, 1/float64(i+1))
		}
		c := NewCanvas(400, 300)
		Chart{Title: "Loss", XLabel: "epoch", Log: true, Series: []Series{s}}.Draw(c, 0, 0, 400, 300)
		path := filepath.Join(t.TempDir(), "folder", "chart.png")
		if err := c.Save(path); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		img, err := png.Decode(f)
		if err != nil {
			t.Fatal(err)
		}
		blue := 0
		for y := range 300 {
			for x := range 400 {
				if r, g, b, _ := img.At(x, y).RGBA(); r>>8 == 0x1f && g>>8 == 0x6f && b>>8 == 0xb4 {
					blue++
				}
			}
		}
		if blue < 30 {
			t.Errorf("%d points: %d pixels of the line's colour, want at least 30", n, blue)
		}
	}
}

// A chart of what was not measured has no axes, one from zero neither.
func TestChartOfNothing(t *testing.T) {
	for _, zero := range []bool{false, true} {
		c := NewCanvas(400, 300)
		Chart{Zero: zero, Series: []Series{{X: []float64{1, 2}, Y: []float64{math.NaN(), math.NaN()}}}}.Draw(c, 0, 0, 400, 300)
		if text := c.terminal(); text != "" {
			t.Errorf("from zero: %v: drew\n%s", zero, text)
		}
	}
}

// The text of a mark in a valley stands where no line is.
func TestMarkPlace(t *testing.T) {
	ch := Chart{Series: []Series{{X: []float64{0, 1, 10}, Y: []float64{8, 2, 6}}}}
	horizontal, vertical := newAxis(false), [2]axis{newAxis(false), newAxis(false)}
	for i, x := range ch.Series[0].X {
		horizontal.include(x)
		vertical[0].include(ch.Series[0].Y[i])
	}
	vertical[0].include(0)
	horizontal.span(0, 1000, 0)
	vertical[0].span(500, 0, 0)
	p := Point{horizontal.at(1), vertical[0].at(2)} // (100, 375)
	if got := ch.free(p, 200, plot{rectangle{0, 0, 1000, 500}, horizontal, vertical}); got.Y <= p.Y {
		t.Errorf("the text is at %v, above the valley's floor at %v, where the line rises", got, p)
	}
	if got := ch.free(p, 2000, plot{rectangle{0, 370, 1000, 380}, horizontal, vertical}); got != (Point{100, 359}) {
		t.Errorf("with no room the text is at %v, want it just above the point", got)
	}
}

func TestLabel(t *testing.T) {
	for v, want := range map[float64]string{0.05: "0.05", 5000: "5000", 2e4: "20000", 1e5: "100000", 1e6: "1e6", 2e7: "2e7", -5e10: "-5e10", 1e-7: "1e-07"} {
		if got := label(v); got != want {
			t.Errorf("label(%v) = %s, want %s", v, got, want)
		}
	}
}

// A picture of few colours has a palette, one of many has not, and both are read
// back as they were drawn.
func TestPalette(t *testing.T) {
	for _, colours := range []int{1, 256, 257, 1000} {
		c := NewCanvas(1000, 1)
		for x := range 1000 {
			k := x % colours
			c.Rect(x, 0, 1, 1, color.RGBA{uint8(k), uint8(k / 256), 7, 0xff})
		}
		data, err := c.PNG()
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := img.(*image.Paletted); ok != (colours <= 256) {
			t.Errorf("%d colours: got a %T", colours, img)
		}
		for x := range 1000 {
			if got, want := color.RGBAModel.Convert(img.At(x, 0)), c.img.At(x, 0); got != want {
				t.Fatalf("%d colours: pixel %d is %v, want %v", colours, x, got, want)
			}
		}
	}
}
