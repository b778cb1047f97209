package notebook

import (
	"image/png"
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
