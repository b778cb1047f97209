package toolkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The fake headers have what package compat's headers use of the real ones, in
// the forms of each version.
const fakeCUDA = `
#pragma once
#define CUDA_VERSION %d
#define CUDAAPI
typedef enum { CUDA_SUCCESS = 0, CUDA_ERROR_STUB_LIBRARY = 34 } CUresult;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct graph *CUgraph;
typedef struct node *CUgraphNode;
typedef int CUdevice, CUmem_advise;
typedef unsigned long long CUdeviceptr;
typedef __SIZE_TYPE__ size_t;
CUresult cuInit(unsigned int flags);
#if CUDA_VERSION >= 13000
#define cuCtxCreate cuCtxCreate_v4
#define cuMemAdvise cuMemAdvise_v2
#define cuMemPrefetchAsync cuMemPrefetchAsync_v2
#define cuGraphGetEdges cuGraphGetEdges_v2
#define cuGraphAddDependencies cuGraphAddDependencies_v2
CUresult cuCtxCreate(CUcontext *pctx, void *params, unsigned int flags, CUdevice dev);
CUresult cuMemAdvise(CUdeviceptr p, size_t count, CUmem_advise advice, void *location);
CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t count, void *location, unsigned int flags, CUstream s);
CUresult cuGraphGetEdges(CUgraph g, CUgraphNode *from, CUgraphNode *to, void *data, size_t *n);
CUresult cuGraphAddDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, const void *data, size_t n);
#else
#define cuCtxCreate cuCtxCreate_v2
CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev);
CUresult cuMemAdvise(CUdeviceptr p, size_t count, CUmem_advise advice, CUdevice device);
CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t count, CUdevice device, CUstream s);
CUresult cuGraphGetEdges(CUgraph g, CUgraphNode *from, CUgraphNode *to, size_t *n);
CUresult cuGraphAddDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n);
#endif
`

const fakeCUDNN = `
#pragma once
#include "cudnn_version.h"
#include <stddef.h>
typedef enum { CUDNN_STATUS_SUCCESS = 0, CUDNN_STATUS_NOT_SUPPORTED = 3000 } cudnnStatus_t;
typedef int cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdFilterAlgo_t, cudnnConvolutionBwdDataAlgo_t, cudnnRNNAlgo_t,
    cudnnCTCLossAlgo_t, cudnnDataType_t, cudnnMathType_t;
typedef struct rnn *cudnnRNNDescriptor_t;
#if CUDNN_MAJOR < 9
typedef struct algorithm *cudnnAlgorithmDescriptor_t;
static cudnnStatus_t cudnnCreateAlgorithmDescriptor(cudnnAlgorithmDescriptor_t *d) { return CUDNN_STATUS_SUCCESS; }
#endif
`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// Where each layout has its parts.
type layout struct{ cuda, cublas, dnn, cublasLib, dnnLib string }

var (
	installed = layout{"include", "include", "include", "lib64/libcublas.so", "lib64/libcudnn.so"}
	targets   = layout{"targets/" + targetDir[runtime.GOARCH] + "/include", "targets/" + targetDir[runtime.GOARCH] + "/include", "include",
		"targets/" + targetDir[runtime.GOARCH] + "/lib/libcublas.so", "lib/libcudnn.so.9"}
	debian = layout{"include", "include", "include/" + multiarch[runtime.GOARCH], "lib/" + multiarch[runtime.GOARCH] + "/libcublas.so.12",
		"lib/" + multiarch[runtime.GOARCH] + "/libcudnn.so"}
	wheels12 = layout{"nvidia/cuda_runtime/include", "nvidia/cublas/include", "nvidia/cudnn/include",
		"nvidia/cublas/lib/libcublas.so.12", "nvidia/cudnn/lib/libcudnn.so.9"}
	wheels13 = layout{"nvidia/cu13/include", "nvidia/cu13/include", "nvidia/cudnn/include",
		"nvidia/cu13/lib/libcublas.so.13", "nvidia/cudnn/lib/libcudnn.so.9"}
	venv = layout{"lib/python3.12/site-packages/nvidia/cuda_runtime/include", "lib/python3.12/site-packages/nvidia/cublas/include",
		"lib/python3.12/site-packages/nvidia/cudnn/include", "lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.12",
		"lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9"}
)

