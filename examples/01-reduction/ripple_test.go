package main

import (
	"bytes"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// Both pictures are files, four dots for each element; the right one is the formula
// pixel by pixel; the racy one is not, and its picture is marked.
func TestRipple(t *testing.T) {
	var log bytes.Buffer
	o := notebook.Options{Out: t.TempDir(), Small: true, Device: "cpu"}
	if err := notebook.Run(o, &log, "Ripple", nil, ripple); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for _, want := range []string{"__device__ T amplitude", "if (BARRIER) __syncthreads();", "ripple.png", "ripple-racy-wrong.png", "wrong on purpose"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the text has no %q", want)
		}
	}
	differing := map[string]int{}
	for _, name := range []string{"ripple.png", "ripple-racy-wrong.png"} {
		f, err := os.Open(filepath.Join(o.Out, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		picture, err := png.Decode(f)
		if err != nil {
			t.Fatal(err)
		}
		// The figure has a margin of 24 pixels, and two dots for a pixel each way.
		if size := picture.Bounds().Dx(); size != 2*(256+2*24) {
			t.Fatalf("%s is %d dots wide, want 256 pixels and the margins in a test", name, size)
		}
		for y := range 256 {
			for x := range 256 {
				got, want := color.RGBAModel.Convert(picture.At(2*(24+x), 2*(24+y))).(color.RGBA), colour(expected(x, y))
				// An amplitude next to the edge between two colours may be rounded to either.
				if got != want && got != colour(expected(x, y)+1e-5) && got != colour(expected(x, y)-1e-5) {
					differing[name]++
				}
			}
		}
	}
	if differing["ripple.png"] != 0 || differing["ripple-racy-wrong.png"] == 0 {
		t.Errorf("pixels that are not the formula's: %v, want none of ripple.png and some of the other", differing)
	}
}

// The check of the right picture finds one wrong element, and many in the racy
// picture of the host.
func TestWrong(t *testing.T) {
	const tiles, side = 8, 8 * versions.RippleTile
	pictures := [2][]float32{make([]float32, side*side), make([]float32, side*side)}
	for i, plan := range []*kernels.Plan{versions.Ripple(kernels.Float32, tiles, tiles), versions.RippleRacy(kernels.Float32, tiles, tiles)} {
		if err := plan.Run(nil, kernels.Bytes(pictures[i]), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := wrong(pictures[0], side); n != 0 {
		t.Errorf("with the barrier %d elements are wrong", n)
	}
	if n := wrong(pictures[1], side); n < side*side/4 {
		t.Errorf("without the barrier %d elements of %d are wrong, want a quarter at least", n, side*side)
	}
	pictures[0][side+3] += 0.001
	if n := wrong(pictures[0], side); n != 1 {
		t.Errorf("%d wrong elements were found, want the one that was made wrong", n)
	}
}
