package main

import (
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The program runs on small sizes, learns (it fails if not), and its text, page and figures are
// there.
func TestText(t *testing.T) {
	notebooktest.Run(t, title, files, func(p *notebook.Page) { run(p, options{text: notebooktest.Book(t, 70_000), seed: 1}) }, 2,
		"the file book.txt", "func (c *counts) probability(", "func newNetwork(", "func (net *network) cell(", "func (s *story) train(",
		"after 0 steps", "after 120 steps", "letters a second, on", "bits.png", "surprises.png")
}

// A text is split into a part to read and a part held out, and knows its letters.
func TestLoad(t *testing.T) {
	path := notebooktest.Book(t, least)
	got, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.string(append(slices.Clone(got.read), got.held...)) != string(content) || len(got.held) != least/20 || got.name != "the file book.txt" {
		t.Errorf("got %d and %d letters of %s, want all %d of the file, a twentieth held out", len(got.read), len(got.held), got.name, least)
	}
	if _, err := load(notebooktest.Book(t, least-1)); err == nil || !strings.Contains(err.Error(), "49999 bytes, want at least 50000") {
		t.Errorf("a text that is too short: %v", err)
	}
	if _, err := load(filepath.Join(t.TempDir(), "absent.txt")); err == nil || !strings.Contains(err.Error(), "absent.txt") {
		t.Errorf("a text that is not there: %v", err)
	}
	t.Setenv("PATH", "")
	if _, err := load(""); err == nil || !strings.Contains(err.Error(), "-text book.txt") {
		t.Errorf("no Go: %v, want an error that says what to do", err)
	}
}

// Counts are mixed by Witten and Bell's rule, and the probabilities of all letters add up to 1.
func TestCounts(t *testing.T) {
	// abab a: after a came b twice; letters a 3, b 2 of three kinds
	c := newCounts([]int{0, 1, 0, 1, 0}, 3, 1)
	single := (2 + 2*(1./3)) / (5 + 2) // of b: twice of 5, and 2 kinds' share of a third
	after := (2 + 1*single) / (2 + 1)
	if got := c.probability("\x00", 1, 1); math.Abs(got-after) > 1e-15 {
		t.Errorf("b after a has probability %v, want %v", got, after)
	}
	if got, want := c.bits([]int{1, 0, 1}, 1), -(math.Log2(single)+math.Log2(c.probability("\x01", 1, 0))+math.Log2(after))/3; math.Abs(got-want) > 1e-12 {
		t.Errorf("bab costs %v bits a letter, want %v", got, want)
	}
	for _, before := range []string{"\x00", "\x01", "\x02"} {
		sum := 0.0
		for next := range 3 {
			sum += c.probability(before, 1, next)
		}
		if math.Abs(sum-1) > 1e-12 {
			t.Errorf("the probabilities after letter %d add up to %v", before[0], sum)
		}
	}
}

// random sets a network to random parameters, memory and letters.
func (net *network) random(t *testing.T, r *rand.Rand) (x, y []int) {
	t.Helper()
	for _, n := range append(G.Nodes{net.h0, net.c0}, net.parameters...) {
		values := make([]float32, n.Shape().TotalSize())
		for i := range values {
			values[i] = float32(r.NormFloat64() / 2)
		}
		let(t, n, values)
	}
	for range net.lines * net.length {
		x, y = append(x, r.IntN(net.letters)), append(y, r.IntN(net.letters))
	}
	let(t, net.x, x)
	let(t, net.y, y)
	return x, y
}

func let(t *testing.T, n *G.Node, values any) {
	t.Helper()
	if err := G.Let(n, tensor.New(tensor.WithShape(n.Shape()...), tensor.WithBacking(values))); err != nil {
		t.Fatal(err)
	}
}

// values are a node's, in double.
func values(n *G.Node) []float64 {
	var out []float64
	for _, v := range n.Value().Data().([]float32) {
		out = append(out, float64(v))
	}
	return out
}

// cost is the mean cost of the letters of all lines, in nats: the formulas of the network, cell by cell.
func (net *network) cost(x, y []int) float64 {
	table, recurrent, weights, bias := values(net.parameters[0]), values(net.parameters[1]), values(net.parameters[2]), values(net.parameters[3])
	h0, c0, size, sum := values(net.h0), values(net.c0), net.hidden, 0.0
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	for line := range net.lines {
		h, c := h0[line*size:][:size], c0[line*size:][:size]
		for t := range net.length {
			gates := slices.Clone(table[x[line*net.length+t]*4*size:][:4*size])
			for k := range gates {
				for i := range size {
					gates[k] += h[i] * recurrent[i*4*size+k]
				}
			}
			nextH, nextC := make([]float64, size), make([]float64, size)
			for i := range size {
				nextC[i] = sigmoid(gates[i])*c[i] + sigmoid(gates[size+i])*math.Tanh(gates[3*size+i])
				nextH[i] = sigmoid(gates[2*size+i]) * math.Tanh(nextC[i])
			}
			h, c = nextH, nextC
			all, chosen := 0.0, 0.0
			for k := range net.letters {
				score := bias[k]
				for i := range size {
					score += h[i] * weights[i*net.letters+k]
				}
				all += math.Exp(score)
				if k == y[line*net.length+t] {
					chosen = score
				}
			}
			sum += math.Log(all) - chosen
		}
	}
	return sum / float64(net.lines*net.length)
}

// The loss is that of the formulas, and the gradient is its derivative: with more letters than 256 too, where
// Gorgonia takes some slices for others.
func TestNetwork(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	net := newNetwork(sizes{hidden: 3, lines: 32, length: 11}, 5, 0).withLoss()
	x, y := net.random(t, r)
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
	if got, want := float64(net.loss.Value().Data().(float32)), net.cost(x, y); math.Abs(got-want) > 1e-5 {
		t.Errorf("the loss is %v, want %v", got, want)
	}
	notebooktest.Slopes(t, r, net.parameters, 8, 1e-2, func() float64 { return net.cost(x, y) })
}

// newStory returns a story of a small network on a page that nobody reads.
func newStory(t *testing.T, seed uint64, f func(s *story)) {
	t.Helper()
	text, err := load(notebooktest.Book(t, least))
	if err != nil {
		t.Fatal(err)
	}
	err = notebook.Run(notebook.Options{Device: "cpu", Small: true}, io.Discard, title, files, func(p *notebook.Page) {
		s := &story{Page: p, options: options{steps: 8, seed: seed}, sizes: sizes{8, 4, 6}, text: text}
		s.net = newNetwork(s.sizes, len(text.letters), 0).withLoss()
		s.net.initialise(rand.New(rand.NewPCG(seed, 0)), text.read)
		f(s)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Letter by letter or in lines, with the memory handed from run to run, a text costs the same.
func TestJudge(t *testing.T) {
	newStory(t, 1, func(s *story) {
		held := s.text.held[:61]
		j, w := s.newReader(1, 12), s.newReader(1, 1)
		defer j.vm.Close()
		defer w.vm.Close()
		got, want := j.bits(s.net, held), 0.0
		w.begin(s.net)
		for i, letter := range held[:60] {
			want -= float64(w.take(letter)[held[i+1]]) / math.Ln2 / 60
		}
		if math.Abs(got-want) > 1e-5 {
			t.Errorf("in lines a letter costs %v bits, one by one %v", got, want)
		}
	})
}

// One seed makes one training and one text, another seed others.
func TestSeed(t *testing.T) {
	one := func(seed uint64) (losses []float64, written string) {
		newStory(t, seed, func(s *story) {
			h, vm, err := s.train(func(int) error { return nil })
			notebook.Check(err)
			defer vm.Close()
			for _, l := range h.Losses {
				losses = append(losses, l.Loss)
			}
			w := s.newReader(1, 1)
			defer w.vm.Close()
			written = w.write(s.net, &s.text, 20, seed)
		})
		return losses, written
	}
	losses, written := one(1)
	again, text := one(1)
	if len(losses) != 8 || !slices.Equal(losses, again) || text != written {
		t.Errorf("one seed gives the losses %v and the text %q, then %v and %q", losses, written, again, text)
	}
	if other, text := one(2); slices.Equal(losses, other) || text == written {
		t.Errorf("two seeds give the losses %v and the text %q", other, text)
	}
}

// A network that is worse than counting is an error.
func TestCompare(t *testing.T) {
	s := &story{Page: new(notebook.Page), counts: []float64{4, 3.5, 3}, points: []point{{0, 4}, {10, 3.2}}}
	if err := notebook.Try(s.compare); err == nil || !strings.Contains(err.Error(), "costs 3.20 bits, want less than the 3.00") {
		t.Errorf("got %v, want an error that says what counting needs", err)
	}
}
