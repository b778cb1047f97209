package nccl

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Every function is resolved in the library of the machine, and its calls return: those that need no GPU a value, Join an error
// of NCCL where there is none.
func TestLibrary(t *testing.T) {
	l, err := Load()
	testutil.SkipUnless(t, "NCCL", err)
	v := testutil.Get[int](t)(l.Version())
	if v < 21000 || v > 99999 {
		t.Errorf("%s: got version %d, want 2.10 or newer", l.Path, v)
	}
	t.Logf("%s: version %d", l.Path, v)
	if text := l.fn.GetErrorString(4); !strings.Contains(text, "invalid argument") {
		t.Errorf("the text of code 4: got %q, want an invalid argument", text)
	}
	id := testutil.Get[ID](t)(l.NewID())
	if id == (ID{}) {
		t.Error("got an id of zeros")
	}
	testutil.Do(t, (&Comm{lib: l}).Group(func() error { return nil }))
	var of *Error
	if _, err := l.Join(id, 1, 1); !errors.As(err, &of) || of.Call != "ncclCommInitRank" || of.Text == "" {
		t.Errorf("rank 1 of 1: got error %v, want one of ncclCommInitRank", err)
	}
}

// A library in C receives the arguments of Join as C passes them: the id by value, between integers.
func TestIDByValue(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("it needs linux and a C compiler")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "fake.so")
	source := `#include <string.h>
typedef struct { char bytes[128]; } id;
int ncclCommInitRank(void **comm, int ranks, id by, int rank) {
	*comm = (void *)(long)(1000 * ranks + rank);
	for (int i = 0; i < 128; i++) if (by.bytes[i] != (char)(7 * i + 1)) return 4;
	return 0;
}
const char *ncclGetErrorString(int code) { return "the text"; }
`
	for _, name := range []string{"GetVersion", "GetUniqueId", "CommGetAsyncError", "CommAbort", "CommDestroy", "GroupStart", "GroupEnd", "AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter"} {
		source += "int nccl" + name + "() { return 3; }\n"
	}
	file := filepath.Join(dir, "fake.c")
	testutil.Do(t, os.WriteFile(file, []byte(source), 0o600))
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", path, file).CombinedOutput(); err != nil {
		t.Skipf("cc: %v: %s", err, out)
	}
	l := testutil.Get[*Library](t)(open(path))
	var id ID
	for i := range id.Bytes {
		id.Bytes[i] = byte(7*i + 1)
	}
	r := testutil.Random(t)
	ranks, rank := 2+r.IntN(30), r.IntN(30)
	c, err := l.Join(id, ranks, rank)
	testutil.Do(t, err)
	if want := uintptr(1000*ranks + rank); c.handle != want {
		t.Errorf("got handle %d, want %d", c.handle, want)
	}
	id.Bytes[r.IntN(128)]++
	want := &Error{"ncclCommInitRank", 4, "the text"}
	if _, err = l.Join(id, ranks, rank); err == nil || err.Error() != want.Error() {
		t.Errorf("another id: got error %v, want %v", err, want)
	}
}

// TestNone: the error lists every place where the library was looked for. If a library lacks a function, the error names both.
func TestNone(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "libnccl.so.2")
	testutil.Do(t, os.WriteFile(empty, bytes.Repeat([]byte{0}, 64), 0o600))
	names := []string{filepath.Join(dir, "none.so"), empty}
	_, err := openFirst(names)
	if !errors.Is(err, ErrNone) {
		t.Fatalf("got error %v, want %v", err, ErrNone)
	}
	for _, want := range append(names, Variable, "nvidia-nccl-cu12", "nvidia-nccl-cu13") {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got error %q, want %s in it", err, want)
		}
	}
}

// The wheel of an active environment is found.
func TestWheels(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lib", "python3.12", "site-packages", "nvidia", "nccl", "lib", "libnccl.so.2")
	testutil.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	testutil.Do(t, os.WriteFile(path, nil, 0o600))
	t.Setenv("VIRTUAL_ENV", dir)
	if got := wheels(); len(got) == 0 || got[0] != path {
		t.Errorf("got %q, want %q first", got, path)
	}
}
