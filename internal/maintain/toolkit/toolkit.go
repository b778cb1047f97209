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
	Include   []string // folders of headers
	Libraries []string // libcublas.so and libcudnn.so, whatever version their names end in
}

// wheels.txt lists a CUDA and a cuDNN as Python wheels, those that make tag-toolkit installs. Wheels need no root and no GPU.
//
//go:embed wheels.txt
var wheelList string

// Advice describes how to get the missing parts.
func Advice() string {
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
	slices.SortFunc(found, func(a, b string) int { return compareVersions(b, a) })
	return found
}

// Find returns the first complete toolkit among roots. If there is no such toolkit, the error names the files missing from the first
// root that has a CUDA.
func Find(roots, dnnRoots []string) (*Toolkit, error) {
	var best error
	for _, root := range roots {
		t, lacks := examine(root, dnnRoots)
		if len(lacks) == 0 {
			return t, nil
		}
		if best == nil && (!slices.Contains(lacks, "cuda.h") || len(roots) == 1) {
			best = fmt.Errorf("%s lacks %s", t.Root, strings.Join(lacks, ", "))
		}
	}
	if best == nil {
		best = fmt.Errorf("no CUDA toolkit in %s", strings.Join(roots, ", "))
	}
	return nil, best
}

// parts are the files that are looked for, with the folders of a root that may have them. The last two may be missing: separate wheels hold them,
// and the C compiler reports them if this CUDA includes them.
var parts = []struct {
	name    string
	folders []string
}{{"cuda.h", includes}, {"cublas_v2.h", includes}, {"libcublas.so", libraries}, {"cudnn.h", includes}, {"libcudnn.so", libraries}, {"crt/host_defines.h", includes}, {"nv/target", includes}}

// The folders of headers and of libraries. CUDA 13 and later have <nv/target> in cccl.
var (
	includes = []string{"include", "include/" + multiarch[runtime.GOARCH], "targets/" + targetDir[runtime.GOARCH] + "/include", "nvidia/*/include", "lib/python*/site-packages/nvidia/*/include",
		"include/cccl", "targets/" + targetDir[runtime.GOARCH] + "/include/cccl", "nvidia/*/include/cccl", "lib/python*/site-packages/nvidia/*/include/cccl"}
	libraries = []string{"lib64", "lib", "lib/" + multiarch[runtime.GOARCH], "targets/" + targetDir[runtime.GOARCH] + "/lib", "nvidia/*/lib", "lib/python*/site-packages/nvidia/*/lib"}
	multiarch = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
	targetDir = map[string]string{"amd64": "x86_64-linux", "arm64": "sbsa-linux"}
)

// examine looks for everything in root, and for cuDNN in dnnRoots too. It returns the names of the files that are not there.
func examine(root string, dnnRoots []string) (t *Toolkit, lacks []string) {
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}
	t = &Toolkit{Root: root}
	for i, part := range parts {
		roots := []string{root}
		if strings.Contains(part.name, "cudnn") {
			roots = append(roots, dnnRoots...)
		}
		path := find(roots, part.folders, part.name)
		dir := strings.TrimSuffix(path, string(filepath.Separator)+filepath.FromSlash(part.name))
		switch {
		case path == "" && i < len(parts)-2:
			lacks = append(lacks, part.name)
		case path == "":
		case strings.HasPrefix(part.name, "lib"):
			if real, err := filepath.EvalSymlinks(path); err == nil {
				path = real
			}
			t.Libraries = append(t.Libraries, path)
		case !slices.Contains(t.Include, dir):
			t.Include = append(t.Include, dir)
		}
	}
	return t, lacks
}

// find returns the path of a file in folders of roots, or of the one with the highest version behind that name, as wheels have libraries; "" if
// there is none.
func find(roots, folders []string, name string) string {
	for _, root := range roots {
		for _, folder := range folders {
			dirs, _ := filepath.Glob(filepath.Join(literal.Replace(root), filepath.FromSlash(folder)))
			for _, dir := range dirs {
				path := filepath.Join(dir, filepath.FromSlash(name))
				for _, path := range append([]string{path}, newest(literal.Replace(path)+".*")...) {
					if isFile(path) {
						return path
					}
				}
			}
		}
	}
	return ""
}

// literal escapes a path in a pattern.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

var digits = regexp.MustCompile(`\d+`)

// compareVersions compares by the numbers in the last parts of two paths, the first first: -1, 0
// or 1.
func compareVersions(a, b string) int {
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
