package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
	"github.com/stheno-ml/stheno/kernels"
)

// The program runs on small sizes, its results are right (it fails if not), and
// its text, page and figures are there.
func TestWindowAndMatmul(t *testing.T) {
	notebooktest.Run(t, title, files, func(p *notebook.Page) { run(p, "", "") }, 6,
		"void add_simple(", "func addByHand(", "func resident(", "void simple(", "void naive(", "struct Piece", "void tensor_as(",
		"Step 7: tensor cores", "struct Barriers", "Step 14: float32 again", "warpgroups.png", "vectors.png", "windows.png", "ladder.png", "sizes.png", "accuracy.png")
}

// By hand too, wrong lengths are errors, and a session is left as it was.
func TestByHand(t *testing.T) {
	s := cudaops.OpenHost()
	defer s.Close()
	out := make([]float32, 3)
	if _, err := addByHand(s, out, []float32{1, 2, 3}, []float32{1, 2}); err == nil || !strings.Contains(err.Error(), "equal lengths") {
		t.Errorf("two lengths: %v", err)
	}
	steps, err := addByHand(s, out, []float32{1, 2, 3}, []float32{10, 20, 30})
	if err != nil || len(steps) != 6 || out[0] != 11 || out[1] != 22 || out[2] != 33 {
		t.Errorf("got %v, %d times, %v", out, len(steps), err)
	}
}

// Chained by hand, with copies and without, for even and odd numbers of additions.
func TestChain(t *testing.T) {
	s := cudaops.OpenHost()
	defer s.Close()
	for name, chain := range map[string]func(s *cudaops.Session, out, a, b []float32, k int) error{"copyEach": copyEach, "resident": resident} {
		for _, k := range []int{1, 2, 5} {
			out := make([]float32, 2)
			if err := chain(s, out, []float32{1, 2}, []float32{10, 20}, k); err != nil || out[0] != 1+10*float32(k) || out[1] != 2+20*float32(k) {
				t.Errorf("%s, %d additions: got %v and %v, want %v and %v", name, k, out, err, 1+10*k, 2+20*k)
			}
		}
		if err := chain(s, make([]float32, 2), []float32{1, 2}, []float32{1}, 1); err == nil || !strings.Contains(err.Error(), "equal lengths") {
			t.Errorf("%s, two lengths: %v", name, err)
		}
	}
}

// The checks that all results pass fail on a result with one wrong element.
func TestCheck(t *testing.T) {
	const n = 64
	a, b, out := fill[float32](n*n, 1), fill[float32](n*n, 2), make([]float32, n*n)
	for _, s := range []square{{n: n, version: 4}, {n: n, version: 4, transA: true}} {
		plan, err := s.plan(kernels.HostDevice(), kernels.Float32)
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Run([][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(out), nil); err != nil {
			t.Fatal(err)
		}
		if err := check(s, a, b, kernels.Bytes(out)); err != nil {
			t.Error(err)
		}
		out[n-1] += 0.01
		if err := check(s, a, b, kernels.Bytes(out)); err == nil {
			t.Errorf("%+v: a wrong element was not found", s)
		}
	}
}

func TestReadCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counts.csv")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("==PROF== Connected\n\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\"0\",\"matmul_naive_f32\",\"x.sum\",\"byte\",\"1,234\"\n")
	c, err := readCounts(path)
	if err != nil || c["matmul_naive_f32"]["x.sum"] != 1234 {
		t.Errorf("got %v, %v", c, err)
	}
	write("==ERROR== permission\n")
	if _, err := readCounts(path); err == nil || !strings.Contains(err.Error(), "ncu --csv") {
		t.Errorf("no table: %v", err)
	}
	if _, err := readCounts("none.csv"); err == nil {
		t.Error("there is a file none.csv")
	}
}

func TestReadPeers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cublas.csv")
	for text, want := range map[string]string{"BF16 4096,190.5\n": "", "BF16 4096\n": "want a name and a time", "BF16 4096,fast\n": "invalid syntax"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		us, err := readPeers(path)
		if want == "" && (err != nil || us["BF16 4096"] != 190.5) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, %v, want %q", text, us, err, want)
		}
	}
}

// The record has every figure that the program shows.
func TestRecordIsComplete(t *testing.T) {
	notebooktest.Recorded(t, files, func(p *notebook.Page) { run(p, "", "") })
}
