package notebook

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample uses everything that a page can have.
func sample(p *Page) error {
	p.Heading("Sums < products & more")
	p.Text("One thread alone adds `a[i] <%d>` in turn; see [the docs](https://go.dev/doc/).", 7)
	if err := p.Source("sum.cu", "sum_cols"); err != nil {
		return err
	}
	p.GoSource("func f() string { return \"<b>\" } // why\n")
	a, err := p.Measure("sum.fast", "GB/s", func() (float64, error) { return 4400.123456, nil })
	if err != nil {
		return err
	}
	b, err := p.Measure("sum.absent", "us", func() (float64, error) { return 1, nil })
	if err != nil {
		return err
	}
	host, err := p.Time("sum.host", func() error { return nil })
	if err != nil {
		return err
	}
	if !strings.HasSuffix(host.String(), " ms") {
		p.Text("host time %v has no unit", host)
	}
	p.Table(Table{Caption: "Rates", Header: []string{"version", "GPU"}, Rows: [][]string{{"fast `sum`", a.String()}, {"other", b.String()}}})
	x, y := []float64{1, 10, 100, 1000}, []float64{3, 2, 5, 40}
	c := NewCanvas(1320, 1500)
	Chart{Title: "Two axes", XLabel: "blocks", LogX: true, YLabel: "GB/s", RightLabel: "us", Series: []Series{
		{Name: "left", Colour: Blue, X: x, Y: y, Marks: []Mark{{3, "best 40 GB/s"}}},
		{Name: "right", Colour: Amber, X: x, Y: []float64{9, 8, 2, 4}, Right: true, Marks: []Mark{{2, "best 2 us"}}},
		{Name: "points", Colour: Green, X: x, Y: []float64{30, 20, 10, 5}, Dots: true},
	}}.Draw(c, 0, 0, 660, 500)
	HeatMap{Title: "Gain of one launch", XLabel: "threads per block", YLabel: "blocks", Label: "%", Gain: true,
		Columns: []string{"32", "64", "128", "256"}, Rows: []string{"1", "2", "4"},
		Values: [][]float64{{10, 20, -30, 40}, {-1, 2, 3, 4}, {55, 100, 0, -100}}}.Draw(c, 660, 0, 660, 500)
	Bars{Title: "Step by step", Label: "ms, log scale", Log: true, Names: []string{"one thread", "one block, atomics", "shared tree"},
		Series: []BarSeries{{Colour: Blue, Values: []float64{31000, 170, 0.02}}}}.Draw(c, 0, 500, 660, 500)
	Bars{Title: "Letters", Label: "share, %", Standing: true, Names: strings.Split("abcdefghijklmnopqrstuvwxyz", ""),
		Series: []BarSeries{{"lower", Blue, []float64{8, 2, 3, 4, 12, 2, 2, 6, 7, 1}}, {"upper", Amber, []float64{1, 2, 3, 1, 1}}}}.Draw(c, 660, 500, 660, 500)
	wave := make([]float32, 64*64)
	for i := range wave {
		wave[i] = float32(i) / float32(len(wave))
	}
	c.Picture(80, 1080, 6, 64, wave, Spectral)
	HeatMap{Title: "Nothing yet"}.Draw(c, 660, 1000, 660, 500)
	return p.Figure("sample", "All `charts`", c)
}

const record1 = `{"device": "NVIDIA X", "driver": "580.1", "cuda": "13.0", "date": "2026-01-02", "digest": "0123456789abcdef", "figures": {"sum.fast": {"value": 4321, "unit": "GB/s"}}}`

func TestPage(t *testing.T) {
	dir := t.TempDir()
	var terminal bytes.Buffer
	o := Options{HTML: filepath.Join(dir, "a", "page.html"), Out: filepath.Join(dir, "out"), Device: "cpu", Small: true}
	if err := Run(o, &terminal, "A <title>", []byte(record1), sample); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(o.HTML)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<title>A &lt;title&gt;</title>", "<h2>Sums &lt; products &amp; more</h2>", "<code>a[i] &lt;7&gt;</code>",
		`<a href="https://go.dev/doc/">the docs</a>`, "<td class=n>4321 GB/s</td>", "<td class=n>-</td>", "fast <code>sum</code>",
		"data:image/png;base64,iVBOR", "recorded on NVIDIA X, driver 580.1, on 2026-01-02", "<i>// why</i>", "sum_cols(", "prefers-color-scheme: dark",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(string(page), "recorded on NVIDIA"); n != 1 {
		t.Errorf("the page says %d times where its figures are from, want once", n)
	}
	for _, want := range []string{"Running on the host", "Sums < products & more\n-----", "4321 GB/s", "recorded on NVIDIA X", "sample.png", "has other images"} {
		if !strings.Contains(terminal.String(), want) {
			t.Errorf("the terminal has no %q", want)
		}
	}
	if strings.Contains(terminal.String(), "has no unit") {
		t.Error("a host time has no unit")
	}
	if _, err := os.Stat(filepath.Join(o.Out, "sample.png")); err != nil {
		t.Error(err)
	}
}
