package main

import (
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The program runs on small sizes, reads most digits (it fails if not), and its text, page and
// figures are there.
func TestConvnet(t *testing.T) {
	notebooktest.Run(t, title, files, func(p *notebook.Page) { run(p, "") }, 5,
		"func distorted(", "func model(", "func fit(", "func read(", "nearest neighbour", "are read wrong",
		"digits.png", "curves.png", "confusion.png", "mistakes.png", "filters.png")
}

// fitted trains with some digits.
func fitted(t *testing.T, seed uint64, epochs int, state string) (h train.History, parameters []cudaops.Learnable) {
	t.Helper()
	all, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	store := cudaops.NewStore()
	defer store.Close()
	some := all.Take(rand.New(rand.NewPCG(1, 2)).Perm(all.Len())[:170])
	err = notebook.Run(notebook.Options{Device: "cpu", Small: true}, io.Discard, title, files, func(p *notebook.Page) {
		training, held := some.Split(rand.New(rand.NewPCG(1, 0)))
		h = fit(store, p.On(), training, held, seed, epochs, state)
		parameters = notebook.Must(store.Parameters())
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range h.Epochs {
		h.Epochs[i].Time = 0
	}
	return h, parameters
}

// One seed makes one training, another seed another. A training that is over is not made again, and ends with its best epoch.
func TestFit(t *testing.T) {
	state := filepath.Join(t.TempDir(), "one")
	first, best := fitted(t, 1, 3, state)
	same, alike := fitted(t, 1, 3, filepath.Join(t.TempDir(), "same"))
	other, _ := fitted(t, 2, 3, filepath.Join(t.TempDir(), "other"))
	if len(first.Epochs) != 3 || !reflect.DeepEqual(first.Epochs, same.Epochs) || reflect.DeepEqual(first.Epochs, other.Epochs) || !equal(best, alike) {
		t.Errorf("got the epochs %v of seed 1, %v of seed 1 again, and %v of seed 2", first.Epochs, same.Epochs, other.Epochs)
	}
	again, loaded := fitted(t, 1, 3, state)
	if again.Steps != 0 || !reflect.DeepEqual(first.Epochs, again.Epochs) || !equal(best, loaded) {
		t.Errorf("run again it made %d steps and has the epochs %v, want none and %v", again.Steps, again.Epochs, first.Epochs)
	}
	if err := os.Remove(state + ".last"); err != nil {
		t.Fatal(err)
	}
	if from0, _ := fitted(t, 1, 3, state); from0.Steps != first.Steps {
		t.Errorf("without its state it made %d steps, want %d", from0.Steps, first.Steps)
	}
}

// equal reports whether parameters are equal.
func equal(a, b []cudaops.Learnable) bool {
	return len(a) == len(b) && slices.EqualFunc(a, b, func(x, y cudaops.Learnable) bool {
		return x.Name == y.Name && slices.Equal(x.Value.Data().([]float32), y.Value.Data().([]float32))
	})
}

// convolve is a convolution with its rectifier, of one image.
func convolve(in []float64, channels, side int, filters, biases []float64) (out []float64) {
	for f, bias := range biases {
		for y := range side {
			for x := range side {
				sum := bias
				for k := range channels * 9 {
					c, i, j := k/9, y+k/3%3-1, x+k%3-1
					if i >= 0 && i < side && j >= 0 && j < side {
						sum += in[(c*side+i)*side+j] * filters[f*channels*9+k]
					}
				}
				out = append(out, max(sum, 0))
			}
		}
	}
	return out
}

// halves is the greatest of each 2 x 2 elements of planes.
func halves(in []float64, side int) (out []float64) {
	for i := range len(in) / 4 {
		plane, y, x := i/(side*side/4), i/(side/2)%(side/2), i%(side/2)
		at := (plane*side+2*y)*side + 2*x
		out = append(out, max(in[at], in[at+1], in[at+side], in[at+side+1]))
	}
	return out
}

// The network has PyTorch's logits.
func TestPyTorch(t *testing.T) {
	notebooktest.Logits(t, func(store *cudaops.Store, pixels []float32, shape []int) []float32 {
		s := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation(), nn.Loaded())
		x, _, logits := model(s, shape[0])
		vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Outputs(logits)))
		defer vm.Close()
		testutil.Do(t, vm.Let(x, pixels))
		testutil.Do(t, vm.RunAll())
		return logits.Value().Data().([]float32)
	})
}

