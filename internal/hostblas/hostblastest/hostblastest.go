// Package hostblastest finds the BLAS libraries of a machine for tests.
package hostblastest

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/hostblas"
	"github.com/stheno-ml/stheno/internal/must"
)

// patterns are where libraries lie, all builds of each that Debian has among them.
var patterns = []string{
	"/usr/lib/*/openblas*/libopenblas*.so.0", "/usr/lib/*/blis*/libblis*.so.*", "/usr/lib*/libopenblas*.so.0", "/usr/lib*/libblis*.so.*",
	"/opt/intel/oneapi/mkl/latest/lib/libmkl_rt.so.*", "/opt/homebrew/opt/openblas/lib/libopenblas.dylib",
}

// Each calls f in a subtest for each library of the machine, and for the file that
// [hostblas.Variable] names. Where there is none the test
// is skipped, and fails if STHENO_REQUIRE_BLAS=1.
func Each(t *testing.T, f func(t *testing.T, l *hostblas.Library)) {
	t.Helper()
	var files, seen []string
	if runtime.GOOS == "darwin" { // in the system's cache, not on disk
		files = append(files, "/System/Library/Frameworks/Accelerate.framework/Accelerate")
	}
	for _, p := range append(patterns, os.Getenv(hostblas.Variable)) {
		found, err := filepath.Glob(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			if real, err := filepath.EvalSymlinks(file); err == nil && !slices.Contains(seen, real) {
				seen, files = append(seen, real), append(files, file)
			}
		}
	}
	if len(files) == 0 {
		must.Have(t, "BLAS", errors.New("there is no OpenBLAS, BLIS, MKL or Accelerate library here"))
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			l, err := hostblas.Open(file)
			must.Have(t, "BLAS", err)
			f(t, l)
		})
	}
}
