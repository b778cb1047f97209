package driver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestNoLibrary(t *testing.T) {
	_, err := openAny([]string{"libnot-there.so.1", "libnor-this.so"})
	if !errors.Is(err, ErrNoDevice) {
		t.Fatalf("a missing library gives %v, which is not ErrNoDevice", err)
	}
	for _, word := range []string{"libnot-there.so.1", "driver installed"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error does not say %q: %v", word, err)
		}
	}
}

func TestNoDevice(t *testing.T) {
	n, err := Count()
	if err == nil {
		for _, i := range []int{-1, n} {
			d, err := Get(i)
			if d != nil || !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), fmt.Sprint("has ", n)) {
				t.Errorf("Get(%d) of %d devices gives %v, %v", i, n, d, err)
			}
		}
		return
	}
	if n != 0 || !errors.Is(err, ErrNoDevice) {
		t.Errorf("Count gives %d, %v", n, err)
	}
	if _, err := Get(0); !errors.Is(err, ErrNoDevice) {
		t.Errorf("Get(0) gives %v", err)
	}
}

func TestMissingFunction(t *testing.T) {
	p := proc{name: "cuNotThere"}
	if err := p.call(); err == nil || !strings.Contains(err.Error(), "cuNotThere") {
		t.Errorf("calling a function that the driver lacks gives %v", err)
	}
}

func TestError(t *testing.T) {
	for _, c := range []struct {
		err  Error
		want string
	}{
		{Error{"cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}, "cuMemAlloc_v2: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)"},
		{Error{"cuInit", 3, "CUDA_ERROR_NOT_INITIALIZED", ""}, "cuInit: CUDA_ERROR_NOT_INITIALIZED (3)"},
		{Error{"cuInit", 12345, "", ""}, "cuInit: CUDA error 12345"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if !IsOutOfMemory(fmt.Errorf("no room: %w", &Error{Code: 2})) {
		t.Error("a wrapped code 2 is not out of memory")
	}
	if IsOutOfMemory(&Error{Code: 1}) || IsOutOfMemory(ErrNoDevice) || IsOutOfMemory(nil) {
		t.Error("something else is out of memory")
	}
}

func TestCheckVersion(t *testing.T) {
	for _, c := range []struct{ have, need int }{{12000, 12000}, {13000, 12090}, {99990, 99990}} {
		if err := checkVersion(c.have, "", c.need); err != nil {
			t.Errorf("have %d, need %d: %v", c.have, c.need, err)
		}
	}
	for _, c := range []struct {
		have, need int
		release    string
		words      []string
	}{
		{11080, 12000, "520.61.05", []string{"12.0", "525", "520.61.05", "11.8"}},
		{12000, 12080, "", []string{"12.8", "570", "12.0"}},
		{12080, 12090, "570.1", []string{"12.9", "575", "570.1", "12.8"}},
		{12080, 13010, "", []string{"13.1", "a newer one"}},
	} {
		err := checkVersion(c.have, c.release, c.need)
		for _, word := range c.words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("have %d, need %d: %v does not say %q", c.have, c.need, err, word)
			}
		}
	}
}

func TestParseRelease(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc version 12.3.0": "535.104.05",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (dvs-builder)":                           "580.82.07",
		"": "",
	} {
		if got := parseRelease(text); got != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}

// The error that a dead context returns to every call is reported once; other errors all stay.
func TestJoin(t *testing.T) {
	dead := func(call string) error {
		return fmt.Errorf("here: %w", &Error{Call: call, Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS"})
	}
	other, memory := errors.New("other"), &Error{Call: "cuMemAlloc_v2", Code: 2}
	for _, c := range []struct {
		errs []error
		want string
	}{
		{nil, ""},
		{[]error{nil, nil}, ""},
		{[]error{dead("a"), nil, dead("b")}, "here: a: CUDA_ERROR_ILLEGAL_ADDRESS (700)"},
		{[]error{other, dead("a"), other, memory, dead("b")}, "other\nhere: a: CUDA_ERROR_ILLEGAL_ADDRESS (700)\nother\ncuMemAlloc_v2: CUDA error 2"},
		{[]error{dead("a"), Join(dead("b"), other)}, "here: a: CUDA_ERROR_ILLEGAL_ADDRESS (700)\nother"},
		{[]error{dead("a"), Join(dead("b"), memory)}, "here: a: CUDA_ERROR_ILLEGAL_ADDRESS (700)\ncuMemAlloc_v2: CUDA error 2"},
		{[]error{dead("a"), fmt.Errorf("%w and %w", dead("b"), memory)}, "here: a: CUDA_ERROR_ILLEGAL_ADDRESS (700)\nhere: b: CUDA_ERROR_ILLEGAL_ADDRESS (700) and cuMemAlloc_v2: CUDA error 2"},
		{[]error{Join(other, dead("a")), dead("b")}, "other\nhere: a: CUDA_ERROR_ILLEGAL_ADDRESS (700)"},
	} {
		got := ""
		if err := Join(c.errs...); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
