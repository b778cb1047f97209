package toolkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

func compiler(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the tag cuda is for Linux")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	return cc
}

// library makes a real library that other builds can link.
func library(t *testing.T, cc, path string) {
	t.Helper()
	cmd := exec.Command(cc, "-shared", "-fPIC", "-Wl,-soname,"+filepath.Base(path), "-o", path, "-x", "c", "-")
	cmd.Stdin = strings.NewReader("int unused;\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// program checks that with the settings the driver's functions have the same forms on CUDA 11 to
// 13, that cuDNN 8 and 9 have the same names, and that a program starts with no driver.
const program = `
#include <cuda.h>
#include <cudnn.h>
#include <stdio.h>
int main(void) {
    CUresult init = cuInit(0);
    CUcontext c; CUdevice d = 0; CUgraphNode n; size_t k;
    int all = cuCtxCreate(&c, 0u, d) == 34 && cuMemAdvise(0, 1, 0, d) == 34 && cuMemPrefetchAsync(0, 1, d, 0) == 34 &&
        cuGraphGetEdges(0, &n, &n, &k) == 34 && cuGraphAddDependencies(0, &n, &n, k) == 34;
    cudnnAlgorithmDescriptor_t a;
    printf("%d %d %d", init, all, cudnnCreateAlgorithmDescriptor(&a));
}
`

func TestSettingsBuildAndStart(t *testing.T) {
	cc := compiler(t)
	for _, c := range []struct {
		layout
		cuda, cudnn int
		want        string
	}{
		{installed, 11080, 8, "0 1 0"}, {wheels12, 12090, 9, "0 1 3000"}, {wheels13, 13000, 9, "0 1 3000"},
	} {
		dir := filepath.Join(t.TempDir(), "it's a place") // awkward on purpose
		root := filepath.Join(dir, "toolkit")
		fake(t, root, c.layout, c.cuda, c.cudnn)
		library(t, cc, filepath.Join(root, c.cublasLib))
		library(t, cc, filepath.Join(root, c.dnnLib))
		tk, err := Find([]string{root}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := tk.Prepare(filepath.Join(dir, "cache"), cc)
		if err != nil {
			t.Fatal(err)
		}
		if err := tk.Check(s, cc); err != nil {
			t.Errorf("CUDA %d: %v", c.cuda, err)
		}
		exe := filepath.Join(dir, "program")
		args := slices.Concat([]string{"-Wall", "-Werror"}, s.CFlags, []string{"-x", "c", "-o", exe, "-"}, s.LDFlags, []string{"-lcuda", "-lcudnn", "-lcublas"})
		cmd := exec.Command(cc, args...)
		cmd.Stdin = strings.NewReader(program)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("CUDA %d, cuDNN %d: %v\n%s", c.cuda, c.cudnn, err, out)
		}
		cmd = exec.Command(exe)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+s.Stub)
		if out, err := cmd.Output(); err != nil || string(out) != c.want {
			t.Errorf("CUDA %d, cuDNN %d: program says %q, %v, want %q", c.cuda, c.cudnn, out, err, c.want)
		}

		// A shell and Go read the settings as they were.
		exports, err := s.Exports()
		if err != nil {
			t.Fatal(err)
		}
		show := "go env CGO_CFLAGS"
		if _, err := exec.LookPath("go"); err != nil {
			show = `echo "$CGO_CFLAGS"`
		}
		out, err := exec.Command("sh", "-c", exports+s.StubExport()+show+`; echo "$LD_LIBRARY_PATH"`).CombinedOutput()
		want, _ := join(s.CFlags)
		if lines := strings.Split(string(out), "\n"); err != nil || lines[0] != want || !strings.HasPrefix(lines[1], s.Stub) {
			t.Errorf("a shell gives %q, %v, want %q", out, err, want)
		}
	}
}

func TestCheckNamesFaults(t *testing.T) {
	cc := compiler(t)
	root := t.TempDir()
	fake(t, root, wheels12, 12090, 9)
	testutil.Write(t, filepath.Join(root, wheels12.cublas, "cublas_v2.h"), "#include <nv/target>\n")
	tk, err := Find([]string{root}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := tk.Prepare(t.TempDir(), cc)
	if err != nil {
		t.Fatal(err)
	}
	if err := tk.Check(s, cc); err == nil || !strings.Contains(err.Error(), "nv/target") {
		t.Errorf("got %v, want that nv/target is missing", err)
	}
	testutil.Write(t, filepath.Join(root, "nvidia/cuda_cccl/include/nv/target"), "")
	testutil.Write(t, filepath.Join(root, wheels12.cublasLib), "not a library")
	if tk, err = Find([]string{root}, nil); err != nil {
		t.Fatal(err)
	}
	if s, err = tk.Prepare(t.TempDir(), cc); err != nil {
		t.Fatal(err)
	}
	if err := tk.Check(s, cc); err == nil || !strings.Contains(err.Error(), "libcu") {
		t.Errorf("got %v, want the linker's words about the libraries", err)
	}
}

// A toolkit that is too old is refused.
func TestCheckVersions(t *testing.T) {
	cc := compiler(t)
	for _, c := range [][2]int{{10020, 8}, {12040, 7}} {
		root := t.TempDir()
		fake(t, root, installed, c[0], c[1])
		library(t, cc, filepath.Join(root, installed.cublasLib))
		library(t, cc, filepath.Join(root, installed.dnnLib))
		tk, err := Find([]string{root}, nil)
		testutil.Do(t, err)
		s, err := tk.Prepare(t.TempDir(), cc)
		testutil.Do(t, err)
		if err := tk.Check(s, cc); err == nil || !strings.Contains(err.Error(), "want CUDA 11.8 or later and cuDNN 8 or later") {
			t.Errorf("CUDA %d, cuDNN %d: %v", c[0], c[1], err)
		}
	}
}

// Go's build cache knows flags, not headers: another toolkit in the same place
// must make other flags, the same one the same.
func TestFolderFollowsContent(t *testing.T) {
	cc := compiler(t)
	root, cache := t.TempDir(), t.TempDir()
	include := func(cuda, cudnn int) string {
		t.Helper()
		fake(t, root, installed, cuda, cudnn)
		tk, err := Find([]string{root}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := tk.Prepare(cache, cc)
		if err != nil {
			t.Fatal(err)
		}
		return s.CFlags[2]
	}
	first := include(12090, 9)
	if again := include(12090, 9); again != first {
		t.Errorf("got %s, then %s", first, again)
	}
	if other := include(12090, 8); other == first {
		t.Errorf("cuDNN 8 and 9 give the same %s", other)
	}
	if other := include(12080, 9); other == first {
		t.Errorf("CUDA 12.8 and 12.9 give the same %s", other)
	}
	left, err := filepath.Glob(filepath.Join(cache, "new-*"))
	if err != nil || left != nil {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
