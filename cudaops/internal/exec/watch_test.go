package exec

import (
	"errors"
	"testing"
	"time"
)

// A wait that ends by itself returns its own error; one that does not is ended by a failed check or after the limit, with the error that
// says why.
func TestWatch(t *testing.T) {
	own, dead, late := errors.New("of the device"), errors.New("rank 2 has ended"), errors.New("rank 1 does not answer")
	for name, c := range map[string]struct {
		limit time.Duration
		check error
		hangs bool
		want  error
	}{
		"ends":        {time.Hour, nil, false, own},
		"a rank dies": {time.Hour, dead, true, dead},
		"hangs":       {3 * checkEvery, nil, true, late},
	} {
		aborted := make(chan struct{})
		checks := 0
		w := watch{c.limit, func() error { checks++; return c.check }, func() error { return late }, func() { close(aborted) }}
		began := time.Now()
		err := w.during(func() error {
			if c.hangs {
				<-aborted
			}
			return own
		})
		if err != c.want || c.hangs != (checks > 0) || c.limit < time.Hour && time.Since(began) < c.limit {
			t.Errorf("%s: got error %v after %v and %d checks, want %v", name, err, time.Since(began), checks, c.want)
		}
	}
}
