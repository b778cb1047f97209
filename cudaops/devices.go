package cudaops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/loader"
	"github.com/stheno-ml/stheno/internal/calibration"
	"github.com/stheno-ml/stheno/kernels"
)

// ErrNoDevice is wrapped by every error about a machine without a usable CUDA device, or without a device of the requested
// number.
var ErrNoDevice = driver.ErrNoDevice

// Device is a CUDA device of this machine.
type Device struct {
	kernels.Device
	Ordinal int    // its number for [OnDevice]
	Driver  string // the NVIDIA driver's version, such as 580.82.07; "" if unknown
	CUDA    string // the newest CUDA version that the driver supports, such as 13.0
	Err     error  // why the device or its driver is too old to run kernels; wraps [ErrNoDevice]
	// Uncalibrated is the reason not to use the file with the device's calibration; nil without such a file, and if it is used.
	Uncalibrated error
}

// String returns a line with name, number, compute capability and driver.
func (d Device) String() string {
	version := d.Driver
	if version == "" {
		version = "of unknown version"
	}
	return fmt.Sprintf("%s (device %d, sm_%d%d, %.1f GiB, driver %s, CUDA %s)",
		d.Name, d.Ordinal, d.Major, d.Minor, float64(d.Memory)/(1<<30), version, d.CUDA)
}

// Devices lists the CUDA devices of this machine. The error, which wraps [ErrNoDevice], explains why there is no device. If
// none of the devices is usable, Devices returns both the list and an error.
func Devices() ([]Device, error) {
	n, err := driver.Count()
	if err != nil {
		return nil, err
	}
	version, err := driver.Version()
	if err != nil {
		return nil, err
	}
	devices := make([]Device, n)
	for i := range devices {
		d, err := driver.Get(i)
		if err != nil {
			return nil, err
		}
		devices[i] = Device{Device: loader.Properties(d), Ordinal: i, Driver: driver.Release(), CUDA: fmt.Sprintf("%d.%d", version/1000, version%1000/10), Err: exec.Usable(d)}
		_, devices[i].Uncalibrated = calibration.Find(devices[i].Device)
	}
	if !slices.ContainsFunc(devices, func(d Device) bool { return d.Err == nil }) {
		return devices, devices[0].Err
	}
	return devices, nil
}
