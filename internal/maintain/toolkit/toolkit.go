// Package toolkit finds the parts of CUDA that a build with Gorgonia's tag cuda needs, names those
// that are missing, and makes cgo's settings.
//
// A toolkit is a folder of one of three layouts: NVIDIA's installer
// (include, lib64 or targets/x86_64-linux), a distribution's (/usr), or Python
// wheels (nvidia/cublas/include, or nvidia/cu13/include).
package toolkit

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// A Toolkit is an installed CUDA with cuDNN.
type Toolkit struct {
	Root      string   // the folder that has cuda.h
	CUDA      string   // its version, such as 13.0
	CUDNN     string   // such as 9.28.0
	Include   []string // folders of headers
	Libraries []string // libcublas.so and libcudnn.so, whatever version their names end in
}

// Missing is the error for a folder that lacks something, or for several without a CUDA.
type Missing struct {
	Root   string
	CUDA   string // the version of the CUDA that is there, "" if none
	What   []string
	Looked []string // the folders, where none has one; the rest is then empty
}

func (m *Missing) Error() string {
	if m.Looked != nil {
		return "no CUDA toolkit in " + strings.Join(m.Looked, ", ")
	}
	return fmt.Sprintf("%s lacks %s", m.Root, strings.Join(m.What, ", "))
}

// wheels.txt lists a CUDA and a cuDNN as Python wheels, those that make tag-toolkit installs. Wheels need no root and no GPU.
//
//go:embed wheels.txt
var wheelList string

// Advice describes how to get the missing parts.
func (m *Missing) Advice() string {
	return fmt.Sprintf(`To get all of it as wheels (1 to 2 GB), with no root and no GPU, where 'stheno env' finds it unless CUDA_HOME or CUDA_PATH is set:
    python3 -m pip install --no-deps --target .cuda/13.0-cudnn9 %s
Or install CUDA and cuDNN with NVIDIA's packages; CUDA_HOME and CUDNN_HOME say where they are, if not in the usual places.
Without the tag nothing of this is needed: stheno.NewVM runs on the GPU with the driver alone.`,
		strings.Join(strings.Fields(wheelList), " "))
}

// Roots returns the folders to look in, best first: CUDA_HOME or CUDA_PATH alone if set; else
// wheels in the folders of .cuda, in dir or above, the newest first; then where installers and
// distributions put CUDA; last the Python or Conda environment of the shell, whose CUDA was often
// installed for other programs and is not complete.
func Roots(getenv func(string) string, dir string) []string {
	if set := cmp.Or(getenv("CUDA_HOME"), getenv("CUDA_PATH")); set != "" {
		return []string{set}
	}
	roots := slices.Concat(wheels(dir), []string{"/usr/local/cuda"}, newest("/usr/local/cuda-*"), []string{"/opt/cuda", "/usr"})
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if set := getenv(name); set != "" {
			roots = append(roots, set)
		}
	}
	return roots
}

// DNNRoots returns the folders to search for cuDNN when the CUDA installation does not include it;
// cuDNN is often installed separately. The folders of wheels are not included: the cuDNN of a wheel
// is for the CUDA in the same place.
func DNNRoots(getenv func(string) string) []string {
	var roots []string
	for _, name := range []string{"CUDNN_HOME", "CUDNN_PATH"} {
		if set := getenv(name); set != "" {
			roots = append(roots, set)
		}
	}
	return append(roots, "/usr/local", "/usr")
}

// wheels are the folders .cuda/* of dir, or of the closest folder above that
// has any, up to the root of a module.
func wheels(dir string) []string {
	for {
		found := newest(filepath.Join(literal.Replace(dir), ".cuda", "*"))
		up := filepath.Dir(dir)
		if len(found) > 0 || up == dir || isFile(filepath.Join(dir, "go.mod")) {
			return found
		}
		dir = up
	}
}

// newest are the folders that match a pattern, the highest version first.
func newest(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	slices.SortFunc(found, func(a, b string) int { return CompareVersions(b, a) })
	return found
}

// Find returns the first complete toolkit among roots. If none is, the error is a *[Missing] about
// the first that has a CUDA.
func Find(roots, dnnRoots []string) (*Toolkit, error) {
	var best *Missing
	for _, root := range roots {
		t, missing := examine(root, dnnRoots)
		if missing == nil {
			return t, nil
		}
		if best == nil && (missing.CUDA != "" || len(roots) == 1) {
			best = missing
		}
	}
	if best == nil {
		best = &Missing{Looked: roots}
	}
	return nil, best
}

