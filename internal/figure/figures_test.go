package figure

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
)

func svgOf(t *testing.T, p Panel, width vg.Length) string {
	t.Helper()
	svg, err := drawSVG(p, width, "")
	if err != nil {
		t.Fatal(err)
	}
	return svg
}

// The same data make the same bytes, in SVG and in PNG.
func TestSameBytes(t *testing.T) {
	for i, p := range panels() {
		if a, b := svgOf(t, p, paired), svgOf(t, p, paired); a != b {
			t.Errorf("panel %d: two drawings differ", i)
		}
	}
	a, err := drawPNG(panels())
	if err != nil {
		t.Fatal(err)
	}
	if b, err := drawPNG(panels()); err != nil || !bytes.Equal(a, b) {
		t.Errorf("two pictures differ, %v", err)
	}
}

// The colours of a page's figures are those of its mode: an SVG has variables in their
// places, and every variable has a value in both modes.
func TestThemed(t *testing.T) {
	style, err := Style()
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range panels() {
		svg := svgOf(t, p, alone)
		for _, c := range []color.RGBA{Paper, Ink, Muted, Rule, Blue, Amber, Red, Green} {
			if strings.Contains(svg, hex(c)) {
				t.Errorf("panel %d has the colour %s, which dark mode does not change", i, hex(c))
			}
		}
		for _, name := range regexp.MustCompile(`var\(--\w+\)`).FindAllString(svg, -1) {
			variable := strings.TrimSuffix(strings.TrimPrefix(name, "var("), ")")
			if n := strings.Count(string(style), " "+variable+": "); n != 2 {
				t.Errorf("panel %d: the style has %d values of %s, want one for each mode", i, n, variable)
			}
		}
		if !strings.Contains(svg, "var(--ink)") && !strings.Contains(svg, "<image") {
			t.Errorf("panel %d has nothing in ink", i)
		}
		if strings.Contains(svg, "font-family") || !strings.Contains(svg, `role="img" aria-label="`) {
			t.Errorf("panel %d has a font of its own or no words for those who do not see it", i)
		}
	}
}

// A logarithmic axis has points in place of bars, and its label mentions that it is logarithmic.
func TestNoBarsOnLogAxis(t *testing.T) {
	b := Bars{Title: "T", Label: "time, µs", Names: []string{"a", "b"}, Series: []BarSeries{{Colour: Blue, Values: []float64{3, 3000}, Spread: []float64{1, math.NaN()}}}}
	for _, log := range []bool{false, true} {
		b.Log = log
		svg := svgOf(t, b, alone)
		rectangles := regexp.MustCompile(`d="M[^A"]*Z" style="fill:var\(--blue\)`).FindAllString(svg, -1)
		circles := regexp.MustCompile(`d="M[^"]*A[^"]*Z" style="fill:var\(--blue\)`).FindAllString(svg, -1)
		if bars := len(rectangles) > 0; bars == log || len(circles) > 0 != log || strings.Contains(svg, "(log)") != log {
			t.Errorf("log %v: %d bars, %d points, label with (log): %v", log, len(rectangles), len(circles), strings.Contains(svg, "(log)"))
		}
		if p, _ := b.plot(alone); log && p.X.Min != 2 || !log && p.X.Min != 0 {
			t.Errorf("log %v: the axis begins at %v", log, p.X.Min)
		}
	}
}

// Lines that lie on one another can be distinguished: no two have the same dashes and points.
func TestLinesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for i := range 8 {
		s := make([]Series, i+1)
		x := []float64{1, 2}
		s[i] = Series{Colour: Ink, X: x, Y: x}
		svg := svgOf(t, Chart{Series: s}, alone)
		dashes := regexp.MustCompile(`stroke:var\(--ink\);stroke-width:2[^"]*`).FindString(svg)
		shape := strings.Count(regexp.MustCompile(`d="([^"]*)" style="fill:var\(--ink\)`).FindString(svg), "L")
		key := dashes + strconv.Itoa(shape)
		if seen[key] || dashes == "" {
			t.Errorf("line %d looks like another one: %s", i, key)
		}
		seen[key] = true
	}
}

