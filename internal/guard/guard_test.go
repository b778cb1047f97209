package guard_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/tensor"
)

func TestRecover(t *testing.T) {
	failure := errors.New("broken")
	for want, f := range map[string]func() error{
		"":                  func() error { return nil },
		"broken":            func() error { return failure },
		"it panicked: boom": func() error { panic("boom") },
		"it panicked: runtime error: index out of range [1] with length 0": func() error { return []error{}[len("x")] },
	} {
		got := ""
		if err := guard.Recover("it", f); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got error %q, want %q", got, want)
		}
	}
	for what, f := range map[string]func() error{
		"returned":               func() error { return failure },
		"a panic":                func() error { panic(failure) },
		"a panic of a goroutine": func() error { kernels.Parallel(64, 1, func(int64, int64) { panic(failure) }); return nil },
		"wrapped":                func() error { panic(fmt.Errorf("more: %w", failure)) },
	} {
		if err := guard.Own("it", f); !errors.Is(err, failure) {
			t.Errorf("%s: got %v, want one that wraps %v", what, err, failure)
		}
	}
}

func TestIsNil(t *testing.T) {
	for _, x := range []any{nil, (*int)(nil), error(nil), map[int]int(nil), []int(nil), (func())(nil), (chan int)(nil)} {
		if !guard.IsNil(x) {
			t.Errorf("IsNil(%T) is false", x)
		}
	}
	for _, x := range []any{0, new(int), "", []int{}, struct{}{}, [1]*int{}} {
		if guard.IsNil(x) {
			t.Errorf("IsNil(%T) is true", x)
		}
	}
}

// A panic in a line of Stheno is called its fault, one of other modules or of tests is not.
func TestOwn(t *testing.T) {
	_, file, _, _ := runtime.Caller(0)
	trimmed := !filepath.IsAbs(file) // -trimpath hides which lines are of the library
	for what, c := range map[string]struct {
		f         func() error
		own, both bool // is called a fault by Own, by Recover too
	}{
		"a test":      {func() error { panic("boom") }, false, false},
		"Stheno":      {func() error { _ = kernels.CeilDiv(1, 0); return nil }, true, true},
		"a callback":  {func() error { kernels.Parallel(1, 1, func(int64, int64) { panic("boom") }); return nil }, false, false},
		"callbacks":   {func() error { kernels.Parallel(64, 1, func(int64, int64) { panic("boom") }); return nil }, false, false},
		"Gorgonia":    {func() error { tensor.New(tensor.WithShape(-1)); return nil }, true, false},
		"the library": {func() error { expr.Promote(); return nil }, !trimmed, !trimmed},
		"nested":      {func() error { return guard.Own("inner", func() error { _ = kernels.CeilDiv(1, 0); return nil }) }, true, true},
	} {
		for by, want := range map[string]bool{"Own": c.own, "Recover": c.both} {
			err := map[string]func(string, func() error) error{"Own": guard.Own, "Recover": guard.Recover}[by]("it", c.f)
			const report, line = "This is a fault of Stheno: please report", "guard/guard_test.go:"
			if err == nil || strings.Count(err.Error(), report) != map[bool]int{true: 1}[want] || want && !strings.Contains(err.Error(), line) {
				t.Errorf("%s by %s: got the error %v, want a fault: %v", what, by, err, want)
			}
		}
	}
}

// Panics in lines of a program are not called faults of Stheno, whatever the path of the program's module is and however it is built.
func TestPrograms(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	const image = `package %s

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

type Image struct{ At int }

func (Image) Name() string { return "x" }

func (x Image) Code(major, minor int) (c kernels.Code, err error) { c.Text = slices.Insert(c.Text, x.At, 0); return }
`
	const program = `package main

import (
	"fmt"

	"%s/model"
	"github.com/stheno-ml/stheno/kernels"
)

func main() {
	for _, x := range []kernels.Image{Image{1}, model.Image{1}} {
		x, _ = kernels.Load(x)
		_, err := x.Code(9, 0)
		fmt.Println(err)
	}
}
`
	root := filepath.Dir(filepath.Dir(testutil.Get[string](t)(os.Getwd())))
	read := func(name string) string {
		return string(testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(root, name))))
	}
	for _, module := range []string{"app", "example.com", "example.com/app"} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"go.mod": strings.Replace(read("go.mod"), "module github.com/stheno-ml/stheno\n",
				"module "+module+"\n\nrequire github.com/stheno-ml/stheno v0.0.0\n\nreplace github.com/stheno-ml/stheno => "+root+"\n", 1),
			"go.sum": read("go.sum"), "main.go": fmt.Sprintf(program, module), "image.go": fmt.Sprintf(image, "main"), "model/image.go": fmt.Sprintf(image, "model"),
		} {
			file := filepath.Join(dir, name)
			testutil.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
			testutil.Do(t, os.WriteFile(file, []byte(text), 0o644))
		}
		for _, flag := range []string{"-trimpath=false", "-trimpath"} {
			run := exec.Command("go", "run", flag, ".")
			run.Dir = dir
			out, err := run.CombinedOutput()
			const want = "image x: its Code panicked: runtime error: slice bounds out of range [1:0]\n"
			if err != nil || string(out) != want+want {
				t.Errorf("module %s, %s: got %s%v, want %s twice", module, flag, out, err, want)
			}
		}
	}
}
