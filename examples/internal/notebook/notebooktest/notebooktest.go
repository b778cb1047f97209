// Package notebooktest holds helpers that the tests of all notebooks share.
package notebooktest

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"gorgonia.org/gorgonia"
)

// Run runs a notebook on small sizes. Its text must contain all of want, and its page that many
// figures and at most 2 MiB. It returns both, and the folder of the figures. With STHENO_PAGES, a folder, the first page of a notebook is left there.
func Run(t *testing.T, title string, files fs.FS, run func(*notebook.Page), pictures int, want ...string) (text, page, dir string) {
	t.Helper()
	dir = t.TempDir()
	o := notebook.Options{HTML: filepath.Join(dir, "page.html"), Out: dir, Small: true}
	var log bytes.Buffer
	if err := notebook.Run(o, &log, title, files, run); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	text = log.String()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("the text has no %q", w)
		}
	}
	if strings.Contains(text, "%!") {
		t.Error("the text has a formatting error")
	}
	html, err := os.ReadFile(o.HTML)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(html, []byte(`<figure id="`)); n != pictures || len(html) > 2<<20 {
		t.Errorf("the page has %d figures and %d bytes, want %d and at most 2 MiB", n, len(html), pictures)
	}
	if pages := os.Getenv("STHENO_PAGES"); pages != "" {
		here, err := os.Getwd()
		file := filepath.Join(pages, filepath.Base(here)+".html")
		if _, old := os.Stat(file); err == nil && errors.Is(old, fs.ErrNotExist) {
			err = os.WriteFile(file, html, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return text, string(html), dir
}

// Recorded checks that a record has every figure that the notebook shows, and none that
// bench/results has too. An empty record, {}, belongs to a notebook that has not run on a GPU yet:
// the test is skipped. Cases of the benchmarks that are to be measured again are left out. With
// STHENO_REQUIRE_EVIDENCE=1, as before a release, both fail.
func Recorded(t *testing.T, files fs.FS, run func(*notebook.Page)) {
	t.Helper()
	missing, twice, err := notebook.Unrecorded(files, run)
	if err != nil {
		t.Fatal(err)
	}
	const again = "record on a GPU (PARTS=gallery bench/gpu-run.sh)"
	if os.Getenv("STHENO_REQUIRE_EVIDENCE") != "1" {
		if recorded, err := fs.ReadFile(files, "recorded.json"); err != nil || string(bytes.TrimSpace(recorded)) == "{}" {
			t.Skipf("recorded.json is empty, and %d figures print as -; %s", len(missing), again)
		}
		timed := slices.Concat(maintain.Keys(records.Ops), maintain.Keys(records.Graphs))
		missing = slices.DeleteFunc(missing, func(m notebook.Missing) bool {
			return slices.Contains(timed, records.Key{Op: m.Case.Op, Case: m.Case.Name, Dtype: m.Case.Dtype})
		})
	}
	if len(missing) > 0 {
		t.Errorf("recorded.json lacks %d figures, which print as -; %s: %v", len(missing), again, missing)
	}
	if len(twice) > 0 {
		t.Errorf("recorded.json has figures that bench/results has, too, and which are shown from there; remove %q", twice)
	}
}

// Book writes a file of words, some of which often follow others, and returns its path.
func Book(t *testing.T, size int) (path string) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	words := strings.Fields("the light of a ray is bent where it enters glass, and colours part; what is white before the prism is red and blue behind it.")
	var b strings.Builder
	for at := 0; b.Len() < size; {
		at = (at + 1 + r.IntN(2)*r.IntN(len(words))) % len(words)
		b.WriteString(words[at])
		b.WriteByte(" \n"[r.IntN(12)/11])
	}
	path = filepath.Join(t.TempDir(), "book.txt")
	if err := os.WriteFile(path, []byte(b.String()[:size]), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Slopes checks the gradients of float32 parameters at elements drawn from r, that many of each
// parameter, against the slopes of cost, which computes the loss anew from the parameters' values,
// over steps of h to either side.
func Slopes(t *testing.T, r *rand.Rand, parameters gorgonia.Nodes, elements int, h float64, cost func() float64) {
	t.Helper()
	for _, p := range parameters {
		g, err := p.Grad()
		if err != nil {
			t.Fatal(err)
		}
		gradient, at := g.Data().([]float32), p.Value().Data().([]float32)
		for range elements {
			i := r.IntN(len(at))
			before := at[i]
			at[i] = before + float32(h)
			up, above := cost(), float64(at[i])
			at[i] = before - float32(h)
			slope := (up - cost()) / (above - float64(at[i]))
			at[i] = before
			if math.Abs(slope-float64(gradient[i])) > 1e-5+1e-3*math.Abs(slope) {
				t.Errorf("%s: the derivative by element %d is %v, want %v", p.Name(), i, gradient[i], slope)
			}
		}
	}
}
