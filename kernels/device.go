package kernels

import (
	"runtime"
)

// Kind is the kind of a device.
type Kind uint8

// The kinds of devices: one that runs the CUDA bodies of kernels, and the host, which runs their Go bodies.
const (
	GPU Kind = iota
	CPU
)

// Device holds the properties that a plan may depend on. The zero value is
// not a device; use [HostDevice] or the properties that a CUDA device reports.
type Device struct {
	Name         string
	Kind         Kind
	Major, Minor int   // compute capability of a GPU
	SMs          int   // streaming multiprocessors (cores of the host)
	SharedOptin  int   // largest dynamic shared memory of a block, bytes
	L2           int64 // level-2 cache, bytes
	Memory       int64 // total memory, bytes
	Cooperative  bool  // has cooperative launches
	// Bandwidth is the memory's peak in bytes a second, and FMAs the multiply-adds in float32 a second, tensor cores left out; 0 if not known.
	Bandwidth, FMAs float64
	// Tensor is the peak in multiply-adds a second of mma.sync of 16-bit operands with sums in float32, by the vendor's data; 0 if not known. No device reports it: only
	// predictions for GPUs that are not there read it.
	Tensor float64
	// Calibration holds what `stheno calibrate` measured, if that was used: plans may then differ from those of other devices of the model.
	Calibration Calibration
	// FMA is set if products of float32 are to be computed by multiply-adds, without the tensor cores. No device reports it.
	FMA bool
}

// HostDevice describes the machine that runs the Go bodies.
func HostDevice() Device {
	return Device{Name: "host", Kind: CPU, SMs: runtime.GOMAXPROCS(0), SharedOptin: 48 << 10, L2: 1 << 20, Cooperative: true}
}

// HasClusters reports whether the device's images use clusters of blocks. Later devices than those named load the PTX, whose target has none.
func (d Device) HasClusters() bool { return d.Major == 9 || d.Major == 10 || d.Major == 12 }

// FMALanes returns the multiply-adds in Float32 or Float64 that an SM of a GPU starts in a clock, tensor cores left out: those of the table of throughputs by
// compute capability in NVIDIA's programming guide.
func (d Device) FMALanes(dt Dtype) float64 {
	if dt == Float32 {
		if d.Major == 7 || d.Major == 8 && d.Minor == 0 {
			return 64
		}
		return 128
	}
	switch {
	case d.Minor > 0 || d.Major > 10: // GPUs for graphics
		return 2
	case d.Major < 9:
		return 32
	}
	return 64
}
