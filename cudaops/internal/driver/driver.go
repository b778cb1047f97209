// Package driver is the part of the CUDA driver API that Stheno uses, without
// cgo: the driver's library is loaded when it is first needed, so a program
// that imports this package runs where there is none.
//
// All calls may be made from any goroutine. Each makes its context current on
// the OS thread that it runs on, since goroutines move between threads.
package driver

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"unsafe"
)

// A proc is a C function that returns a status, 0 for success.
type proc struct {
	name string
	addr uintptr // 0 where the driver has no such function
}

var procs []*proc

// Inlined into the variables below, it would be 10 KB of code in every program.
//
//go:noinline
func cu(name string) *proc {
	p := &proc{name: name}
	procs = append(procs, p)
	return p
}

var (
	cuInit             = cu("cuInit")
	cuDriverGetVersion = cu("cuDriverGetVersion")
	cuGetErrorName     = cu("cuGetErrorName")
	cuGetErrorString   = cu("cuGetErrorString")

	cuDeviceGetCount     = cu("cuDeviceGetCount")
	cuDeviceGet          = cu("cuDeviceGet")
	cuDeviceGetName      = cu("cuDeviceGetName")
	cuDeviceTotalMem     = cu("cuDeviceTotalMem_v2")
	cuDeviceGetAttribute = cu("cuDeviceGetAttribute")

	cuDevicePrimaryCtxRetain  = cu("cuDevicePrimaryCtxRetain")
	cuDevicePrimaryCtxRelease = cu("cuDevicePrimaryCtxRelease_v2")
	cuCtxSetCurrent           = cu("cuCtxSetCurrent")

	cuMemAlloc     = cu("cuMemAlloc_v2")
	cuMemFree      = cu("cuMemFree_v2")
	cuMemGetInfo   = cu("cuMemGetInfo_v2")
	cuMemHostAlloc = cu("cuMemHostAlloc")
	cuMemFreeHost  = cu("cuMemFreeHost")
	cuMemPin       = cu("cuMemHostRegister_v2")
	cuMemUnpin     = cu("cuMemHostUnregister")
	cuMemcpyHtoD   = cu("cuMemcpyHtoD_v2")
	cuMemcpyDtoH   = cu("cuMemcpyDtoH_v2")
	cuMemsetD8     = cu("cuMemsetD8_v2")
	cuMemsetAsync  = cu("cuMemsetD8Async")

	cuPointerGetAttributes = cu("cuPointerGetAttributes")

	cuStreamCreate      = cu("cuStreamCreate")
	cuStreamSynchronize = cu("cuStreamSynchronize")
	cuStreamDestroy     = cu("cuStreamDestroy_v2")
	cuStreamWaitEvent   = cu("cuStreamWaitEvent")
	cuMemcpyHtoDAsync   = cu("cuMemcpyHtoDAsync_v2")
	cuMemcpyDtoHAsync   = cu("cuMemcpyDtoHAsync_v2")
	cuMemcpyDtoDAsync   = cu("cuMemcpyDtoDAsync_v2")
	cuLaunchKernel      = cu("cuLaunchKernel")
	cuLaunchKernelEx    = cu("cuLaunchKernelEx") // since CUDA 11.8
	cuLaunchCooperative = cu("cuLaunchCooperativeKernel")

	cuStreamBeginCapture    = cu("cuStreamBeginCapture_v2")
	cuStreamEndCapture      = cu("cuStreamEndCapture")
	cuStreamCaptureInfo     = cu("cuStreamGetCaptureInfo_v2")
	cuStreamSetDependencies = cu("cuStreamUpdateCaptureDependencies")
	cuGraphInstantiate      = cu("cuGraphInstantiateWithFlags")
	cuGraphDestroy          = cu("cuGraphDestroy")
	cuGraphLaunch           = cu("cuGraphLaunch")
	cuGraphExecDestroy      = cu("cuGraphExecDestroy")
	// The driver has these since CUDA 12.3.
	cuGraphGetEdges    = cu("cuGraphGetEdges_v2")
	cuGraphAddEdges    = cu("cuGraphAddDependencies_v2")
	cuGraphRemoveEdges = cu("cuGraphRemoveDependencies_v2")

	cuModuleLoadDataEx  = cu("cuModuleLoadDataEx")
	cuModuleGetFunction = cu("cuModuleGetFunction")
	cuModuleUnload      = cu("cuModuleUnload")
	cuFuncSetAttribute  = cu("cuFuncSetAttribute")
	cuFuncGetAttribute  = cu("cuFuncGetAttribute")
	cuFuncGetParamInfo  = cu("cuFuncGetParamInfo") // since CUDA 12.4
	cuOccupancy         = cu("cuOccupancyMaxActiveBlocksPerMultiprocessor")

	cuTensorMapEncodeTiled  = cu("cuTensorMapEncodeTiled")
	cuTensorMapEncodeIm2col = cu("cuTensorMapEncodeIm2col")

	cuEventCreate          = cu("cuEventCreate")
	cuEventRecord          = cu("cuEventRecord")
	cuEventRecordWithFlags = cu("cuEventRecordWithFlags") // since CUDA 11.1
	cuEventSynchronize     = cu("cuEventSynchronize")
	cuEventElapsedTime     = cu("cuEventElapsedTime")
	cuEventDestroy         = cu("cuEventDestroy_v2")
)

