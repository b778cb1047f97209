package ratios

import (
	"encoding/xml"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/internal/results"
)

// file has n cases of two ops; those of Sum have the ratios 1 to n.
func file(n int) *results.File {
	f := &results.File{}
	for i := range n {
		sum, product := results.Key{Op: "Sum", Case: fmt.Sprint(i), Dtype: "f32"}, results.Key{Op: "MatMul", Case: fmt.Sprint(i), Dtype: "f32"}
		f.Rows = append(f.Rows, results.Row{Key: sum, Micros: 10, Bytes: 1 << i, Flops: 1}, results.Row{Key: product, Micros: 5, Bytes: 100, Flops: 1 << (10 + i)})
		f.Peers = append(f.Peers, results.Peer{Key: sum, By: "slow", Micros: 1e6}, results.Peer{Key: sum, By: "x", Micros: 10 * float64(n-i)},
			results.Peer{Key: product, By: "x", Micros: 5 * []float64{0.5, 2}[i%2]})
	}
	f.Rows = append(f.Rows, results.Row{Key: results.Key{Op: "Dot", Case: "alone", Dtype: "f32"}, Micros: 1, Bytes: 1})
	return f
}

// The worst comes first, beside the fastest peer; cases without a peer are left out.
func TestOf(t *testing.T) {
	points := Of(file(10))
	if len(points) != 20 {
		t.Fatalf("%d points, want 20", len(points))
	}
	if !slices.IsSortedFunc(points, func(a, b Point) int { return int(math.Copysign(1, a.Ratio()-b.Ratio())) }) {
		t.Error("the ratios are not in order")
	}
	if p := points[0]; p.Ratio() != 0.5 || p.Row.Op != "MatMul" {
		t.Errorf("the worst is %v with %v, want a MatMul with 0.5", p.Row.Key, p.Ratio())
	}
	if p := points[19]; p.Ratio() != 10 || p.Peer.By != "x" {
		t.Errorf("the best is %v beside %s, want 10 beside x", p.Ratio(), p.Peer.By)
	}
}

// Figures of a hundred ratios from 1 to 100, and of a half and two by turns.
func TestTable(t *testing.T) {
	lines := Table(Of(file(100)))
	if len(lines) != 4 {
		t.Fatalf("got %q, want a header, two ops and both together", lines)
	}
	logs := 0.0
	for i := range 100 {
		logs += math.Log(float64(i + 1))
	}
	for i, want := range [][]string{
		{"MatMul", "100", "1.00", "0.50", "0.50", "0.50", "0.50", "2.00", "2.00", "2.00", "50"},
		{"Sum", "100", fmt.Sprintf("%.2f", math.Exp(logs/100)), "1.00", "5.00", "25.00", "50.00", "75.00", "95.00", "100.00", "0"},
	} {
		if !slices.Equal(lines[i+1], want) {
			t.Errorf("got %q, want %q", lines[i+1], want)
		}
	}
	if all := lines[3]; all[0] != "all" || all[1] != "200" || all[10] != "50" {
		t.Errorf("got %q for all, want 200 cases and 50 below 0.8", all)
	}
	if lines := Table(Of(file(1))); len(lines) != 4 || lines[2][2] != "1.00" {
		t.Errorf("of one case each: got %q", lines)
	}
	if lines := Table(nil); len(lines) != 1 {
		t.Errorf("of none: got %q, want the header", lines)
	}
}

// Both formats are drawn whole: a panel for each kind of limit, with its units, its
// roofline and as many marks as there are times.
func TestPlot(t *testing.T) {
	dir := t.TempDir()
	points := Of(file(20))
	svg, bitmap := filepath.Join(dir, "a.svg"), filepath.Join(dir, "a.png")
	must.Do(t, Plot(svg, "40 shapes", "Stheno", "others", points, 1000))
	text := string(must.Get[[]byte](t)(os.ReadFile(svg)))
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{">bytes moved (log)<", ">operations (log)<", ">time, µs (log)<", ">100<", ">Stheno<", ">others<",
		">roofline: copy, 1e+03 GB/s<", ">roofline: the fastest, 107 TFLOP/s<", ">40 shapes<"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, svg)
		}
	}
	if n := strings.Count(text, "fill:#1F6FB4"); n < 40 {
		t.Errorf("%d marks of Stheno's, want 40 and those of the legends", n)
	}
	must.Do(t, Plot(bitmap, "40 shapes", "Stheno", "others", points, 1000))
	picture := must.Get[*os.File](t)(os.Open(bitmap))
	defer picture.Close()
	if img, err := png.Decode(picture); err != nil || img.Bounds().Dx() != 1904 {
		t.Errorf("the picture: %v, want one 1904 pixels wide", err)
	}
	for path, points := range map[string][]Point{filepath.Join(dir, "a.gif"): points, filepath.Join(dir, "none.svg"): nil} {
		if err := Plot(path, "", "", "", points, 1); err == nil {
			t.Errorf("%s of %d points: no error", path, len(points))
		}
	}
	must.Do(t, Plot(svg, "one", "Stheno", "others", Of(file(1)), 1))
}

// The page has the ratios by op, the cases that miss a goal and no others, and the plot.
func TestUpdatePage(t *testing.T) {
	f := file(3)
	f.GPU, f.Copy, f.Seed = "Some GPU", 4000, 7
	hungry := results.Key{Op: "Sum", Case: "a|b", Dtype: "f32"}
	f.Rows = append(f.Rows, results.Row{Key: hungry, Micros: 100, Bytes: 100 << 20, Flops: 1})
	const page = "before\n<!-- drawn:begin -->\nold\n<!-- drawn:end -->\nafter\n"
	got := must.Get[string](t)(UpdatePage(page, []*results.File{f}, nil))
	for _, want := range []string{
		"before\n<!-- drawn:begin -->\n**Some GPU**", "8 cases, seed 7, of which 6 have a time in another library. Device copy: 4000 GB/s.\n\n| op |",
		"\n| MatMul | 3 | 0.79 | 0.50 |", "| 2 |\n| Sum | 3 |", "| Sum/a\\|b/f32 | 100 us | 26 % |\n", "](drawn-some-gpu.svg)\n<!-- drawn:end -->\nafter\n",
		"\n| below 0.8 | Stheno | the other | ratio | the other is |\n|---|--:|--:|--:|--:|\n| MatMul/0/f32 | 5.00 us | 2.50 us | 0.50 | x |\n| MatMul/2/f32 | 5.00 us | 2.50 us | 0.50 | x |\n\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	f.Rows, f.Peers = f.Rows[:1], f.Peers[:2]
	if got := must.Get[string](t)(UpdatePage(page, []*results.File{f}, nil)); strings.Contains(got, "below 0.8 | S") || strings.Contains(got, "64 MB") {
		t.Errorf("a case that misses nothing is named:\n%s", got)
	}
	if got := must.Get[string](t)(UpdatePage(page, nil, nil)); !strings.Contains(got, "Not measured yet.") {
		t.Errorf("without files: got\n%s", got)
	}
	if _, err := UpdatePage("", nil, nil); err == nil {
		t.Error("a page without markers gives no error")
	}
}
