package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/tensor"
)

// The tests' binary is the program if a test started it as the other process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-file" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The program runs on small sizes, learns in two processes (it fails if not), and its text, page and figures are there.
func TestGPT(t *testing.T) {
	text, _, _ := notebooktest.Run(t, title, files, func(p *notebook.Page) { run(p, notebooktest.Book(t, 70_000), "") }, 2,
		"the file book.txt, 70000 letters", "func (m *gpt) logits(", "func (m *gpt) train(", "After 133 steps", "the other process", "func (m *gpt) write(", "bits.png", "attention.png")
	if n := strings.Count(text, "what it writes"); n != 2 {
		t.Errorf("the network writes %d times, want 2", n)
	}
}

// A training in two parts, of which the second one finds the file of the first one and an empty store, has the parameters of one that was not ended, and writes
// the same.
func TestTwoParts(t *testing.T) {
	text := testutil.Get[[]byte](t)(os.ReadFile(notebooktest.Book(t, 50_000)))
	newGPT := func(p *notebook.Page) *gpt {
		return &gpt{Page: p, layers: 1, width: 8, heads: 2, context: 8, batch: 4, steps: 12, read: text[:4001], held: text[4000:4097], store: cudaops.NewStore()}
	}
	var written [2]string
	var bits [2]float64
	testutil.Do(t, notebook.Run(notebook.Options{Device: "cpu", Small: true}, new(strings.Builder), title, files, func(p *notebook.Page) {
		whole := newGPT(p)
		whole.train(filepath.Join(t.TempDir(), "whole.safetensors"), 12)
		written[0], bits[0] = whole.write("the "), whole.bits()
		file := filepath.Join(t.TempDir(), "parts.safetensors")
		newGPT(p).train(file, 5)
		rest := newGPT(p)
		rest.train(file, 12)
		written[1], bits[1] = rest.write("the "), rest.bits()
	}))
	if written[0] != written[1] || bits[0] != bits[1] || !strings.HasPrefix(written[0], "the ") {
		t.Errorf("got %q, %v bits, of a training in two parts, want %q, %v bits", written[1], bits[1], written[0], bits[0])
	}
}

// A letter is guessed from those before it alone, and with the cache as without.
func TestCache(t *testing.T) {
	m := &gpt{layers: 2, width: 8, heads: 2, context: 6, store: cudaops.NewStore()}
	letters := []byte("light")
	logits := func(letters []byte, opts ...nn.Option) []float32 {
		s := m.scope(append(opts, nn.Evaluation())...)
		n := len(letters)
		if len(opts) > 0 {
			n = 1
		}
		x := s.Input("x", tensor.Uint8, 1, n)
		y := m.logits(s, x)
		vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Outputs(y)))
		defer vm.Close()
		for i := 0; i < len(letters); i += n {
			testutil.Do(t, vm.Let(x, letters[i:i+n]))
			testutil.Do(t, vm.RunAll())
		}
		all := y.Value().Data().([]float32)
		return all[len(all)-256:]
	}
	for n := 1; n <= len(letters); n++ {
		want, got := logits(letters[:n]), logits(letters[:n], nn.Cached(m.context))
		for i := range want {
			if d := got[i] - want[i]; d > 1e-4 || d < -1e-4 {
				t.Fatalf("%d letters: logit %d is %v with a cache, want %v", n, i, got[i], want[i])
			}
		}
	}
}

// The network has PyTorch's logits, of the last four letters of each line.
func TestPyTorch(t *testing.T) {
	notebooktest.Logits(t, func(store *cudaops.Store, letters []byte, shape []int) (logits []float32) {
		m := &gpt{layers: 2, width: 32, heads: 2, context: shape[1], store: store}
		s := m.scope(nn.Evaluation(), nn.Loaded())
		x := s.Input("x", tensor.Uint8, shape[0], m.context)
		y := m.logits(s, x)
		vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Outputs(y)))
		defer vm.Close()
		testutil.Do(t, vm.Let(x, letters))
		testutil.Do(t, vm.RunAll())
		for line := range slices.Chunk(y.Value().Data().([]float32), 256*m.context) {
			logits = append(logits, line[256*(m.context-4):]...)
		}
		return logits
	})
}
