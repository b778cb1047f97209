// Package testutil holds helpers for the tests of several packages: a step that must succeed, a file that must
// be written, hardware that must be there, the source of a module.
package testutil

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// Tests allocate much and keep little: at Go's default the garbage collector takes a tenth of their time.
func init() {
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(2 << 30) // above 2 GB the collector runs more often
}

// Do ends the test if err is not nil.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns a function that returns its first argument, or ends the test if the
// second is not nil: testutil.Get[int](t)(strconv.Atoi(s)).
func Get[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		Do(t, err)
		return v
	}
}

// Read returns a file's bytes, those of a .gz unpacked.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	data := Get[[]byte](t)(os.ReadFile(path))
	if filepath.Ext(path) != ".gz" {
		return data
	}
	return Get[[]byte](t)(io.ReadAll(Get[*gzip.Reader](t)(gzip.NewReader(bytes.NewReader(data)))))
}

// Write writes a file, and makes the folders above it.
func Write(t testing.TB, path, text string) {
	t.Helper()
	Do(t, os.MkdirAll(filepath.Dir(path), 0o777))
	Do(t, os.WriteFile(path, []byte(text), 0o666))
}

// Required reports whether the environment demands something of this machine, such as a "GPU":
// STHENO_REQUIRE_GPU=1.
func Required(what string) bool { return os.Getenv("STHENO_REQUIRE_"+what) == "1" }

// SkipUnless skips the test if err, the lack of something, is not nil, or fails it if that is
// [Required].
func SkipUnless(t testing.TB, what string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case Required(what):
		t.Fatalf("STHENO_REQUIRE_%s=1, but: %v", what, err)
	default:
		t.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
}
