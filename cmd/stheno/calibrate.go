package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/calibration"
	"github.com/stheno-ml/stheno/kernels"
)

// calibrate measures a GPU for the models that choose kernels.
type calibrate struct {
	onDevice
	Out string `short:"o" placeholder:"FILE" type:"path" help:"File to write, instead of that of the user: of one GPU."`
}

func (calibrate) Help() string {
	return `Measures, in less than 30 s, what the predictions that choose kernels read of a GPU: bandwidths of memory and
L2, the rate of multiply-adds, and the time of a launch, a load and a barrier. It keeps them in a file of the user.
Every later program of the user reads that on a GPU of the same model: another kernel may then be chosen, so that last
bits of sums and products may differ from those without a calibration. Of several GPUs it measures the first of each
model, or the one that --device names; the ranks of a program all use the file of rank 0's GPU. With the same file they are always the same. Nothing needs a
calibration; without one, predictions use what the GPU reports and the times of an H100.

` + calibration.Variable + ` names another file, or is "` + calibration.None + `" to use no calibration. No file holds a name of a host or user.`
}

// Run calibrates.
func (r calibrate) Run(c *console) error {
	gpu, err := r.open("a calibration is of one")
	if err != nil {
		return err
	}
	devices := []cudaops.Device{gpu}
	if r.Device == nil {
		if devices, err = cudaops.Devices(); err != nil {
			return err
		}
	}
	return r.measure(c, firstOfEachModel(devices), bench.Calibrate)
}

// firstOfEachModel returns the first device of each model that can be used: a calibration is for all of a model.
func firstOfEachModel(devices []cudaops.Device) (first []cudaops.Device) {
	for _, d := range devices {
		if d.Err == nil && !slices.ContainsFunc(first, func(f cudaops.Device) bool { return calibration.ID(f.Device) == calibration.ID(d.Device) }) {
			first = append(first, d)
		}
	}
	return first
}

// measure writes the calibrations of devices of different models, by a function that measures a device.
func (r calibrate) measure(c *console, devices []cudaops.Device, of func(ordinal int) (kernels.Calibration, error)) error {
	if r.Out != "" && len(devices) > 1 {
		return usageErrorf("-o: got one file for GPUs of %d models, want one GPU, by --device, or none of these flags for a file of the user for each model", len(devices))
	}
	for _, gpu := range devices {
		path := r.Out
		if path == "" {
			var err error
			if path, err = calibration.Path(gpu.Device); err != nil {
				return err
			}
		}
		start := time.Now()
		measured, err := of(gpu.Ordinal)
		if err == nil {
			err = calibration.Write(path, gpu.Device, measured)
		}
		if err != nil {
			return fmt.Errorf("%s, device %d: %w", gpu.Name, gpu.Ordinal, err)
		}
		took := time.Since(start)
		printCalibration(c, gpu.Device, measured)
		fmt.Fprintf(c.out, "\nmeasured in %v, wrote %s\n", took.Round(10*time.Millisecond), path)
	}
	return nil
}

// printCalibration prints what was measured of a device.
func printCalibration(c *console, dev kernels.Device, m kernels.Calibration) {
	fmt.Fprintf(c.out, "%s, calibration %s\n\n", dev.Name, m.Name())
	for _, f := range []struct {
		name  string
		value float64
		unit  string
	}{
		{"memory, read", m.Memory / 1e9, "GB/s"}, {"memory, reported peak", dev.Bandwidth / 1e9, "GB/s"}, {"L2, read", m.L2 / 1e9, "GB/s"},
		{"multiply-adds", m.FMAs / 1e12, "10^12/s"}, {"multiply-adds, reported peak", dev.FMAs / 1e12, "10^12/s"},
		{"launch", m.Launch, "us"}, {"load", m.Load, "us"}, {"barrier", m.Barrier, "us"},
	} {
		fmt.Fprintf(c.out, "%-28s %8.4g %s\n", f.name, f.value, f.unit)
	}
}
