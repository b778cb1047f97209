package main

import (
	"bytes"
	"encoding/json"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// The program runs on small sizes, its sums are right (it fails if not), and
// its text, page and figures are there.
func TestStepByStep(t *testing.T) {
	notebooktest.Run(t, title, recorded, func(p *notebook.Page) error { return run(p, "") }, 3,
		"Step 1: one thread", "void sum_thread(", "double tree_sum(", "void reduce_rows(", "6: the op, ops.Sum", "steps.png", "sums-by-size.png")
}

// A file is scaled to the mean of the pixels, and the error about a file that is no picture names it.
func TestPicture(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 96, 48))
	want := 0.0
	for i := range img.Pix {
		img.Pix[i] = uint8(i * 7)
		want += float64(img.Pix[i]) / 255 / float64(len(img.Pix))
	}
	path := filepath.Join(t.TempDir(), "grey.png")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(f, img); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, side := range []int{1, 16, 48} {
		pixels, err := load(path, side)
		if err != nil {
			t.Fatal(err)
		}
		mean := 0.0
		for _, v := range pixels {
			mean += float64(v) / float64(side*side)
		}
		if math.Abs(mean-want) > 1e-6 {
			t.Errorf("side %d: mean %v, want %v", side, mean, want)
		}
	}
	colours := image.NewRGBA(image.Rect(-3, 5, 4, 8)) // odd sizes, no origin
	for i := range colours.Pix {
		colours.Pix[i] = 0xff
	}
	for i, v := range scale(colours, 5) {
		if v != 1 {
			t.Errorf("pixel %d of a white picture is %v, want 1", i, v)
		}
	}
	for i, v := range draw(64) {
		if !(v >= 0 && v <= 1) {
			t.Fatalf("pixel %d of the drawn picture is %v, want 0 to 1", i, v)
		}
	}
	if _, err := load("main.go", 8); err == nil || !strings.Contains(err.Error(), "main.go") {
		t.Errorf("Go source as a picture: %v, want an error that names it", err)
	}
}

// Recorded times are those of the drawn picture. With a picture of one's own and no GPU, every
// paragraph, table and figure that has one says so, and none has a sum of this picture beside it.
func TestOwnPicture(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "white.png")
	white := image.NewGray(image.Rect(0, 0, 8, 8))
	for i := range white.Pix {
		white.Pix[i] = 0xff
	}
	var file bytes.Buffer
	testutil.Do(t, png.Encode(&file, white))
	testutil.Do(t, os.WriteFile(path, file.Bytes(), 0o666))
	text := func(path string) string {
		t.Helper()
		var log bytes.Buffer
		o := notebook.Options{Out: dir, Device: "cpu", Small: true}
		testutil.Do(t, notebook.Run(o, &log, title, recorded, func(p *notebook.Page) error { return run(p, path) }))
		return log.String()
	}
	var record struct {
		Figures map[string]struct{ Value float64 }
	}
	testutil.Do(t, json.Unmarshal(recorded, &record))
	var times []string
	for key, f := range record.Figures {
		if strings.HasPrefix(key, "512x512") && strings.HasSuffix(key, "mean") {
			times = append(times, notebook.Micros(f.Value).String())
		}
	}
	page := text(path)
	op := regexp.MustCompile(`all 512x512 float32 ([\d.]+ µs)`).FindStringSubmatch(strings.Join(strings.Fields(page), " "))
	if op == nil {
		t.Fatal("the page does not say that the op's time is the benchmarks'")
	}
	times = append(times, op[1])
	const sum = "262144.0000" // of 512 x 512 white pixels
	own, separate := 0, 0
	for block := range strings.SplitSeq(page, "\n\n") {
		step := strings.Contains(block, "takes") || strings.Contains(block, ": one thread")
		has := step && slices.ContainsFunc(times, func(s string) bool { return strings.Contains(strings.Join(strings.Fields(block), " "), s) })
		if has {
			separate++
			if !strings.Contains(block, "the drawn picture") || strings.Contains(block, sum) {
				t.Errorf("recorded times of the drawn picture, as if they were of another one:\n%s", block)
			}
		}
		if strings.Contains(block, sum) {
			own++
		}
	}
	if len(times) != 6 || separate != 7 || own != 2 { // six steps and a table; a caption and a table
		t.Errorf("%d recorded times are in %d places, the sum in %d, want 6, 7 and 2", len(times), separate, own)
	}
	if drawn := text(""); strings.Contains(drawn, "drawn picture") || !strings.Contains(drawn, times[0]) {
		t.Errorf("without -picture the text has the drawn picture apart, or lacks the time %s:\n%s", times[0], drawn)
	}
}

// The record has every figure that the program shows.
func TestRecordIsComplete(t *testing.T) {
	notebooktest.Recorded(t, recorded, func(p *notebook.Page) error { return run(p, "") })
}
