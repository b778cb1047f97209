package driver

import (
	"fmt"
	"unsafe"
)

// Device is one CUDA device. Sizes are in bytes.
type Device struct {
	Ordinal            int // its number, from 0, in CUDA_VISIBLE_DEVICES' order
	Name               string
	Major, Minor       int // compute capability
	SMs                int
	SharedPerBlock     int // shared memory of a block by default
	SharedOptin        int // the same after [Function.SetMaxShared]
	L2                 int
	Memory             int64
	MaxThreadsPerBlock int
	CooperativeLaunch  bool
	Clock, MemoryClock int // kHz
	BusWidth           int // of the memory, bits

	handle uintptr
}

// Count returns the number of devices. It is 0 only with an error, which wraps [ErrNoDevice].
func Count() (int, error) {
	if err := start(); err != nil {
		return 0, err
	}
	var n int32
	if err := cuDeviceGetCount.call(uintptr(unsafe.Pointer(&n))); err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, fmt.Errorf("%w: the NVIDIA driver runs but shows none (is CUDA_VISIBLE_DEVICES set?)", ErrNoDevice)
	}
	return int(n), nil
}

// Get returns device i of [Count]. The error wraps [ErrNoDevice] if there is no device i.
func Get(i int) (*Device, error) {
	n, err := Count()
	if err != nil {
		return nil, err
	}
	if i < 0 || i >= n {
		return nil, fmt.Errorf("%w %d: this machine has %d, numbered from 0", ErrNoDevice, i, n)
	}
	var handle int32
	if err := cuDeviceGet.call(uintptr(unsafe.Pointer(&handle)), uintptr(i)); err != nil {
		return nil, err
	}
	d := &Device{Ordinal: i, handle: uintptr(handle)}
	name := new([256]byte)
	if err := cuDeviceGetName.call(uintptr(unsafe.Pointer(name)), uintptr(len(name)), d.handle); err != nil {
		return nil, err
	}
	d.Name = cString(name[:])
	if err := cuDeviceTotalMem.call(uintptr(unsafe.Pointer(&d.Memory)), d.handle); err != nil {
		return nil, err
	}
	var cooperative int
	for _, a := range []struct {
		number uintptr // CUdevice_attribute
		to     *int
	}{
		{1, &d.MaxThreadsPerBlock},
		{8, &d.SharedPerBlock},
		{13, &d.Clock},
		{16, &d.SMs},
		{36, &d.MemoryClock},
		{37, &d.BusWidth},
		{38, &d.L2},
		{75, &d.Major},
		{76, &d.Minor},
		{95, &cooperative},
		{97, &d.SharedOptin},
	} {
		var v int32
		if err := cuDeviceGetAttribute.call(uintptr(unsafe.Pointer(&v)), a.number, d.handle); err != nil {
			return nil, err
		}
		*a.to = int(v)
	}
	d.CooperativeLaunch = cooperative != 0
	return d, nil
}