// A chart leaves out points that it cannot show, and breaks its lines there.
func TestBrokenLines(t *testing.T) {
	s := Series{Colour: Blue, X: []float64{0, 1, 2, 3, 4, 5}, Y: []float64{1, 2, math.NaN(), 4, -5, 6}}
	for _, c := range []struct {
		log, logX     bool
		lines, points int
	}{{false, false, 2, 5}, {true, false, 1, 4}, {false, true, 1, 4}} {
		svg := svgOf(t, Chart{Log: c.log, LogX: c.logX, Series: []Series{s}}, alone)
		lines, points := strings.Count(svg, "stroke:var(--blue);stroke-width:2"), strings.Count(svg, `style="fill:var(--blue)`)
		if lines != c.lines || points != c.points {
			t.Errorf("log %v, %v: %d lines and %d points, want %d and %d", c.log, c.logX, lines, points, c.lines, c.points)
		}
	}
}

// Without x, points are at 1, 2, 3 and so on.
func TestCountedPoints(t *testing.T) {
	y := []float64{4, 2, math.NaN(), 3}
	with := svgOf(t, Chart{Series: []Series{{Name: "a", X: []float64{1, 2, 3, 4}, Y: y, Marks: []Mark{{3, "m"}}}}}, alone)
	if without := svgOf(t, Chart{Series: []Series{{Name: "a", Y: y, Marks: []Mark{{3, "m"}}}}}, alone); without != with {
		t.Errorf("got %s, want %s", without, with)
	}
}

// A spread is drawn as a range, which on a logarithmic axis stays above zero, and a mark as
// a ring that the legend explains.
func TestRangesAndMarks(t *testing.T) {
	ch := Chart{Series: []Series{{Name: "a", Colour: Red, X: []float64{1, 2}, Y: []float64{3, 4}}}}
	plain := svgOf(t, ch, alone)
	ch.Series[0].Spread = []float64{math.NaN(), 1}
	if got := strings.Count(svgOf(t, ch, alone), "stroke-width:1.2"); got != 3 || strings.Contains(plain, "stroke-width:1.2") {
		t.Errorf("the range of one point has %d lines, want one and its two ends", got)
	}
	ch.Series[0].Marks = []Mark{{1, "best"}, {7, "beyond"}}
	if svg := svgOf(t, ch, alone); strings.Count(svg, ">best</text>") != 1 || strings.Contains(svg, "beyond") || strings.Count(svg, "A7,7") != 4 {
		t.Errorf("the mark is not drawn twice, on its point and in the legend: %s", svg)
	}
	for _, log := range []bool{false, true} {
		if e := around(2, 5, log); log && !(e.Low < 2) || !log && e.Low != 5 || e.High != 5 {
			t.Errorf("2 plus or minus 5, log %v: the range is %v", log, e)
		}
	}
}

// A panel without measurements says so, and has no axes.
func TestNothingToShow(t *testing.T) {
	nan := []float64{math.NaN(), math.NaN()}
	for i, p := range []Panel{
		Chart{Title: "T", Zero: true, Series: []Series{{X: []float64{1, 2}, Y: nan}}},
		Chart{Title: "T", Log: true, Series: []Series{{X: []float64{1, 2}, Y: []float64{0, -1}}}},
		Bars{Title: "T", Names: []string{"a", "b"}, Series: []BarSeries{{Values: nan, Spread: nan}}},
		Bars{Title: "T", Log: true, Names: []string{"a"}, Series: []BarSeries{{Values: []float64{0}}}},
		Bars{Title: "T"},
		Chart{Title: "T"},
		HeatMap{Title: "T", Columns: []string{"a", "b"}, Rows: []string{"c"}, Values: [][]float64{nan}},
		HeatMap{Title: "T"},
	} {
		svg := svgOf(t, p, alone)
		if strings.Count(svg, "<text") != 2 || !strings.Contains(svg, ">not recorded yet<") || len(p.Data().Rows) > 0 {
			t.Errorf("panel %d: drew %s\nof %q", i, svg, p.Data())
		}
	}
}

