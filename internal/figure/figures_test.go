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

	"github.com/stheno-ml/stheno/internal/theme"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"
)

func svgOf(t *testing.T, p Panel, width vg.Length) string {
	t.Helper()
	svg, err := drawSVG(p, width, "")
	if err != nil {
		t.Fatal(err)
	}
	return svg
}

// A label is a text of a drawing with the rectangle that it takes, y downwards.
type placed struct {
	text                     string
	left, top, right, bottom float64
}

var (
	drawing = regexp.MustCompile(`(?s)<svg viewBox="0 0 ([\d.]+) ([\d.]+)".*?</svg>`)
	written = regexp.MustCompile(`<text x="([-\d.e]+)" y="([-\d.e]+)" [^>]*font-size="([\d.]+)"[^>]*textLength="([\d.]+)"[^>]*>([^<]*)</text>`)
)

// labels are the texts of drawings, each with the size of its drawing.
func labels(t *testing.T, svg string) (list [][]placed, sizes [][2]float64) {
	t.Helper()
	for _, d := range drawing.FindAllStringSubmatch(svg, -1) {
		number := func(s string) float64 {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		wide, tall := number(d[1]), number(d[2])
		var texts []placed
		for _, m := range written.FindAllStringSubmatch(d[0], -1) {
			x, base, size := number(m[1]), tall+number(m[2]), number(m[3])
			texts = append(texts, placed{m[5], x, base - .73*size, x + number(m[4]), base})
		}
		if n := strings.Count(d[0], "<text"); n != len(texts) {
			t.Errorf("a drawing has %d texts, of which %d were read", n, len(texts))
		}
		list, sizes = append(list, texts), append(sizes, [2]float64{wide, tall})
	}
	return list, sizes
}

// collisions names texts that stand on one another or outside of their drawing.
func collisions(t *testing.T, svg string) (found []string) {
	list, sizes := labels(t, svg)
	for i, texts := range list {
		for k, a := range texts {
			if a.left < -.5 || a.top < -.5 || a.right > sizes[i][0]+.5 || a.bottom > sizes[i][1]+.5 {
				found = append(found, a.text+" is clipped")
			}
			for _, b := range texts[:k] {
				if a.left < b.right-.5 && b.left < a.right-.5 && a.top < b.bottom-.5 && b.top < a.bottom-.5 {
					found = append(found, b.text+" and "+a.text)
				}
			}
		}
	}
	return found
}

// In no figure of the gallery, and in no panel of the sample, does a text stand on another one,
// or outside of its drawing.
func TestTextsDoNotCollide(t *testing.T) {
	pages, err := filepath.Glob("../../docs/gallery/*.html")
	if err != nil || len(pages) < 6 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for i, p := range panels() {
		if found := collisions(t, svgOf(t, p, paired)); len(found) > 0 {
			t.Errorf("panel %d: %q", i, found)
		}
	}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		list, _ := labels(t, string(text))
		if found := collisions(t, string(text)); len(found) > 0 || len(list) == 0 {
			t.Errorf("%s: of %d drawings: %q", path, len(list), found)
		}
	}
	if found := collisions(t, `<svg viewBox="0 0 50 20"><text x="1" y="-8" font-size="10" textLength="20">a</text><text x="15" y="-5" font-size="10" textLength="40">b</text></svg>`); len(found) != 2 {
		t.Errorf("found %q, want a collision and a clipped text", found)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		log    bool
		lo, hi float64
		want   string
	}{
		{false, 0, 10, "0 2 4 6 8 10"},
		{false, 0, .5, "0 0.1 0.2 0.3 0.4 0.5"},
		{false, -2.5, 31, "0 10 20 30"},
		{false, 0, 3e6, "0 5×10⁵ 10⁶ 1.5×10⁶ 2×10⁶ 2.5×10⁶ 3×10⁶"},
		{true, 1, 132, "1 2 5 10 20 50 100"},
		{true, 4000, 4400, "4000 4100 4200 4300 4400"},
		{true, 4096, 2.7e8, "10⁴ 10⁵ 10⁶ 10⁷ 10⁸"},
		{true, .05, 2e4, "0.1 1 10 100 1000 10000"},
		{true, 1e-9, 1e20, "10⁻⁸ 0.001" /* every fourth */},
	} {
		var named []string
		for _, tick := range (ticks{c.log}).Ticks(c.lo, c.hi) {
			if tick.Value < c.lo*(1-1e-9) || tick.Value > c.hi*(1+1e-9) {
				t.Errorf("%v to %v has a tick at %v", c.lo, c.hi, tick.Value)
			}
			if !tick.IsMinor() {
				named = append(named, tick.Label)
			}
		}
		if s := strings.Join(named, " "); s != c.want && !strings.HasSuffix(c.want, " 0.001") {
			t.Errorf("ticks of %v to %v, log %v: %s, want %s", c.lo, c.hi, c.log, s, c.want)
		} else if len(named) > 11 {
			t.Errorf("%d ticks of %v to %v", len(named), c.lo, c.hi)
		}
	}
}