// call runs the function. Memory whose address is among the arguments stays
// alive and in place until it returns.
//
//go:uintptrescapes
func (p *proc) call(args ...uintptr) error {
	if p.addr == 0 {
		return fmt.Errorf("%s: the NVIDIA driver is too old to have it: update the driver", p.name)
	}
	if code := invoke(p.addr, args...); code != 0 {
		return newError(p.name, int(code))
	}
	return nil
}

// load finds the driver's library, once.
var load = sync.OnceValue(func() error {
	lib, err := openAny(cudaNames)
	if err != nil {
		return err
	}
	for _, p := range procs {
		p.addr, _ = symbol(lib, p.name)
	}
	return nil
})

// start loads and initializes the driver, once. A driver that does not start
// counts as no device, whatever the reason.
var start = sync.OnceValue(func() error {
	if err := load(); err != nil {
		return err
	}
	if err := cuInit.call(0); err != nil {
		return fmt.Errorf("%w: the NVIDIA driver is installed but does not start: %w", ErrNoDevice, err)
	}
	return nil
})

// openAny opens the first library of names that there is. Its error is about
// the first name: the others are for odd places.
func openAny(names []string) (uintptr, error) {
	var first error
	for _, name := range names {
		lib, err := open(name)
		if err == nil {
			return lib, nil
		}
		if first == nil {
			first = fmt.Errorf("%w: cannot load %s (is the NVIDIA driver installed?): %w", ErrNoDevice, name, err)
		}
	}
	return 0, first
}

// Version is the newest CUDA version that the driver supports, 1000*major +
// 10*minor: 13000 is CUDA 13.0. It needs the driver but no device.
func Version() (int, error) {
	if err := load(); err != nil {
		return 0, err
	}
	var v int32
	err := cuDriverGetVersion.call(uintptr(unsafe.Pointer(&v)))
	return int(v), err
}

// Release is the driver's own version, such as "580.82.07", or "" where it
// cannot be found out.
var Release = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/driver/nvidia/version")
	if err == nil {
		return parseRelease(string(text))
	}
	lib, err := openAny(nvmlNames)
	if err != nil {
		return ""
	}
	nvml := func(name string, args ...uintptr) bool {
		addr, err := symbol(lib, name)
		return err == nil && invoke(addr, args...) == 0
	}
	if !nvml("nvmlInit_v2") {
		return ""
	}
	defer nvml("nvmlShutdown")
	buf := new([80]byte)
	get := proc{name: "nvmlSystemGetDriverVersion"}
	if get.addr, err = symbol(lib, get.name); err != nil ||
		invoke(get.addr, uintptr(unsafe.Pointer(buf)), uintptr(len(buf))) != 0 {
		return ""
	}
	return cString(buf[:])
})

var release = regexp.MustCompile(`\b\d{3,}\.\d+(\.\d+)?\b`)

func parseRelease(text string) string { return release.FindString(text) }

func cString(b []byte) string {
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}
