package digits

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// A distorted image has as much ink as before, but for the edges, and is another one each time.
func TestDistort(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	image := make([]float32, Pixels)
	for _, i := range []int{27, 28, 35, 36} {
		image[i] = 1
	}
	var last []float32
	for range 100 {
		out, ink := Distort(r, image), float32(0)
		for _, v := range out {
			if !(v >= 0 && v <= 1.0001) {
				t.Fatalf("a pixel is %v, want 0 to 1", v)
			}
			ink += v
		}
		if ink < 2.5 || ink > 6 || slices.Equal(out, last) {
			t.Fatalf("%v of ink, want about 4; the same as before: %v", ink, slices.Equal(out, last))
		}
		last = out
	}
	for at, want := range map[[2]float64]float32{{3, 3}: 1, {2.5, 3}: 0.5, {2.5, 2.5}: 0.25, {-3, 9}: 0, {4.75, 4}: 0.25} {
		if got := between(image, at[0], at[1]); got != want {
			t.Errorf("the ink at %v is %v, want %v", at, got, want)
		}
	}
}

// A digit drawn larger is the same drawing: means over its pixels are near those of the smaller one, whose number of pixels it has four times in each direction.
func TestDistortTo(t *testing.T) {
	const zoom = 4
	image := make([]float32, Pixels)
	for _, i := range []int{27, 28, 35, 36} {
		image[i] = 1
	}
	seed := testutil.Seed(t)
	small, large := Distort(rand.New(rand.NewPCG(seed, 1)), image), DistortTo(rand.New(rand.NewPCG(seed, 1)), image, zoom*Side)
	for i, want := range small {
		mean := float32(0)
		for k := range zoom * zoom {
			mean += large[(i/Side*zoom+k/zoom)*zoom*Side+i%Side*zoom+k%zoom] / (zoom * zoom)
		}
		if d := mean - want; d < -0.3 || d > 0.3 {
			t.Errorf("seed %d: the mean at pixel %d is %v, want about %v", seed, i, mean, want)
		}
	}
	if len(large) != len(small)*zoom*zoom {
		t.Errorf("got %d pixels, want %d", len(large), len(small)*zoom*zoom)
	}
}

// The nearest neighbour is the training image that differs least.
func TestNearestNeighbour(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	training := all.Take([]int{0, 1, 2})
	held := all.Take([]int{2, 0})
	if got := NearestNeighbour(training, held); got != 0 {
		t.Errorf("%d mistakes with images that are known, want none", got)
	}
	held.Labels = []int{9, held.Labels[1]}
	if got := NearestNeighbour(training, held); got != 1 {
		t.Errorf("%d mistakes, want 1", got)
	}
}