// examine looks for everything in root, and for cuDNN in dnnRoots too.
func examine(root string, dnnRoots []string) (*Toolkit, *Missing) {
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}
	t := &Toolkit{Root: root}
	missing := &Missing{Root: root}
	header := func(name string, in ...string) string {
		for _, r := range in {
			for _, dir := range includes(r) {
				if path := filepath.Join(dir, name); isFile(path) {
					if !slices.Contains(t.Include, dir) {
						t.Include = append(t.Include, dir)
					}
					return path
				}
			}
		}
		return ""
	}
	library := func(name string, in ...string) {
		for _, r := range in {
			for _, dir := range libraries(r) {
				if path := newestLibrary(dir, name); path != "" {
					if real, err := filepath.EvalSymlinks(path); err == nil {
						path = real
					}
					t.Libraries = append(t.Libraries, path)
					return
				}
			}
		}
		missing.What = append(missing.What, name+" (the library)")
	}

	if path := header("cuda.h", root); path == "" {
		missing.What = append(missing.What, "cuda.h (CUDA's header)")
	} else if t.CUDA = cudaVersion(path); t.CUDA == "" {
		missing.What = append(missing.What, "a version in "+path)
	}
	missing.CUDA = t.CUDA
	if t.CUDA != "" && CompareVersions(t.CUDA, oldestCUDA) < 0 {
		missing.What = append(missing.What, fmt.Sprintf("CUDA %s or later: it is CUDA %s", oldestCUDA, t.CUDA))
	}
	if header("cublas_v2.h", root) == "" {
		missing.What = append(missing.What, "cublas_v2.h (cuBLAS's header)")
	}
	library("libcublas.so", root)
	inDNN := append([]string{root}, dnnRoots...)
	if header("cudnn.h", inDNN...) == "" {
		missing.What = append(missing.What, "cudnn.h (cuDNN's header)")
	} else if path := header("cudnn_version.h", inDNN...); path != "" {
		t.CUDNN = cudnnVersion(path)
	}
	if t.CUDNN != "" && CompareVersions(t.CUDNN, oldestCUDNN) < 0 {
		missing.What = append(missing.What, fmt.Sprintf("cuDNN %s or later: it is cuDNN %s", oldestCUDNN, t.CUDNN))
	}
	library("libcudnn.so", inDNN...)
	// Wheels have these apart. The C compiler finds out whether this CUDA
	// needs them.
	header("crt/host_defines.h", root)
	header("nv/target", root)
	if len(missing.What) > 0 {
		return nil, missing
	}
	return t, nil
}

// The oldest versions that are known to work.
const (
	oldestCUDA  = "11.8"
	oldestCUDNN = "8.0"
)

// includes are a toolkit's folders of headers.
func includes(root string) []string {
	dirs := globs(root, "include", "include/"+multiarch[runtime.GOARCH], "targets/"+targetDir[runtime.GOARCH]+"/include",
		"nvidia/*/include", "lib/python*/site-packages/nvidia/*/include")
	for _, dir := range dirs { // CUDA 13 and later have <nv/target> in cccl
		dirs = append(dirs, filepath.Join(dir, "cccl"))
	}
	return dirs
}

// libraries are a toolkit's folders of libraries.
func libraries(root string) []string {
	return globs(root, "lib64", "lib", "lib/"+multiarch[runtime.GOARCH], "targets/"+targetDir[runtime.GOARCH]+"/lib",
		"nvidia/*/lib", "lib/python*/site-packages/nvidia/*/lib")
}

var (
	multiarch = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
	targetDir = map[string]string{"amd64": "x86_64-linux", "arm64": "sbsa-linux"}
)

func globs(root string, patterns ...string) []string {
	var all []string
	for _, p := range patterns {
		found, _ := filepath.Glob(filepath.Join(literal.Replace(root), filepath.FromSlash(p)))
		all = append(all, found...)
	}
	return all
}

// literal escapes a path in a pattern.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// newestLibrary is dir/name, or dir/name.N of the highest N; "" if there is
// none. Wheels have the latter only.
func newestLibrary(dir, name string) string {
	if path := filepath.Join(dir, name); isFile(path) {
		return path
	}
	for _, path := range newest(filepath.Join(literal.Replace(dir), name+".*")) {
		if isFile(path) {
			return path
		}
	}
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

var cudaDefine = regexp.MustCompile(`(?m)^\s*#\s*define\s+CUDA_VERSION\s+(\d+)`)

// cudaVersion reads a version such as 13.0 out of cuda.h, or "".
func cudaVersion(path string) string {
	n := number(path, cudaDefine)
	if n < 1000 {
		return ""
	}
	return fmt.Sprintf("%d.%d", n/1000, n%1000/10)
}

var cudnnDefines = [3]*regexp.Regexp{
	regexp.MustCompile(`(?m)^\s*#\s*define\s+CUDNN_MAJOR\s+(\d+)`),
	regexp.MustCompile(`(?m)^\s*#\s*define\s+CUDNN_MINOR\s+(\d+)`),
	regexp.MustCompile(`(?m)^\s*#\s*define\s+CUDNN_PATCHLEVEL\s+(\d+)`),
}

// cudnnVersion reads a version such as 9.28.0 out of cudnn_version.h.
func cudnnVersion(path string) string {
	return fmt.Sprintf("%d.%d.%d", number(path, cudnnDefines[0]), number(path, cudnnDefines[1]), number(path, cudnnDefines[2]))
}

// number returns the value that a header defines, 0 if it does not.
func number(path string, define *regexp.Regexp) (n int) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	if m := define.FindSubmatch(text); m != nil {
		fmt.Sscan(string(m[1]), &n)
	}
	return n
}

var digits = regexp.MustCompile(`\d+`)

// CompareVersions compares by the numbers in two texts, the first first: -1, 0
// or 1. Of a path, only the last part counts.
func CompareVersions(a, b string) int {
	numbers := func(s string) (all []int) {
		for _, d := range digits.FindAllString(filepath.Base(s), -1) {
			var n int
			fmt.Sscan(d, &n)
			all = append(all, n)
		}
		return all
	}
	return slices.Compare(numbers(a), numbers(b))
}