// A network reads what the formulas say, one image and several.
func TestRead(t *testing.T) {
	all, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	set, store := all.Take([]int{3, 14}), cudaops.NewStore()
	defer store.Close()
	s := nn.New(G.NewGraph(), nn.In(store), nn.Seed(testutil.Seed(t)))
	x, _, logits := model(s, 5)
	vm, err := s.NewVM(cudaops.OnHost())
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if shape := logits.Shape(); !shape.Eq(tensor.Shape{5, digits.Classes}) || x.Shape()[0] != 5 {
		t.Fatalf("got logits of shape %v for 5 images", shape)
	}
	var p [][]float64
	list, err := store.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "conv3.weight", "conv3.bias", "fc.weight", "fc.bias"} {
		if list[i].Name != name {
			t.Fatalf("parameter %d is %s, want %s", i, list[i].Name, name)
		}
		p = append(p, nil)
		for _, v := range list[i].Value.Data().([]float32) {
			p[i] = append(p[i], float64(v))
		}
	}
	logp, seen, filters := read(store, cudaops.OnHost(), set)
	one, _, _ := read(store, cudaops.OnHost(), set.Take([]int{1}))
	if len(seen) != 2*16*digits.Pixels || len(filters) != 16*9 {
		t.Errorf("got %d features and %d weights of filters, want those of 2 images and 16 filters", len(seen), len(filters))
	}
	for i := range set.Len() {
		var h []float64
		for _, v := range set.Image(i) {
			h = append(h, float64(v))
		}
		h = convolve(h, 1, 8, p[0], p[1])
		for k, v := range h {
			if got := float64(seen[i*16*digits.Pixels+k]); math.Abs(got-v) > 1e-5 {
				t.Fatalf("image %d: feature %d is %v, want %v", i, k, got, v)
			}
		}
		h = convolve(halves(h, 8), len(p[1]), 4, p[2], p[3])
		h = halves(convolve(h, len(p[3]), 4, p[4], p[5]), 4)
		scores, all := append([]float64(nil), p[7]...), 0.0
		for k := range scores {
			for j, v := range h {
				scores[k] += v * p[6][k*len(h)+j]
			}
			all += math.Exp(scores[k])
		}
		for k, score := range scores {
			want, got := score-math.Log(all), float64(logp[i*digits.Classes+k])
			if math.Abs(got-want) > 1e-5 || i == 1 && math.Abs(float64(one[k])-want) > 1e-5 {
				t.Errorf("image %d: the logarithm of the probability of %d is %v, and %v alone, want %v", i, k, got, one[k], want)
			}
		}
	}
}

// An epoch has each image once, in an order of its own, and can be entered in its middle.
func TestDistorted(t *testing.T) {
	all, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	s := nn.New(G.NewGraph())
	x, _, _ := model(s, 10)
	y := s.Input("y", tensor.Int, 10)
	set := all.Take([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22})
	batches := func(epoch, from int) (list [][]float32) {
		for b, err := range distorted(x, y, set, 1).Batches(epoch, from) {
			if err != nil {
				t.Fatal(err)
			}
			own := b[x].Data().([]float32)
			for _, label := range b[y].Data().([]int) {
				own = append(own, float32(label))
			}
			list = append(list, own)
		}
		return list
	}
	first, second := batches(0, 0), batches(1, 0)
	if len(first) != 2 || len(second) != 2 || slices.Equal(first[0], second[0]) {
		t.Errorf("%d and %d batches, want 2 of each epoch, not the same", len(first), len(second))
	}
	if rest := batches(0, 1); len(rest) != 1 || !slices.Equal(rest[0], first[1]) {
		t.Error("what begins after the first batch is not the second one")
	}
	if shape := s.Graph().Inputs()[0].Shape(); !shape.Eq(tensor.Shape{10, 1, 8, 8}) {
		t.Errorf("batches of shape %v", shape)
	}
}
