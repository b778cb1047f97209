package exec

import (
	"errors"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
)

// A device that is older than the kernels counts as none: a machine for any
// device runs on the host, and reports the reason.
func TestOldDevice(t *testing.T) {
	err := Usable(&driver.Device{Name: "an old one", Major: 6, Minor: 1})
	if !errors.Is(err, driver.ErrNoDevice) {
		t.Errorf("got %v, want an error that wraps ErrNoDevice", err)
	}
	for _, word := range []string{"an old one", "6.1", "7.0"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %q: %v", word, err)
		}
	}
}