// One great value leaves the others of a map their colours; the scale has its ends and its
// middle, and ticks that are values.
func TestHeatMapColours(t *testing.T) {
	h := HeatMap{Gain: true, Rows: []string{"r"}, Columns: []string{"a", "b", "c", "d", "e"}, Values: [][]float64{{1000, 2, 4, -2, 0}}}
	c, ok := h.scale()
	if !ok {
		t.Fatal("no colours")
	}
	of := func(v float64) color.RGBA {
		col, err := c.At(c.place(v))
		if err != nil {
			t.Fatal(err)
		}
		return color.RGBAModel.Convert(col).(color.RGBA)
	}
	distance := func(a, b color.RGBA) int {
		d := func(x, y uint8) int { return max(int(x)-int(y), int(y)-int(x)) }
		return d(a.R, b.R) + d(a.G, b.G) + d(a.B, b.B)
	}
	for _, v := range []float64{2, 4, -2} {
		if d := distance(of(v), of(0)); d < 20 {
			t.Errorf("%v has the colour %v, nearly that of 0, %v", v, of(v), of(0))
		}
	}
	if p := of(1000); !(p.B > p.R+50) {
		t.Errorf("the greatest gain is %v, want blue", p)
	}
	if p := of(-1000); !(p.R > p.B+50) {
		t.Errorf("the greatest loss is %v, want red", p)
	}
	for _, tick := range c.Ticks(c.Min(), c.Max()) {
		v, err := strconv.ParseFloat(strings.Replace(tick.Label, "−", "-", 1), 64)
		if err != nil || math.Abs(c.place(v)-tick.Value) > 1e-9 {
			t.Errorf("the tick %s is at %v, %v", tick.Label, tick.Value, err)
		}
	}
	if n := len(c.Ticks(c.Min(), c.Max())); n < 5 || n > 15 {
		t.Errorf("the scale has %d ticks", n)
	}
	for _, one := range [][][]float64{{{7}}, {{0}}, {{-3}}} {
		for _, gain := range []bool{true, false} {
			svgOf(t, HeatMap{Gain: gain, Rows: []string{"r"}, Columns: []string{"a"}, Values: one}, paired) // does not panic
		}
	}
}

// A chart of one point, and of many, draws its line and is saved.
func TestSave(t *testing.T) {
	for _, n := range []int{1, 2, 100} {
		s := Series{Name: "loss", Colour: Blue}
		for i := range n {
			s.X, s.Y = append(s.X, float64(i)), append(s.Y, 1/float64(i+1))
		}
		path := filepath.Join(t.TempDir(), "folder", "chart.png")
		if err := Save(path, Chart{Title: "Loss", XLabel: "epoch", Log: true, Series: []Series{s}}); err != nil {
			t.Fatal(err)
		}
		if blue := count(readPNG(t, path))[Blue]; blue < 30 {
			t.Errorf("%d points: %d pixels of the line's colour, want at least 30", n, blue)
		}
	}
}