func TestLabel(t *testing.T) {
	for v, want := range map[float64]string{0: "0", math.Copysign(0, -1): "0", 0.05: "0.05", -3 * .1: "−0.3", 5000: "5000", 2e4: "20000", 1e5: "10⁵", 1e6: "10⁶", 2e7: "2×10⁷", -5e10: "−5×10¹⁰", 1e-7: "10⁻⁷", 12345678: "1.235×10⁷"} {
		if got := label(v); got != want {
			t.Errorf("label(%v) = %s, want %s", v, got, want)
		}
	}
	for s, want := range map[string]string{"2^28 bytes": "2²⁸ bytes", "units of 2^-23": "units of 2⁻²³", "N^3": "N³", "A^T B": "A^T B", "(a+b)^2": "(a+b)²", "x ^2": "x ^2"} {
		if got := Typeset(s); got != want {
			t.Errorf("Typeset(%q) = %q, want %q", s, got, want)
		}
	}
}

// Superscripts are smaller digits above the line, behind what they belong to.
func TestSuperscripts(t *testing.T) {
	var c recorder.Canvas
	sty := style(20, theme.Ink)
	area := draw.NewCanvas(&c, 100, 100)
	area.FillText(sty, vg.Point{X: 10, Y: 50}, "2⁻⁹ µs")
	type run struct {
		text string
		size vg.Length
		at   vg.Point
	}
	var runs []run
	for _, a := range c.Actions {
		if f, ok := a.(*recorder.FillString); ok {
			runs = append(runs, run{f.String, f.Size, f.Point})
		}
	}
	if len(runs) != 3 || runs[0].text != "2" || runs[1].text != "−9" || runs[2].text != "µs" {
		t.Fatalf("wrote %+v, want 2, -9 and µs", runs)
	}
	if !(runs[1].size < runs[0].size && runs[1].at.Y > runs[0].at.Y+5 && runs[0].at.Y == runs[2].at.Y && runs[0].at.X < runs[1].at.X && runs[1].at.X < runs[2].at.X) {
		t.Errorf("wrote %+v, want a small run above the line between two others", runs)
	}
	if w := runs[2].at.X - 10 + sty.Width("µs"); math.Abs(float64(w-sty.Width("2⁻⁹ µs"))) > 1e-9 {
		t.Errorf("the width is %v, that of the runs %v", sty.Width("2⁻⁹ µs"), w)
	}
}

