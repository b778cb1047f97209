package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
	"github.com/stheno-ml/stheno/examples/internal/opticks"
)

// The program runs on small sizes, its counts are right (it fails if not), and its
// text, page and figures are there.
func TestAtomics(t *testing.T) {
	notebooktest.Run(t, title, files, func(p *notebook.Page) { run(p, "") }, 4,
		"increment_racy_i32(", "struct Mutex", "struct TicketLock", "it should be 160", "void histogram_global(", "void histogram_shared(",
		"void histogram_columns(", "double thread_dot(", "void dot_mutex(", "version 3: an atomic", "s[tid + 1]", "waiting.png", "letters.png", "sweep.png", "scale.png")
}

func TestText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(path, []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := load(path, 8)
	if err != nil || string(got.bytes) != "abcabcab" || got.from != "the file text.txt" || !got.given {
		t.Errorf("got %q from %s, given %v, and error %v, want abcabcab from the file text.txt, given", got.bytes, got.from, got.given, err)
	}
	if counts := plain([]byte("abca\x80\xff")); counts['a'] != 2 || counts['b'] != 1 || counts['c'] != 1 {
		t.Errorf("counted %d a, %d b and %d c, want 2, 1 and 1", counts['a'], counts['b'], counts['c'])
	}
	if err := check("test", make([]int64, ascii.N), plain([]byte("a"))); err == nil {
		t.Error("a count that is missing was not found")
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{path, filepath.Join(t.TempDir(), "absent.txt")} {
		if _, err := load(bad, 8); err == nil || !strings.Contains(err.Error(), filepath.Base(bad)) {
			t.Errorf("%s: %v, want an error that names it", bad, err)
		}
	}
	t.Setenv("PATH", "")
	if got, err = load("", 1000); err != nil || len(got.bytes) != 1000 || got.given || !strings.Contains(got.from, "WAS NOT FOUND") || !strings.Contains(got.from, "go env GOROOT") {
		t.Errorf("without Go: %d bytes from %s and error %v, want 1000 and a loud note", len(got.bytes), got.from, err)
	}
}

// A copy of Newton's Opticks given by -text is the standard text; one that was
// changed is not.
func TestStandardText(t *testing.T) {
	path, err := opticks.Path()
	if err != nil {
		t.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), filepath.Base(path))
	for _, want := range []letters{{text, opticks.Name, false}, {append([]byte("x"), text[1:]...), "the file " + filepath.Base(path), true}} {
		if err := os.WriteFile(copied, want.bytes, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := load(copied, len(text))
		if err != nil || !bytes.Equal(got.bytes, want.bytes) || got.from != want.from || got.given != want.given {
			t.Errorf("%d bytes from %s, given %v, and error %v, want %d from %s, given %v", len(got.bytes), got.from, got.given, err, len(text), want.from, want.given)
		}
	}
}

// The slip hides where all values are equal, and nowhere else.
func TestTree(t *testing.T) {
	values := make([]float64, 16)
	for i := range values {
		values[i] = float64(i * i)
	}
	// 1, 4, 6, 4 and 1 times the first five
	if right, wrong := tree(values, false), tree(values, true); right != 1240 || wrong != 4+24+36+16 {
		t.Errorf("got %v, and %v with the slip, want 1240 and 80", right, wrong)
	}
}

// The record has every figure that the program shows.
func TestRecordIsComplete(t *testing.T) {
	notebooktest.Recorded(t, files, func(p *notebook.Page) { run(p, "") })
}
