package guard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
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
	if err := guard.Recover("it", func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v, want the error itself", err)
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
	for what, c := range map[string]struct {
		f         func() error
		own, both bool // is called a fault by Own, by Recover too
	}{
		"a test":     {func() error { panic("boom") }, false, false},
		"Stheno":     {func() error { _ = kernels.CeilDiv(1, 0); return nil }, true, true},
		"a callback": {func() error { kernels.Parallel(1, 1, func(int64, int64) { panic("boom") }); return nil }, false, false},
		"callbacks":  {func() error { kernels.Parallel(64, 1, func(int64, int64) { panic("boom") }); return nil }, false, false},
		"Gorgonia":   {func() error { tensor.New(tensor.WithShape(-1)); return nil }, true, false},
		"nested":     {func() error { return guard.Own("inner", func() error { _ = kernels.CeilDiv(1, 0); return nil }) }, true, true},
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
