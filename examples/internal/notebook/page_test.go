package notebook

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
)

// sample uses everything that a page can have.
func sample(p *Page) {
	p.Heading("Sums < products & more")
	p.Text("One thread alone adds `a[i] <%d>` in turn; see [the docs](https://go.dev/doc/).", 7)
	p.Source("sum.cu", "sum_cols")
	p.GoSource("func f() string { return \"<b>\" } // why\n")
	p.Listing("a `table`", "map  %1 <f32> // func\n")
	a := p.Measure("sum.fast", "GB/s", func() float64 { return 4400.123456 })
	b := p.Measure("sum.absent", "us", func() float64 { return 1 })
	if host := p.Time("sum.host", func() {}); !strings.HasSuffix(host.String(), " ms") {
		p.Text("host time %v has no unit", host)
	}
	t := figure.Table{Caption: "Rates", Header: []string{"version", "GPU"}}
	t.Add("fast `sum`", a)
	t.Add("other", b)
	p.Table(t)
	p.Figure("one", "A chart alone", panels()[0])
	p.Figure("sample", "All `charts`", panels()...)
}

// panels are one of each kind.
func panels() []figure.Panel {
	x, y := []float64{1, 10, 100, 1000}, []float64{3, 2, 5, 40}
	wave := make([]float32, 64*64)
	for i := range wave {
		wave[i] = float32(i) / float32(len(wave))
	}
	return []figure.Panel{
		figure.Chart{Title: "Rates", XLabel: "blocks", LogX: true, YLabel: "GB/s", Series: []figure.Series{
			{Name: "left", Colour: figure.Blue, X: x, Y: y, Spread: []float64{1, 1, 1, math.NaN()}, Marks: []figure.Mark{{At: 3, Text: "best 40 GB/s"}}},
			{Name: "a long name that takes the legend's second line", Colour: figure.Red},
			{Name: "points", Colour: figure.Green, X: x, Y: []float64{30, 20, 10, 5}, Dots: true},
		}},
		figure.HeatMap{Title: "Gain of one launch", XLabel: "threads per block", YLabel: "blocks", Label: "%", Gain: true,
			Columns: []string{"32", "64", "128", "256"}, Rows: []string{"1", "2", "4"},
			Values: [][]float64{{10, 20, -30, 40}, {-1, 2, 3, 4}, {55, 100, 0, -100}}},
		figure.Bars{Title: "Step by step", Label: "ms", Log: true, Names: []string{"one thread", "one block, atomics", "shared tree"},
			Series: []figure.BarSeries{{Colour: figure.Blue, Values: []float64{31000, 170, 0.02}, Spread: []float64{0, 80, 0.001}}}},
		figure.Bars{Title: "Letters", Label: "share, %", Standing: true, Names: strings.Split("abcdefghijklmnopqrstuvwxyz", ""),
			Series: []figure.BarSeries{{Name: "lower", Colour: figure.Blue, Values: []float64{8, 2, 3, 4, 12, 2, 2, 6, 7, 1}}, {Name: "upper", Colour: figure.Amber, Values: []float64{1, 2, 3, 1, 1}}}},
		figure.Pictures{Title: "A wave", Zoom: 3, Colour: figure.Viridis, Images: []figure.Image{{Width: 64, Values: wave, Text: "right"}, {Width: 64, Values: wave, Text: "NOT SO", Wrong: true}}},
		figure.HeatMap{Title: "Much <of> it", Label: "us", Columns: strings.Split("abcdefghijklmnop", ""), Rows: []string{"1"}, Values: [][]float64{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, math.NaN(), 15, 1600}}},
		figure.HeatMap{Title: "Nothing yet"},
	}
}

// withRecord returns the files of a notebook with a record.
func withRecord(text string) fs.FS { return fstest.MapFS{"recorded.json": {Data: []byte(text)}} }

const record1 = `{"device": "NVIDIA X", "driver": "580.1", "cuda": "13.0", "date": "2026-01-02", "kernels": {"sum": "0123456789ab"}, "figures": {"sum.fast": {"value": 4321, "unit": "GB/s"}}}`

