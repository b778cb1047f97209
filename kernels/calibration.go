package kernels

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/fingerprint"
)

// Calibration holds what `stheno calibrate` measured on a GPU. The zero value is no calibration.
type Calibration struct {
	Memory  float64 // bytes a second that a sum reads from memory
	L2      float64 // bytes a second that a sum reads from L2
	FMAs    float64 // multiply-adds a second of a large product in float32, without the tensor cores
	Launch  float64 // us of a sum of one block that follows another one
	Load    float64 // us of a load from memory that waits for the load before it
	Barrier float64 // us that a block adds which waits for all others
}

// Name returns twelve hexadecimal digits that identify the numbers, "" for the zero value.
func (c Calibration) Name() string {
	if c == (Calibration{}) {
		return ""
	}
	return fingerprint.Of(fmt.Append(nil, c)).String()[:12]
}

// Check returns an error unless the numbers can be those of a GPU.
func (c Calibration) Check() error {
	for _, f := range []struct {
		name        string
		got, lo, hi float64
	}{
		{"bytes a second of memory", c.Memory, 1e9, 1e15}, {"bytes a second of L2", c.L2, 1e9, 1e16}, {"multiply-adds a second", c.FMAs, 1e9, 1e16},
		{"us of a launch", c.Launch, 0.01, 1e4}, {"us of a load", c.Load, 0.01, 1e3}, {"us of a barrier", c.Barrier, 0.01, 1e4},
	} {
		if !(f.got >= f.lo && f.got <= f.hi) { // NaN is not
			return fmt.Errorf("got %v %s, want %v to %v", f.got, f.name, f.lo, f.hi)
		}
	}
	return nil
}

// Facts are the numbers of a device that predictions of launch times read, beside its SMs and limits. Models whose constants were fitted on an H100 scale them.
type Facts struct {
	Bandwidth float64 // of memory, its peak in bytes a second
	FMAs      float64 // the peak, multiply-adds in float32 a second; 0 if not known
	// L2 is the rate at which an SM reads from L2, relative to that of an H100.
	L2 float64
	// Launch, Load and Barrier are times relative to those of an H100.
	Launch, Load, Barrier float64
}

// hopper is a calibration of an NVIDIA H200, whose multiprocessors are those of an H100, with its peaks and SMs.
var hopper = struct {
	Calibration
	bandwidth, fmas float64
	sms             int
}{Calibration{Memory: 4.513e12, L2: 5.73e12, FMAs: 1.985e13, Launch: 2.57, Load: 0.5805, Barrier: 1.785}, 4.814e12, 33.45e12, 132}

// Facts returns what predictions read: what was measured or, without a calibration, the reported peaks and the relations of an H100.
//
// A calibrated peak is the peak of which the device would reach the share that an H200 reaches.
func (d Device) Facts() Facts {
	const perSM = 20e9 // bytes a second, an estimate for a device that does not report them
	f := Facts{Bandwidth: d.Bandwidth, FMAs: d.FMAs, L2: 1, Launch: 1, Load: 1, Barrier: 1}
	if f.Bandwidth == 0 {
		f.Bandwidth = perSM * float64(d.SMs)
	}
	if c, h := d.Calibration, hopper; c != (Calibration{}) {
		f = Facts{Bandwidth: c.Memory / h.Memory * h.bandwidth, FMAs: c.FMAs / h.FMAs * h.fmas,
			L2: c.L2 / float64(d.SMs) / (h.L2 / float64(h.sms)), Launch: c.Launch / h.Launch, Load: c.Load / h.Load, Barrier: c.Barrier / h.Barrier}
	}
	return f
}
