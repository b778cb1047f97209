//go:build cuda

package tape

import (
	"errors"
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// standard are the modules in which Gorgonia's engine looks up its own ops. The third, misc, is
// left out: for the result of hasNaN and hasInf the engine passes a value as the address, so no
// kernel can return one, and a kernel that writes nothing would mean "no" ([watched],
// docs/cuda-tag.md).
var standard = []string{"elembinop", "elemunaryop"}

// Every machine made from now on loads the standard modules. All engines of a machine load the same
// image, and Gorgonia runs graphs on device 0 alone, so the image is the one for device 0.
func init() {
	unavailable = register(driver.Get, driver.CheckDriver, gorgonia.AddToStdLib)
	if unavailable != nil && !errors.Is(unavailable, driver.ErrNoDevice) {
		log.Printf("stheno: Gorgonia's machines get no kernels: %v", unavailable)
	}
}

var unavailable error

// Available returns why Gorgonia's machines cannot run kernels here: there is no
// device (the error wraps cudaops.ErrNoDevice), it is too old, or the driver is.
func Available() error { return unavailable }

// register registers each standard module with the names of its kernels, for the device that get
// returns as number 0. check returns an error unless its driver supports a version of CUDA.
func register(get func(int) (*driver.Device, error), check func(version int) error, add func(module, image string, kernels []string)) error {
	d, err := get(0)
	if err != nil {
		return err
	}
	for _, module := range standard {
		code, err := kernels.Builtin().Image(module).Code(d.Major, d.Minor)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		if err := check(code.MinDriver); err != nil {
			return err
		}
		entries, err := kernels.Builtin().Entries(module)
		if err != nil {
			return err
		}
		add(module, string(code.Text), entries)
	}
	return nil
}
