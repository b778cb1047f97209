package guard

import (
	"errors"
	"testing"
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
		if err := Recover("it", f); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got error %q, want %q", got, want)
		}
	}
	if err := Recover("it", func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v, want the error itself", err)
	}
}

func TestIsNil(t *testing.T) {
	for _, x := range []any{nil, (*int)(nil), error(nil), map[int]int(nil), []int(nil), (func())(nil), (chan int)(nil)} {
		if !IsNil(x) {
			t.Errorf("IsNil(%T) is false", x)
		}
	}
	for _, x := range []any{0, new(int), "", []int{}, struct{}{}, [1]*int{}} {
		if IsNil(x) {
			t.Errorf("IsNil(%T) is true", x)
		}
	}
}
