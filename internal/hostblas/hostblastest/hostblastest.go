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
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// patterns are the places of libraries, with all builds that Debian has of each.
var patterns = []string{
	"/usr/lib/*/openblas*/libopenblas*.so.0", "/usr/lib/*/blis*/libblis*.so.*", "/usr/lib*/libopenblas*.so.0", "/usr/lib*/libblis*.so.*",
	"/opt/intel/oneapi/mkl/latest/lib/libmkl_rt.so.*", "/opt/homebrew/opt/openblas/lib/libopenblas.dylib",
}

// Libraries returns every library of the machine, and the file that [hostblas.Variable] names. If
// none can be used the test is skipped, or fails if STHENO_REQUIRE_BLAS=1.
func Libraries(t *testing.T) (all []*hostblas.Library) {
	t.Helper()
	var files, seen []string
	if runtime.GOOS == "darwin" { // in the system's cache, not on disk
		files = append(files, "/System/Library/Frameworks/Accelerate.framework/Accelerate")
	}
	for _, p := range append(patterns, os.Getenv(hostblas.Variable)) {
		found, err := filepath.Glob(p)
		testutil.Do(t, err)
		for _, file := range found {
			if real, err := filepath.EvalSymlinks(file); err == nil && !slices.Contains(seen, real) {
				seen, files = append(seen, real), append(files, file)
			}
		}
	}
	wrong := errors.New("there is no OpenBLAS, BLIS, MKL or Accelerate library here")
	for _, file := range files {
		l, err := hostblas.Open(file)
		if err != nil {
			t.Logf("not tested: %v", err)
			wrong = err
			continue
		}
		t.Logf("by %v", l)
		all = append(all, l)
	}
	if len(all) == 0 {
		testutil.SkipUnless(t, "BLAS", wrong)
	}
	return all
}
