package notebook

import (
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// The pages of all notebooks and that of the sample are right. They are built here as `make gallery`
// builds them, with small sizes, or are those that the tests of the notebooks left in a folder; what was recorded on a GPU is of the full sizes.
func TestGallery(t *testing.T) {
	pages := buildGallery(t)
	sampled := filepath.Join(t.TempDir(), "sample.html")
	testutil.Do(t, Run(Options{HTML: sampled, Device: "cpu", Small: true}, io.Discard, "A <title>", withRecord(record1), sample))
	pages = append([]string{sampled}, pages...)
	t.Run("texts", func(t *testing.T) { checkTexts(t, pages) })
	t.Run("times", func(t *testing.T) { checkTimes(t, pages) })
	t.Run("browser", func(t *testing.T) { checkInBrowser(t, pages) })
}

// buildGallery returns the paths of the notebooks' pages.
func buildGallery(t *testing.T) (pages []string) {
	t.Helper()
	dir := os.Getenv("STHENO_GALLERY")
	if dir == "" {
		t.Skip("SKIPPED, NOT TESTED: the pages of the notebooks are built where STHENO_GALLERY is 1")
	}
	notebooks := testutil.Get[[]string](t)(filepath.Glob("../../[0-9]*"))
	if len(notebooks) < 8 {
		t.Fatalf("got the notebooks %q, want at least 8", notebooks)
	}
	if dir != "1" { // the tests of the notebooks have built them
		for _, n := range notebooks {
			pages = append(pages, filepath.Join(dir, filepath.Base(n)+".html"))
		}
		return pages
	}
	dir = t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	args := []string{"build", "-ldflags=-s -w", "-o", dir}
	for _, n := range notebooks {
		args = append(args, "./"+n)
	}
	run("go", args...)
	for _, n := range notebooks {
		program := filepath.Join(dir, filepath.Base(n))
		pages = append(pages, program+".html")
		run(program, "-device", "cpu", "-small", "-out", "", "-html", program+".html")
	}
	return pages
}

// checkTexts finds texts of figures that stand on one another or outside of their drawing.
func checkTexts(t *testing.T, pages []string) {
	for _, path := range pages {
		text := string(testutil.Get[[]byte](t)(os.ReadFile(path)))
		list, _ := labels(t, text)
		if found := collisions(t, text); len(found) > 0 || len(list) == 0 {
			t.Errorf("%s: of %d drawings: %q", path, len(list), found)
		}
	}
	if found := collisions(t, `<svg viewBox="0 0 50 20"><text x="1" y="-8" font-size="10" textLength="20">a</text><text x="15" y="-5" font-size="10" textLength="40">b</text></svg>`); len(found) != 2 {
		t.Errorf("found %q, want a collision and a clipped text", found)
	}
}

// checkTimes looks up the times of the benchmarks, which a page names at its end, in the tables of
// README.md and docs.
func checkTimes(t *testing.T, pages []string) {
	var lines []string
	for _, path := range append(testutil.Get[[]string](t)(filepath.Glob("../../../docs/*.md")), "../../../README.md") {
		lines = append(lines, strings.Split(strings.ReplaceAll(string(testutil.Get[[]byte](t)(os.ReadFile(path))), "`", ""), "\n")...)
	}
	named := 0
	for _, path := range pages {
		text := html.UnescapeString(string(testutil.Get[[]byte](t)(os.ReadFile(path))))
		_, note, _ := strings.Cut(text, "These times are medians of the benchmarks' runs")
		note, _, _ = strings.Cut(note, "</p>")
		note = raised.ReplaceAllStringFunc(note, func(s string) string { return "^" + digits.Replace(s) })
		for _, m := range noted.FindAllStringSubmatch(note, -1) {
			named++
			row, time := "| "+m[1]+" | "+m[2]+" | ", " "+strings.Replace(m[4], "µs", "us", 1)+" |"
			found := slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, row) && strings.Contains(line, time) })
			if !found {
				t.Errorf("%s has the time %q, which no document has", path, m[0])
			}
		}
	}
	if named < 8 {
		t.Errorf("%d pages name %d times of the benchmarks, want 8 at least", len(pages), named)
	}
}

var (
	noted  = regexp.MustCompile(`<code>([^<]+)</code> ([^<(]+?) (float32|float64|u8)(?: by [^<(]+?)? ([\d.]+ (?:µs|ms)) \(\d{4}-\d\d-\d\d\)`)
	digits = strings.NewReplacer("⁰", "0", "¹", "1", "²", "2", "³", "3", "⁴", "4", "⁵", "5", "⁶", "6", "⁷", "7", "⁸", "8", "⁹", "9")
	raised = regexp.MustCompile(`[⁰¹²³⁴⁵⁶⁷⁸⁹]+`)
)

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