func TestPage(t *testing.T) {
	dir := t.TempDir()
	var terminal bytes.Buffer
	o := Options{HTML: filepath.Join(dir, "a", "page.html"), Out: filepath.Join(dir, "out"), Device: "cpu", Small: true}
	if err := Run(o, &terminal, "A <title>", withRecord(record1), sample); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(o.HTML)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<title>A &lt;title&gt;</title>", "<h2>Sums &lt; products &amp; more</h2>", "<code>a[i] &lt;7&gt;</code>",
		`<a href="https://go.dev/doc/">the docs</a>`, `<td class="n">4321 GB/s</td>`, `<td class="n">-</td>`, "fast <code>sum</code>",
		"data:image/png;base64,iVBOR", "recorded on NVIDIA X, driver 580.1, on 2026-01-02", `<span class="c1">// why`, `a <code>table</code></figcaption><pre class="chroma" tabindex="0">map  %1 &lt;f32&gt; // func</pre>`,
		`<span class="n">sum_cols</span>`, `<span class="k">__device__</span>`, "prefers-color-scheme: dark", `aria-label="Gain of one launch, %: blocks by threads per block 32 64 128 256; 4 55 100 0 -100; 2`,
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(string(page), "recorded on NVIDIA"); n != 1 {
		t.Errorf("the page says %d times where its figures are from, want once", n)
	}
	for _, want := range []string{"Running on the host", "Sums < products & more\n-----", "4321 GB/s", "recorded on NVIDIA X", "sample.png", "kernels of sum.",
		"  left                   3 at 1  40 at 1000  best 40 GB/s\n", "4  55  100    0  -100\n", "  shared tree         0.0200\n", "  e     12      1\n", "A wave\n  right\n  NOT SO\n"} {
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

// On a GPU figures are measured, kept once under each key, and read back from
// the record as they were. Without one they come from the record.
func TestMeasure(t *testing.T) {
	gpu := &cudaops.Device{Device: kernels.Device{Name: "NVIDIA X"}, Driver: "580.1", CUDA: "13.0"}
	p := &Page{gpu: gpu, terminal: io.Discard, measured: newRecord(gpu)}
	if m := p.Measure("a", "us", func() float64 { return 12.345678 }); m.String() != "12.3 µs" || m.Value != 12.346 {
		t.Errorf("got %v (%v), want 12.346 us", m.Value, m)
	}
	for _, f := range []func() float64{
		math.NaN,
		func() float64 { return Must(0., errors.New("no")) },
	} {
		if err := Try(func() { p.Measure("b", "us", f) }); err == nil || !strings.Contains(err.Error(), `"b"`) {
			t.Errorf("got error %v, want one that names the figure", err)
		}
		delete(p.measured.keys, "b")
	}
	if err := Try(func() { p.Measure("a", "us", func() float64 { return 1 }) }); err == nil {
		t.Error("a key was taken twice")
	}
	path := filepath.Join(t.TempDir(), "folder", "recorded.json")
	if err := p.measured.save(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n  \"a\": {\"value\": 12.346, \"unit\": \"us\"}") {
		t.Errorf("the record is\n%s\nwant a figure a line", text)
	}
	var log bytes.Buffer
	err = Run(Options{Device: "cpu"}, &log, "Title", withRecord(string(text)), func(p *Page) {
		never := func() float64 { t.Error("measured without a GPU"); return 0 }
		if m := p.Measure("a", "us", never); m.Value != 12.346 {
			t.Errorf("recorded: got %v, want 12.346", m.Value)
		}
		if m := p.Measure("absent", "us", never); m.Known() || m.String() != "-" {
			t.Errorf("not recorded: got %v, want -", m)
		}
		if err := Try(func() { p.Measure("a", "us", never) }); err == nil {
			t.Error("a key was taken twice")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := "recorded on NVIDIA X, driver 580.1"; strings.Count(log.String(), want) != 1 || strings.Contains(log.String(), "other kernels") {
		t.Errorf("the text is %q, want once %q and nothing of other images", log.String(), want)
	}
	if err := Run(Options{Device: "cpu"}, io.Discard, "Title", withRecord(string(text)), func(p *Page) {
		p.Measure("a", "ms", nil)
	}); err == nil || !strings.Contains(err.Error(), `"us"`) {
		t.Errorf("another unit than the recorded: got error %v", err)
	}
	log.Reset()
	other := regexp.MustCompile(`("versions/sum": ")\w+`).ReplaceAll(text, []byte("${1}other"))
	if err := Run(Options{Device: "cpu"}, &log, "Title", withRecord(string(other)), func(p *Page) {
		p.Measure("a", "us", nil)
	}); err != nil {
		t.Fatal(err)
	}
	if want := "this build has other kernels of versions/sum."; !strings.Contains(strings.Join(strings.Fields(log.String()), " "), want) {
		t.Errorf("with another digest the text is %q, want %q", log.String(), want)
	}
}

// A value of any type is kept as a figure is, and comes back from the record.
func TestKeep(t *testing.T) {
	type step struct {
		Name  string
		Bytes []int64
	}
	want := []step{{"map", []int64{1 << 60}}, {"a \"b\"", nil}}
	gpu := &cudaops.Device{Device: kernels.Device{Name: "NVIDIA X"}, Driver: "580.1", CUDA: "13.0"}
	p := &Page{gpu: gpu, terminal: io.Discard, measured: newRecord(gpu)}
	if got, known := Keep(p, "steps", func() []step { return want }); !known || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, known, want)
	}
	if err := Try(func() { Keep(p, "steps", func() int { return 1 }) }); err == nil {
		t.Error("a key was taken twice")
	}
	if err := Try(func() { Keep(p, "none", func() int { return Must(1, errors.New("no")) }) }); err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("got %v, want an error that names the figure", err)
	}
	path := filepath.Join(t.TempDir(), "recorded.json")
	if err := p.measured.save(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	show := func(p *Page) {
		if got, known := Keep(p, "steps", func() []step { t.Error("measured without a GPU"); return nil }); !known || !reflect.DeepEqual(got, want) {
			t.Errorf("recorded: got %v, %v, want %v", got, known, want)
		}
		if n, known := Keep(p, "absent", func() int { return 1 }); n != 0 || known {
			t.Errorf("not recorded: got %v, %v, want 0 and false", n, known)
		}
	}
	var log bytes.Buffer
	if err := Run(Options{Device: "cpu"}, &log, "Title", withRecord(string(text)), show); err != nil || !strings.Contains(log.String(), "recorded on NVIDIA X") {
		t.Errorf("%v, %q", err, log.String())
	}
	if missing, twice, err := Unrecorded(withRecord(string(text)), show); err != nil || !slices.Equal(missing, []Missing{{Key: "absent"}}) || twice != nil {
		t.Errorf("got %v, %q and %v, want absent alone", missing, twice, err)
	}
	if err := Run(Options{Device: "cpu"}, io.Discard, "Title", withRecord(string(text)), func(p *Page) {
		Keep(p, "steps", func() int { return 1 })
	}); err == nil || !strings.Contains(err.Error(), `"steps"`) {
		t.Errorf("another type than the recorded: got error %v", err)
	}
}

// A figure that the record lacks is found by its key.
func TestUnrecorded(t *testing.T) {
	absent, fast := Missing{Key: "sum.absent"}, Missing{Key: "sum.fast"}
	if missing, _, err := Unrecorded(withRecord(record1), sample); err != nil || !slices.Equal(missing, []Missing{absent}) {
		t.Errorf("got %v and %v, want sum.absent alone", missing, err)
	}
	if missing, _, err := Unrecorded(nil, sample); err != nil || !slices.Equal(missing, []Missing{absent, fast}) {
		t.Errorf("no record: got %v and %v, want sum.absent and sum.fast", missing, err)
	}
	if _, _, err := Unrecorded(withRecord(record1), func(*Page) { Fail("no") }); err == nil {
		t.Error("the notebook's error is lost")
	}
}

func TestRunErrors(t *testing.T) {
	run := func(f func(p *Page)) error { return Run(Options{Device: "cpu"}, io.Discard, "", nil, f) }
	none := func(*Page) {}
	for want, err := range map[string]error{
		"-device is":  Run(Options{Device: "tpu"}, io.Discard, "", nil, none),
		"-record":     Run(Options{Device: "cpu", Record: "x"}, io.Discard, "", nil, none),
		"recorded":    Run(Options{Device: "cpu"}, io.Discard, "", withRecord("{"), none),
		"device \"\"": Run(Options{Device: "cpu"}, io.Discard, "", withRecord(`{"figures": {"a": {"value": 1, "unit": "s"}}}`), none),
		"want at most": Run(Options{Device: "cpu", HTML: filepath.Join(t.TempDir(), "p")}, io.Discard, "", nil, func(p *Page) {
			p.Text("%s", strings.Repeat("long ", maxPage/5))
		}),
		"no source":      run(func(p *Page) { p.Source("none.cu") }),
		`macro "absent"`: run(func(p *Page) { p.Source("add.cu", "absent") }),
		`figure "../a"`:  run(func(p *Page) { p.Figure("../a", "", figure.Bars{}) }),
		"of 0 panels":    run(func(p *Page) { p.Figure("a", "") }),
		"no function g": Run(Options{Device: "cpu"}, io.Discard, "", fstest.MapFS{"a.go": {Data: []byte("\n// f is\nfunc f() {\n}\n")}}, func(p *Page) {
			p.GoFunction("a.go", "f", "g")
		}),
		"key: no": run(func(*Page) { within("key", func() { Fail("no") }) }),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

func TestDefinition(t *testing.T) {
	const source = `// The header; { it has braces.
//
// It is long.
#include "reduce.cuh"

// Not of it.

// Of it: f(
template <typename T> struct Sum { T x; };

#define TWO(NAME) \
    void NAME##_a() { f(); } \
    void NAME##_b() { f(); }

TWO(some)
TWO(other)
// Adds.
__device__ int f(int x) {
    if (x) { return g("}"); }  // a brace: }
    return 0;
}
__device__ int g(const char*);
extern "C" {
/* C. */
__global__ void k(int* out) { *out = f(1); }
}
extern "C" __global__ void l(int* out) { *out = f(2); }
__device__ int f(float x) { return 1; }
`
	for name, want := range map[string]string{
		"Sum": "// Of it: f(\ntemplate <typename T> struct Sum { T x; };",
		"f":   "// Adds.\n__device__ int f(int x) {\n    if (x) { return g(\"}\"); }  // a brace: }\n    return 0;\n}\n\n__device__ int f(float x) { return 1; }",
		"k":   "/* C. */\n__global__ void k(int* out) { *out = f(1); }",
		"l":   "extern \"C\" __global__ void l(int* out) { *out = f(2); }",
		"TWO": "#define TWO(NAME) \\\n    void NAME##_a() { f(); } \\\n    void NAME##_b() { f(); }",
	} {
		if got, err := definition(source, name); err != nil || got != want {
			t.Errorf("%s: got %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
	for _, name := range []string{"g", "other", "x"} { // declared only, used only, no definition
		if got, err := definition(source, name); err == nil {
			t.Errorf("%s: got\n%s\nwant an error", name, got)
		}
	}
}

// Every entry point or the function that it calls is found in the real sources.
func TestDefinitions(t *testing.T) {
	for _, c := range [][2]string{{"add.cu", "add"}, {"add.cu", "add_f32"}, {"sum.cu", "sum_cols"}, {"sum.cu", "ROWS"}, {"vector.cuh", "Pack"},
		{"reduce.cuh", "reduce_rows"}, {"matmul.cu", "TILE"}, {"versions/ripple.cu", "amplitude"}} {
		text, err := source(c[0])
		if err != nil {
			t.Fatal(err)
		}
		got, err := definition(string(text), c[1])
		if err != nil {
			t.Errorf("%s: %v", c[0], err)
			continue
		}
		code := blank(got)
		if strings.Count(code, "{") != strings.Count(code, "}") || len(got) > len(text)*2/3 {
			t.Errorf("%s %s: got\n%s", c[0], c[1], got)
		}
	}
}
