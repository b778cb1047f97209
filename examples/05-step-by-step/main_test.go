package main

import (
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
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

// The record has every figure that the program shows.
func TestRecordIsComplete(t *testing.T) {
	notebooktest.Recorded(t, recorded, func(p *notebook.Page) error { return run(p, "") })
}
