package toolkit

import (
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
	for name, remove := range map[string]string{
		"cuda.h": "include/cuda.h", "cublas_v2.h": "include/cublas_v2.h", "libcublas.so": "lib64/libcublas.so", "cudnn.h": "include/cudnn.h", "libcudnn.so": "lib64/libcudnn.so",
	} {
		root := t.TempDir()
		fake(t, root, installed, 12040, 9)
		testutil.Do(t, os.Remove(filepath.Join(root, remove)))
		if _, err := Find([]string{root}, nil); err == nil || err.Error() != root+" lacks "+name {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if advice := Advice(); !strings.Contains(advice, "pip install") || !strings.Contains(advice, "nvidia-cudnn") {
		t.Errorf("advice %q", advice)
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
	if _, err := Find([]string{none, half}, nil); err == nil || !strings.HasPrefix(err.Error(), half+" lacks cudnn.h") {
		t.Errorf("got %v, want the parts that the incomplete one lacks", err)
	}
	if _, err := Find([]string{none, none}, nil); err == nil || !strings.Contains(err.Error(), "no CUDA toolkit in "+none) {
		t.Errorf("got %v, want that there is none", err)
	}
	// cuDNN, and nothing else, may be somewhere else.
	got, err := Find([]string{none, half}, []string{none, dnn})
	if err != nil || got.Root != half || slices.Contains(got.Include, filepath.Join(dnn, "include")) {
		t.Errorf("got %+v, %v, want CUDA of one folder and cuDNN of the other", got, err)
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
	}{{"13.0", "12.9", 1}, {"9.10", "9.9", 1}, {"9.6", "9.6", 0}, {"/b-9/cuda-9.2", "/a-8/cuda-10.1", -1}, {"12", "12.1", -1}} {
		if got := compareVersions(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
