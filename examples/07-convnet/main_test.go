package main

import (
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The program runs on small sizes, reads most digits (it fails if not), and its text, page and
// figures are there.
func TestConvnet(t *testing.T) {
	notebooktest.Run(t, title, files, func(p *notebook.Page) { run(p, options{1, 1}) }, 6,
		"func distort(", "func newNetwork(", "func (net *network) convolution(", "func (s *story) train(", "nearest neighbour", "2 epochs of 44 steps",
		"digits.png", "curves.png", "confusion.png", "mistakes.png", "filters.png", "launches.png")
}

func TestFlags(t *testing.T) {
	for _, o := range []options{{0, 1}, {1, 0}} {
		if err := notebook.Try(func() { run(new(notebook.Page), o) }); err == nil || !strings.Contains(err.Error(), "want at least 1") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// newStory returns a story of few digits.
func newStory(t *testing.T, f func(s *story)) {
	t.Helper()
	all, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	err = notebook.Run(notebook.Options{Device: "cpu", Small: true}, io.Discard, title, files, func(p *notebook.Page) {
		f(&story{Page: p, options: options{1, 2}, want: 0.999, all: all.Take(rand.New(rand.NewPCG(1, 2)).Perm(all.Len())[:120])})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// One seed makes one training, another seed another, and too many mistakes are an error.
func TestSeed(t *testing.T) {
	newStory(t, func(s *story) {
		var losses [3][]float64
		for i, seed := range []uint64{1, 1, 2} {
			losses[i] = notebook.Must(s.train(seed)).losses
		}
		if len(losses[0]) != 2 || !slices.Equal(losses[0], losses[1]) || slices.Equal(losses[0], losses[2]) {
			t.Errorf("got the losses %v of seed 1, %v of seed 1 again, and %v of seed 2", losses[0], losses[1], losses[2])
		}
		if err := notebook.Try(func() { training(s) }); err == nil || !strings.Contains(err.Error(), "want at least 99.9 %") {
			t.Errorf("hardly trained: got %v, want an error", err)
		}
	})
}

// values are a node's, in double.
func values(n *G.Node) []float64 {
	var out []float64
	for _, v := range n.Value().Data().([]float32) {
		out = append(out, float64(v))
	}
	return out
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

// cost is the mean loss of images, by the formulas of the network.
func (net *network) cost(set digits.Set) (sum float64) {
	var p [][]float64
	for _, n := range net.parameters {
		p = append(p, values(n))
	}
	for i, label := range set.Labels {
		var h []float64
		for _, v := range set.Image(i) {
			h = append(h, float64(v))
		}
		h = halves(convolve(h, 1, 8, p[0], p[1]), 8)
		h = convolve(h, len(p[1]), 4, p[2], p[3])
		h = halves(convolve(h, len(p[3]), 4, p[4], p[5]), 4)
		all, chosen := 0.0, 0.0
		for k, score := range p[7] {
			for j, v := range h {
				score += v * p[6][j*digits.Classes+k]
			}
			all += math.Exp(score)
			if k == label {
				chosen = score
			}
		}
		sum += (math.Log(all) - chosen) / float64(set.Len())
	}
	return sum
}

// The loss is that of the formulas, and the gradient is its derivative.
func TestNetwork(t *testing.T) {
	all, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	set, r := all.Take([]int{3, 14}), rand.New(rand.NewPCG(7, 8))
	net := newNetwork(set.Len(), 0)
	if err := net.initialise(r); err != nil {
		t.Fatal(err)
	}
	if err := net.feed(set); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(net.parameters); i += 2 { // biases: at 0, rectifiers of paper are just where they bend
		for k := range net.parameters[i].Value().Data().([]float32) {
			net.parameters[i].Value().Data().([]float32)[k] = float32(r.NormFloat64() / 10)
		}
	}
	if _, err := G.Grad(net.loss, net.parameters...); err != nil {
		t.Fatal(err)
	}
	vm, err := cudaops.NewVM(net.graph, cudaops.OnHost())
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	if got, want := float64(net.loss.Value().Data().(float32)), net.cost(set); math.Abs(got-want) > 1e-5 {
		t.Errorf("the loss is %v, want %v", got, want)
	}
	for i, label := range set.Labels {
		if digit, probability := net.answer(i); digit < 0 || digit >= digits.Classes || !(probability >= 0.1 && probability <= 1) {
			t.Errorf("a %d is read as %d with probability %v", label, digit, probability)
		}
	}
	notebooktest.Slopes(t, r, net.parameters, 3, 1e-4, func() float64 { return net.cost(set) }) // little, since rectifiers and maxima bend
}

// A distorted image has as much ink as before, but for the edges, and is another one each time.
func TestDistort(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	image := make([]float32, digits.Pixels)
	for _, i := range []int{27, 28, 35, 36} {
		image[i] = 1
	}
	var last []float32
	for range 100 {
		out, ink := distort(r, image), float32(0)
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

// An epoch has each image once, in an order of its own, and can be entered in its middle.
func TestDistorted(t *testing.T) {
	all, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	net := newNetwork(10, 0)
	set := all.Take([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22})
	labels := func(epoch, from int) (list [][]float32) {
		for b, err := range net.distorted(set, 1).Batches(epoch, from) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, append(b[net.x].Data().([]float32), b[net.y].Data().([]float32)...))
		}
		return list
	}
	first, second := labels(0, 0), labels(1, 0)
	if len(first) != 2 || len(second) != 2 || slices.Equal(first[0], second[0]) {
		t.Errorf("%d and %d batches, want 2 of each epoch, not the same", len(first), len(second))
	}
	if rest := labels(0, 1); len(rest) != 1 || !slices.Equal(rest[0], first[1]) {
		t.Error("what begins after the first batch is not the second one")
	}
	if shape := tensor.Shape(net.x.Shape()); !shape.Eq(tensor.Shape{10, 1, 8, 8}) {
		t.Errorf("batches of shape %v", shape)
	}
}

// The nearest neighbour is the training image that differs least.
func TestNearestNeighbour(t *testing.T) {
	all, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	training := all.Take([]int{0, 1, 2})
	held := all.Take([]int{2, 0})
	if got := nearestNeighbour(training, held); got != 0 {
		t.Errorf("%d mistakes with images that are known, want none", got)
	}
	held.Labels = []int{9, held.Labels[1]}
	if got := nearestNeighbour(training, held); got != 1 {
		t.Errorf("%d mistakes, want 1", got)
	}
}
