// Package must holds what tests of several packages ask for: that something
// succeeds, that a file is written, that the machine has a GPU, what a module's source is.
package must

import (
	"os"
	"path/filepath"
	"testing"
)

// Do ends the test if err is not nil.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns a function that returns its first argument, or ends the test if the
// second is not nil: must.Get[int](t)(strconv.Atoi(s)).
func Get[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		Do(t, err)
		return v
	}
}

// Write writes a file, and makes the folders above it.
func Write(t testing.TB, path, text string) {
	t.Helper()
	Do(t, os.MkdirAll(filepath.Dir(path), 0o777))
	Do(t, os.WriteFile(path, []byte(text), 0o666))
}

// Required reports whether the machine that runs the tests is said to have something,
// such as a "GPU": by STHENO_REQUIRE_GPU=1.
func Required(what string) bool { return os.Getenv("STHENO_REQUIRE_"+what) == "1" }

// Have skips the test where err says that the machine lacks something, or fails it
// where that is [Required].
func Have(t testing.TB, what string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case Required(what):
		t.Fatalf("STHENO_REQUIRE_%s=1, but: %v", what, err)
	default:
		t.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
}