func readPNG(t *testing.T, path string) image.Image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// count counts the pixels of each colour.
func count(img image.Image) map[color.RGBA]int {
	seen := map[color.RGBA]int{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			seen[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	return seen
}

// A picture of few colours has a palette, one of many has not, and both are drawn as they
// are, in the PNG with four dots to a pixel.
func TestPictures(t *testing.T) {
	for _, colours := range []int{1, 256, 257, 700} {
		of := func(v float64) color.RGBA { return color.RGBA{uint8(v), uint8(v / 256), 7, 0xff} }
		m := Image{Width: 700}
		for x := range 700 {
			m.Values = append(m.Values, float32(x%colours))
		}
		p := Pictures{Colour: of, Images: []Image{m}}
		if _, ok := p.coloured(m).(*image.Paletted); ok != (colours <= 256) {
			t.Errorf("%d colours: got a %T", colours, p.coloured(m))
		}
		path := filepath.Join(t.TempDir(), "p.png")
		if err := Save(path, p); err != nil {
			t.Fatal(err)
		}
		img := readPNG(t, path)
		for x := range 1400 {
			got := color.RGBAModel.Convert(img.At(2*apart+x, 2*apart+x%2)).(color.RGBA)
			if want := of(float64(x / 2 % colours)); got != want {
				t.Fatalf("%d colours: dot %d is %v, want %v", colours, x, got, want)
			}
		}
	}
	if Viridis(math.NaN()) != Paper || Viridis(2) != Viridis(1) || Grey(0) != Paper || Grey(1) != RGB(0) || Diverging(-3) != Red || Diverging(1) != Blue || Diverging(0) != Paper {
		t.Error("a value at or beyond an end has no colour of its own")
	}
	seen := map[color.RGBA]bool{}
	for i := range 200 {
		seen[Viridis(float64(i)/199)] = true
	}
	if len(seen) != 200 {
		t.Errorf("%d colours of 200", len(seen))
	}
}

// A picture of several panels, two in a row, has rows as high as their highest panel.
func TestRowsOfPanels(t *testing.T) {
	for _, c := range []struct{ sides, heights []int }{{[]int{300, 20}, []int{300}}, {[]int{400, 10, 30}, []int{400, 30}}, {[]int{10, 20, 5, 200}, []int{20, 200}}} {
		var list []Panel
		for _, side := range c.sides {
			list = append(list, Pictures{Images: []Image{{Width: side, Values: make([]float32, side*side)}}})
		}
		want := image.Point{X: 2 * (2*slices.Max(c.sides) + 3*apart), Y: 2 * apart}
		for _, height := range c.heights {
			want.Y += 2 * (height + apart)
		}
		path := filepath.Join(t.TempDir(), "rows.png")
		if err := Save(path, list...); err != nil {
			t.Fatal(err)
		}
		if got := readPNG(t, path).Bounds().Size(); got != want {
			t.Errorf("pictures of %v values a side take %v dots, want %v", c.sides, got, want)
		}
	}
}

// panels are one of each kind.
func panels() []Panel {
	x, y := []float64{1, 10, 100, 1000}, []float64{3, 2, 5, 40}
	wave := []float32{0, .2, .4, .6}
	return []Panel{
		Chart{Title: "Rates", XLabel: "blocks", LogX: true, YLabel: "GB/s", Series: []Series{
			{Name: "left", Colour: Blue, X: x, Y: y, Spread: []float64{1, 1, 1, math.NaN()}, Marks: []Mark{{3, "best 40 GB/s"}}},
			{Name: "a long name that takes the legend's second line", Colour: Red, X: x, Y: y, Dots: true},
		}},
		HeatMap{Title: "Gain", XLabel: "threads", YLabel: "blocks", Label: "%", Gain: true,
			Columns: []string{"32", "64"}, Rows: []string{"1", "2"}, Values: [][]float64{{10, 20}, {55, -100}}},
		HeatMap{Title: "Much <of> it", Label: "us", Columns: []string{"a", "b", "c"}, Rows: []string{"1"}, Values: [][]float64{{1, math.NaN(), 1600}}},
		Bars{Title: "Step by step", Label: "ms", Log: true, Names: []string{"one thread", "shared tree"},
			Series: []BarSeries{{Colour: Blue, Values: []float64{31000, 0.02}, Spread: []float64{0, 0.001}}}},
		Bars{Title: "Letters", Label: "share, %", Standing: true, Names: strings.Split("abcdefghijkl", ""),
			Series: []BarSeries{{Name: "lower", Colour: Green, Values: []float64{8, 2, 3, 4, 12}}, {Name: "upper", Colour: Amber, Values: []float64{1, 2, 3}}}},
		Pictures{Title: "A wave", Zoom: 90, Colour: Viridis, Images: []Image{{Width: 2, Values: wave, Text: "right"}, {Width: 2, Values: wave, Text: "NOT SO", Wrong: true}}},
	}
}
