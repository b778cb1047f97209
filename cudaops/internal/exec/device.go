package exec

import (
	"errors"
	"fmt"
	"sync"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/loader"
	"github.com/stheno-ml/stheno/internal/hostmem"
	"github.com/stheno-ml/stheno/kernels"
)

// device is an open CUDA device with the kernels loaded so far. It is never closed, because creating a context takes 0.11 to 0.24 s.
type device struct {
	number int
	ctx    *driver.Context
	loader *loader.Loader
}

var devices struct {
	sync.Mutex
	open map[int]*device
}

// openDevice returns device i with its context.
func openDevice(i int) (*device, error) {
	d, err := startDevice(i)
	if err == nil {
		err = d.wait()
	}
	return d, err
}

// startDevice returns device i, whose context is created in the background.
func startDevice(i int) (*device, error) {
	devices.Lock()
	defer devices.Unlock()
	if d := devices.open[i]; d != nil {
		return d, nil
	}
	found, err := driver.Get(i)
	if err != nil {
		return nil, err
	}
	if err := Usable(found); err != nil {
		return nil, err
	}
	ctx := found.Start()
	d := &device{i, ctx, loader.New(ctx)}
	if devices.open == nil {
		devices.open = map[int]*device{}
	}
	devices.open[i] = d
	return d, nil
}

// wait waits for the context. A device without one is forgotten, so that the next user tries again.
func (d *device) wait() error {
	err := d.ctx.Wait()
	if err != nil {
		devices.Lock()
		defer devices.Unlock()
		if devices.open[d.number] == d {
			delete(devices.open, d.number)
		}
	}
	return err
}

// Pinned returns zeroed memory, allocated by Go and page-locked for all GPUs. On a machine without a usable GPU it is
// ordinary memory.
func Pinned(bytes int64) ([]byte, error) {
	if err := hostmem.Check(bytes); err != nil {
		return nil, err
	}
	d, err := anyDevice()
	if errors.Is(err, driver.ErrNoDevice) {
		return kernels.Bytes(make([]int64, kernels.CeilDiv(bytes, 8)))[:bytes:bytes], nil
	}
	if err != nil {
		return nil, err
	}
	return d.ctx.MakePinned(bytes)
}

// anyDevice returns an open device; if there is none, it opens the first.
func anyDevice() (*device, error) {
	devices.Lock()
	for _, d := range devices.open {
		devices.Unlock()
		return d, d.wait()
	}
	devices.Unlock()
	return openDevice(0)
}

// Usable returns an error that explains why the kernels cannot run on a device, or nil.
func Usable(d *driver.Device) error {
	_, minDriver, err := kernels.Target(d.Major, d.Minor)
	if err == nil {
		err = driver.CheckDriver(minDriver)
	}
	if err == nil { // all images of a target are in the program, or none
		_, err = kernels.Builtin().Image("add").Code(d.Major, d.Minor)
	}
	if err != nil {
		return fmt.Errorf("%w that can be used: %s: %w", driver.ErrNoDevice, d.Name, err)
	}
	return nil
}
