// Package ptxas assembles generated kernels by NVIDIA's assembler, in tests.
package ptxas

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Find returns the path of the assembler. It skips the test if `make toolkit` has not downloaded it.
func Find(t testing.TB) string {
	t.Helper()
	root := testutil.Get[string](t)(os.Getwd())
	for root != filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Dir(root)
	}
	path := filepath.Join(root, ".toolkit/nvidia/cuda_nvcc/bin/ptxas")
	_, err := os.Stat(path)
	testutil.SkipUnless(t, "TOOLKIT", err)
	return path
}

// Assemble assembles the PTX of an image for a target such as sm_90, and returns the cubin, the registers of a
// thread, and the bytes that it spills.
func Assemble(t testing.TB, image string, ptx []byte, target string) (cubin []byte, registers, spills int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.ptx")
	testutil.Do(t, os.WriteFile(path, ptx, 0o644))
	out, err := exec.Command(Find(t), "-v", "-arch="+target, "-o", path+".cubin", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%s for %s: %v\n%s\n%s", image, target, err, out, ptx)
	}
	number := func(pattern string) (sum int) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(out), -1) {
			v, _ := strconv.Atoi(m[1])
			sum = max(sum, v)
		}
		return sum
	}
	return testutil.Get[[]byte](t)(os.ReadFile(path + ".cubin")), number(`Used (\d+) registers`), number(`(\d+) bytes spill stores`)
}
