package tape

import (
	"errors"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
)

var errFaulty = errors.New("no device")

// faultyCUDA panics on a device.
type faultyCUDA struct{ gorgonia.Op }

func (faultyCUDA) String() string { return "faulty" }

func (faultyCUDA) CUDADo(gorgonia.External, gorgonia.Device, gorgonia.Value, ...gorgonia.Value) (gorgonia.Value, error) {
	panic(errFaulty)
}

// Guarded, an op for a device stays one, and its panic is an error; an op for
// the host does not become one.
func TestGuardCUDA(t *testing.T) {
	op, ok := guard(faultyCUDA{}).(gorgonia.CUDADoer)
	if !ok {
		t.Fatal("a guarded op for CUDA is none")
	}
	if _, err := op.CUDADo(nil, 0, nil); !errors.Is(err, errFaulty) || !strings.Contains(err.Error(), "faulty panicked") {
		t.Errorf("got %v, want the panic of the op", err)
	}
	if _, ok := guard(struct{ gorgonia.Op }{}).(gorgonia.CUDADoer); ok {
		t.Error("a guarded op for the host is one for CUDA")
	}
}
