package toolkit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

func TestFindKnowsLayouts(t *testing.T) {
	for name, l := range map[string]layout{"installer": installed, "targets": targets, "debian": debian,
		"wheels 12": wheels12, "wheels 13": wheels13, "venv": venv} {
		root := filepath.Join(t.TempDir(), "a [b]")
		fake(t, root, l, 12040, 9)
		got, err := Find([]string{root}, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.CUDA != "12.4" || got.CUDNN != "9.5.1" {
			t.Errorf("%s: CUDA %s, cuDNN %s, want 12.4 and 9.5.1", name, got.CUDA, got.CUDNN)
		}
		for _, dir := range []string{l.cuda, l.cublas, l.dnn} {
			if !slices.Contains(got.Include, filepath.Join(root, dir)) {
				t.Errorf("%s: headers in %q, want %s among them", name, got.Include, dir)
			}
		}
		if want := []string{filepath.Join(root, l.cublasLib), filepath.Join(root, l.dnnLib)}; !slices.Equal(got.Libraries, want) {
			t.Errorf("%s: libraries %q, want %q", name, got.Libraries, want)
		}
	}
}

func TestFindTellsWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		name   string
		cuda   int
		remove string
		want   string
	}{
		{"no cuda.h", 12040, "include/cuda.h", "lacks cuda.h"},
		{"no cuBLAS header", 12040, "include/cublas_v2.h", "lacks cublas_v2.h"},
		{"no cuBLAS", 12040, "lib64/libcublas.so", "lacks libcublas.so"},
		{"no cuDNN header", 12040, "include/cudnn.h", "lacks cudnn.h"},
		{"no cuDNN", 12040, "lib64/libcudnn.so", "lacks libcudnn.so"},
		{"old CUDA", 10020, "", "it is CUDA 10.2"},
	} {
		root := t.TempDir()
		fake(t, root, installed, c.cuda, 9)
		if c.remove != "" {
			if err := os.Remove(filepath.Join(root, c.remove)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Find([]string{root}, nil)
		var missing *Missing
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), c.want) || len(missing.What) != 1 {
			t.Errorf("%s: %v, want one thing, %q", c.name, err, c.want)
			continue
		}
		if advice := missing.Advice(); !strings.Contains(advice, "pip install") || !strings.Contains(advice, "nvidia-cudnn") {
			t.Errorf("%s: advice %q", c.name, advice)
		}
	}
	root := t.TempDir()
	fake(t, root, installed, 12040, 7)
	if _, err := Find([]string{root}, nil); err == nil || !strings.Contains(err.Error(), "it is cuDNN 7.5.1") {
		t.Errorf("cuDNN 7: %v", err)
	}
}

func TestFindTakesTheFirstThatIsWhole(t *testing.T) {
	dir := t.TempDir()
	none, half, whole, dnn := filepath.Join(dir, "none"), filepath.Join(dir, "half"), filepath.Join(dir, "whole"), filepath.Join(dir, "dnn")
	fake(t, half, installed, 12090, 9)
	for _, name := range []string{"include/cudnn.h", "include/cudnn_version.h", "lib64/libcudnn.so"} {
		if err := os.Remove(filepath.Join(half, name)); err != nil {
			t.Fatal(err)
		}
	}
	fake(t, whole, installed, 12040, 8)
	fake(t, dnn, debian, 11080, 9)

	if got, err := Find([]string{none, half, whole}, nil); err != nil || got.Root != whole {
		t.Errorf("got %v, %v, want the one that is whole", got, err)
	}
	var missing *Missing
	if _, err := Find([]string{none, half}, nil); !errors.As(err, &missing) || missing.Root != half {
		t.Errorf("got %v, want the parts that the incomplete one lacks", err)
	}
	if _, err := Find([]string{none, none}, nil); err == nil || !strings.Contains(err.Error(), "no CUDA toolkit in "+none) {
		t.Errorf("got %v, want that there is none", err)
	}
	// cuDNN, and nothing else, may be somewhere else.
	got, err := Find([]string{none, half}, []string{none, dnn})
	if err != nil || got.Root != half || got.CUDA != "12.9" || got.CUDNN != "9.5.1" || slices.Contains(got.Include, filepath.Join(dnn, "include")) {
		t.Errorf("got %+v, %v, want CUDA 12.9 of one folder and cuDNN of the other", got, err)
	}
}

func TestRoots(t *testing.T) {
	dir := t.TempDir()
	below := filepath.Join(dir, "a", "b")
	testutil.Write(t, filepath.Join(dir, "go.mod"), "module m\n")
	for _, name := range []string{"9.1", "12.9-cudnn8", "12.9-cudnn9", "13.0", "a/b/c"} {
		if err := os.MkdirAll(filepath.Join(dir, ".cuda", name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(below, 0o777); err != nil {
		t.Fatal(err)
	}
	none := func(string) string { return "" }
	got := Roots(none, below)
	for i, want := range []string{"13.0", "12.9-cudnn9", "12.9-cudnn8", "9.1"} {
		if got[i] != filepath.Join(dir, ".cuda", want) {
			t.Fatalf("got %q, want %q as number %d", got, want, i)
		}
	}
	if !slices.Contains(got, "/usr/local/cuda") || !slices.Contains(DNNRoots(none), "/usr") {
		t.Errorf("got %q, want the usual places too", got)
	}
	environment := func(name string) string {
		return map[string]string{"VIRTUAL_ENV": "/venv", "CONDA_PREFIX": "/conda"}[name]
	}
	if all := Roots(environment, below); !slices.Equal(all, append(got, "/venv", "/conda")) {
		t.Errorf("got %q, want the shell's environments last", all)
	}
	set := func(name string) string { return map[string]string{"CUDA_PATH": "/c", "CUDNN_PATH": "/d"}[name] }
	if got := Roots(set, below); !slices.Equal(got, []string{"/c"}) {
		t.Errorf("got %q, want CUDA_PATH alone", got)
	}
	if got := DNNRoots(set); got[0] != "/d" {
		t.Errorf("got %q, want CUDNN_PATH first", got)
	}
}

func TestCompareVersions(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"13.0", "12.9", 1}, {"9.10", "9.9", 1}, {"v0.9.6", "v0.9.6", 0}, {"v0.9.4", "v0.9.6", -1}, {"/b-9/cuda-9.2", "/a-8/cuda-10.1", -1}, {"12", "12.1", -1}} {
		if got := CompareVersions(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