// fake makes a toolkit of CUDA version cuda, such as 13000, and of that cuDNN
// major version.
func fake(t *testing.T, root string, l layout, cuda, cudnn int) {
	t.Helper()
	write(t, filepath.Join(root, l.cuda, "cuda.h"), fmt.Sprintf(fakeCUDA, cuda))
	write(t, filepath.Join(root, l.cublas, "cublas_v2.h"), "")
	write(t, filepath.Join(root, l.dnn, "cudnn.h"), fakeCUDNN)
	write(t, filepath.Join(root, l.dnn, "cudnn_version.h"), fmt.Sprintf("#define CUDNN_MAJOR %d\n#define CUDNN_MINOR 5\n#define CUDNN_PATCHLEVEL 1\n", cudnn))
	write(t, filepath.Join(root, l.cublasLib), "")
	write(t, filepath.Join(root, l.dnnLib), "")
}

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
		t.Errorf("got %v, want what the half one lacks", err)
	} else if !strings.Contains(missing.Advice(), "nvidia-cublas-cu12==12.9") {
		t.Errorf("advice %q, want wheels of the CUDA that is there, 12.9", missing.Advice())
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
	write(t, filepath.Join(dir, "go.mod"), "module m\n")
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

// What a program sees through the settings: on CUDA 11 to 13 the same forms of
// the driver's functions, on cuDNN 8 and 9 the same names; and it starts with
// no driver.
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

func TestCheckNamesAMissingHeader(t *testing.T) {
	cc := compiler(t)
	root := t.TempDir()
	fake(t, root, wheels12, 12090, 9)
	write(t, filepath.Join(root, wheels12.cublas, "cublas_v2.h"), "#include <nv/target>\n")
	tk, err := Find([]string{root}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := tk.Prepare(t.TempDir(), cc)
	if err != nil {
		t.Fatal(err)
	}
	var missing *Missing
	if err := tk.Check(s, cc); !errors.As(err, &missing) || !strings.Contains(err.Error(), "nv/target") {
		t.Errorf("got %v, want that nv/target is missing", err)
	}
	write(t, filepath.Join(root, "nvidia/cuda_cccl/include/nv/target"), "")
	write(t, filepath.Join(root, wheels12.cublasLib), "not a library")
	if tk, err = Find([]string{root}, nil); err != nil {
		t.Fatal(err)
	}
	if s, err = tk.Prepare(t.TempDir(), cc); err != nil {
		t.Fatal(err)
	}
	if err := tk.Check(s, cc); errors.As(err, &missing) || err == nil || !strings.Contains(err.Error(), "libcu") {
		t.Errorf("got %v, want the linker's words about the libraries", err)
	}
}

// Go's build cache knows flags, not headers: another toolkit in the same place
// must give other flags, the same one the same.
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

func TestReleases(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Releases {
		if seen[r.Name()] {
			t.Errorf("%s is there twice", r.Name())
		}
		seen[r.Name()] = true
		if got, err := ReleaseNamed(r.Name()); err != nil || !slices.Equal(got.Wheels, r.Wheels) {
			t.Errorf("%s: %v, %v", r.Name(), got, err)
		}
		if last := r.Wheels[len(r.Wheels)-1]; !strings.HasPrefix(last, "nvidia-cudnn-cu"+r.CUDA[:2]+"=="+r.CUDNN+".") {
			t.Errorf("%s: its cuDNN is %s", r.Name(), last)
		}
	}
	if _, err := ReleaseNamed("13.0-cudnn8"); err == nil || !strings.Contains(err.Error(), "13.0-cudnn9") {
		t.Errorf("13.0-cudnn8: %v, want the names that there are", err)
	}
}
