package command

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// Mistakes in the command line have status 2, wrapped or not, and other errors status 1.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		want   string
	}{
		{nil, 0, ""},
		{errors.New("no disk"), Failure, "p: no disk\n"},
		{Misused("-n is %d, want 1", 3), Misuse, "p: -n is 3, want 1\n"},
		{fmt.Errorf("in a: %w", Misused("-n: %w", fs.ErrNotExist)), Misuse, "p: in a: -n: file does not exist\n"},
		{errors.Join(fs.ErrExist, Misused("b")), Misuse, "p: file already exists\nb\n"},
	} {
		var out strings.Builder
		if status := Status(&out, "p", c.err); status != c.status || out.String() != c.want {
			t.Errorf("%v: status %d and %q, want %d and %q", c.err, status, &out, c.status, c.want)
		}
	}
	if err := Misused("%w", fs.ErrNotExist); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v does not wrap its cause", err)
	}
}