// The same data give the same bytes, in SVG and in PNG.
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
	style, err := theme.Style()
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range panels() {
		svg := svgOf(t, p, alone)
		for _, c := range []color.RGBA{theme.Paper, theme.Ink, theme.Muted, theme.Rule, theme.Blue, theme.Amber, theme.Red, theme.Green} {
			if strings.Contains(svg, theme.Hex(c)) {
				t.Errorf("panel %d has the colour %s, which dark mode does not change", i, theme.Hex(c))
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

// On a logarithmic axis there are points where else are bars, and its label says so.
func TestNoBarsOnLogAxis(t *testing.T) {
	b := Bars{Title: "T", Label: "time, µs", Names: []string{"a", "b"}, Series: []BarSeries{{Colour: theme.Blue, Values: []float64{3, 3000}, Spread: []float64{1, math.NaN()}}}}
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

// Lines that lie on one another are told apart: no two have the same dashes and points.
func TestLinesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for i := range 8 {
		s := make([]Series, i+1)
		x := []float64{1, 2}
		s[i] = Series{Colour: theme.Ink, X: x, Y: x}
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

// A chart leaves out what it cannot show, and breaks its lines there.
func TestBrokenLines(t *testing.T) {
	s := Series{Colour: theme.Blue, X: []float64{0, 1, 2, 3, 4, 5}, Y: []float64{1, 2, math.NaN(), 4, -5, 6}}
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

// A spread is drawn as a range, which on a logarithmic axis stays above zero, and a mark as
// a ring that the legend explains.
func TestRangesAndMarks(t *testing.T) {
	ch := Chart{Series: []Series{{Name: "a", Colour: theme.Red, X: []float64{1, 2}, Y: []float64{3, 4}}}}
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

// A panel of what was not measured says so, and has no axes.
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
		if strings.Count(svg, "<text") != 2 || !strings.Contains(svg, ">not recorded yet<") || len(p.data().Rows) > 0 {
			t.Errorf("panel %d: drew %s\nof %q", i, svg, p.data())
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
		s := Series{Name: "loss", Colour: theme.Blue}
		for i := range n {
			s.X, s.Y = append(s.X, float64(i)), append(s.Y, 1/float64(i+1))
		}
		path := filepath.Join(t.TempDir(), "folder", "chart.png")
		if err := Save(path, Chart{Title: "Loss", XLabel: "epoch", Log: true, Series: []Series{s}}); err != nil {
			t.Fatal(err)
		}
		if blue := count(readPNG(t, path))[theme.Blue]; blue < 30 {
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
	if Viridis(math.NaN()) != theme.Paper || Viridis(2) != Viridis(1) || Grey(0) != theme.Paper || Grey(1) != theme.RGB(0) || Diverging(-3) != theme.Red || Diverging(1) != theme.Blue || Diverging(0) != theme.Paper {
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

// panels are one of each kind.
func panels() []Panel {
	x, y := []float64{1, 10, 100, 1000}, []float64{3, 2, 5, 40}
	wave := []float32{0, .2, .4, .6}
	return []Panel{
		Chart{Title: "Rates", XLabel: "blocks", LogX: true, YLabel: "GB/s", Series: []Series{
			{Name: "left", Colour: theme.Blue, X: x, Y: y, Spread: []float64{1, 1, 1, math.NaN()}, Marks: []Mark{{3, "best 40 GB/s"}}},
			{Name: "a long name that takes the legend's second line", Colour: theme.Red, X: x, Y: y, Dots: true},
		}},
		HeatMap{Title: "Gain", XLabel: "threads", YLabel: "blocks", Label: "%", Gain: true,
			Columns: []string{"32", "64"}, Rows: []string{"1", "2"}, Values: [][]float64{{10, 20}, {55, -100}}},
		HeatMap{Title: "Much <of> it", Label: "us", Columns: []string{"a", "b", "c"}, Rows: []string{"1"}, Values: [][]float64{{1, math.NaN(), 1600}}},
		Bars{Title: "Step by step", Label: "ms", Log: true, Names: []string{"one thread", "shared tree"},
			Series: []BarSeries{{Colour: theme.Blue, Values: []float64{31000, 0.02}, Spread: []float64{0, 0.001}}}},
		Bars{Title: "Letters", Label: "share, %", Standing: true, Names: strings.Split("abcdefghijkl", ""),
			Series: []BarSeries{{Name: "lower", Colour: theme.Green, Values: []float64{8, 2, 3, 4, 12}}, {Name: "upper", Colour: theme.Amber, Values: []float64{1, 2, 3}}}},
		Pictures{Title: "A wave", Zoom: 90, Colour: Viridis, Images: []Image{{Width: 2, Values: wave, Text: "right"}, {Width: 2, Values: wave, Text: "NOT SO", Wrong: true}}},
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 12: "12", 1.5: "1.50", 12.345: "12.3", 123.45: "123", 99.96: "100", 9.996: "10", 9.96: "9.96", 4585.3: "4585", 0.12345: "0.123", 31418: "31418",
		-3.14159: "-3.14", 1e-4: "0.0001", 1.234e-5: "1.23e-05", 1 << 30: "1.07e+09",
	} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) = %s, want %s", v, got, want)
		}
	}
	if got := Number(math.NaN()); got != "-" {
		t.Errorf("Number(NaN) = %s, want -", got)
	}
}

// Numbers, with units or without, make a column of numbers; numbered names do not.
func TestNumericColumns(t *testing.T) {
	table := Table{Rows: [][]string{{"-1.5", "12 us", "2 / 8", "-", "1: one", "fast"}, {"", "0", "3", "5e-08", "12: two", "1"}}}
	if got, want := table.Numeric(), []bool{true, true, true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
