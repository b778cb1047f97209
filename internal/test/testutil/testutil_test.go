package testutil

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// spy is a test that records the calls of its methods.
type spy struct {
	testing.TB
	did string
}

func (s *spy) Helper()                           {}
func (s *spy) Fatal(args ...any)                 { s.did = "failed: " + fmt.Sprint(args...) }
func (s *spy) Fatalf(format string, args ...any) { s.did = "failed: " + fmt.Sprintf(format, args...) }
func (s *spy) Errorf(format string, args ...any) { s.did += "failed: " + fmt.Sprintf(format, args...) }
func (s *spy) Skipf(format string, args ...any)  { s.did = "skipped: " + fmt.Sprintf(format, args...) }

func TestSkipUnless(t *testing.T) {
	none := errors.New("no driver")
	for _, c := range []struct {
		required string
		err      error
		want     string
	}{
		{"", nil, ""},
		{"1", nil, ""},
		{"", none, "skipped: SKIPPED, NOT TESTED: no driver"},
		{"0", none, "skipped: SKIPPED, NOT TESTED: no driver"},
		{"1", none, "failed: STHENO_REQUIRE_GPU=1, but: no driver"},
	} {
		t.Setenv("STHENO_REQUIRE_GPU", c.required)
		var s spy
		if SkipUnless(&s, "GPU", c.err); s.did != c.want {
			t.Errorf("STHENO_REQUIRE_GPU=%s and error %v: got %q, want %q", c.required, c.err, s.did, c.want)
		}
	}
}

func TestGet(t *testing.T) {
	var s spy
	if got := Get[int](&s)(strconv.Atoi("12")); got != 12 || s.did != "" {
		t.Errorf("got %d and %q, want 12", got, s.did)
	}
	const want = `failed: strconv.Atoi: parsing "x": invalid syntax`
	if Get[int](&s)(strconv.Atoi("x")); s.did != want {
		t.Errorf("got %q, want %q", s.did, want)
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	Write(t, path, "text")
	if got, err := os.ReadFile(path); err != nil || string(got) != "text" {
		t.Errorf("got %q, %v", got, err)
	}
}

// loud is a type with a method that panics.
type loud struct{}

func (*loud) Shout(n int) error {
	if n > 0 {
		panic("loud")
	}
	return nil
}

// Quiet is no method of an error: it is not called on nil.
func (l *loud) Quiet() loud { return *l }

// A call that panics is an error, and so is a function that is not called.
func TestSurvive(t *testing.T) {
	for want, f := range map[string]func(s *spy){
		"":                                       func(s *spy) { Survive(s, map[string]any{"F": func(int, []string, func()) {}}, -1, "", &loud{}) },
		"(*testutil.loud).Shout(1) panics: loud": func(s *spy) { Survive(s, nil, 1, &loud{}) },
		"F(1) panics: loud":                      func(s *spy) { Survive(s, map[string]any{"F": new(loud).Shout}, 1) },
		"Survive is exported":                    func(s *spy) { SurviveWhole(s, nil) },
	} {
		s := &spy{TB: t}
		if f(s); !strings.Contains(s.did, want) || want == "" && s.did != "" {
			t.Errorf("got %.200q, want %q", s.did, want)
		}
	}
}
