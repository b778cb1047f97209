package driver

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// Module is a loaded image: a cubin or PTX.
type Module struct {
	ctx    *Context
	handle uintptr
}

// Load loads an image, compiling it if it is PTX. The error has the compiler's or linker's message.
func (c *Context) Load(image []byte) (*Module, error) {
	const infoLog, infoSize, errorLog, errorSize = 3, 4, 5, 6 // CUjit_option
	info, log := new([4096]byte), new([4096]byte)
	options := []uint32{infoLog, infoSize, errorLog, errorSize}
	values := []uintptr{ // void *[4]: addresses, and numbers instead of addresses
		uintptr(unsafe.Pointer(info)), uintptr(len(info)),
		uintptr(unsafe.Pointer(log)), uintptr(len(log)),
	}
	// C finds the logs through values, which does not keep them for Go.
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(info)
	pin.Pin(log)

	if !bytes.HasPrefix(image, []byte("\x7fELF")) {
		image = append(image[:len(image):len(image)], 0) // PTX ends with a NUL
	}
	m := &Module{ctx: c}
	err := c.call(cuModuleLoadDataEx, uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(&image[0])),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0])))
	if err != nil {
		if text := strings.TrimSpace(cString(log[:])); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return nil, err
	}
	return m, nil
}

// releases maps the CUDA versions that images need to the first driver release that supports them.
var releases = map[int]string{12000: "525", 12080: "570", 12090: "575"}

// CheckDriver returns an error that names the remedy if the driver is older than one for CUDA
// minDriver.
func CheckDriver(minDriver int) error {
	have, err := Version()
	if err != nil {
		return err
	}
	return checkVersion(have, Release(), minDriver)
}

func checkVersion(have int, release string, need int) error {
	if have >= need {
		return nil
	}
	if release != "" {
		release = " " + release
	}
	driver := "a newer one"
	if r := releases[need]; r != "" {
		driver = r + " or newer"
	}
	return fmt.Errorf("this kernel image needs CUDA %s: the NVIDIA driver%s here supports CUDA %s, install %s",
		cudaVersion(need), release, cudaVersion(have), driver)
}

func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// Unload releases the module and its functions. Further calls do nothing.
func (m *Module) Unload() error { return closeHandle(m.ctx, &m.handle, cuModuleUnload) }

// Function is a kernel of a module.
type Function struct {
	Name string
	// WaitsForDependencies is set if every thread of the kernel executes griddepcontrol.wait before it accesses global memory
	// or returns: see [Context.Capture].
	WaitsForDependencies bool

	ctx    *Context
	handle uintptr
}

// Function finds the kernel of that (unmangled) name.
func (m *Module) Function(name string) (*Function, error) {
	cName := append([]byte(name), 0)
	f := &Function{Name: name, ctx: m.ctx}
	err := m.ctx.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&f.handle)), m.handle, uintptr(unsafe.Pointer(&cName[0])))
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	return f, nil
}

// SetMaxShared allows launches of f with up to that many bytes of dynamic shared memory. The limit is the device's
// SharedOptin minus f's static bytes.
func (f *Function) SetMaxShared(bytes int) error {
	const maxDynamicShared = 8 // CUfunction_attribute
	if err := f.ctx.call(cuFuncSetAttribute, f.handle, maxDynamicShared, uintptr(bytes)); err != nil {
		return fmt.Errorf("kernel %s: %d bytes of dynamic shared memory: %w", f.Name, bytes, err)
	}
	return nil
}

// Attributes are properties of a compiled kernel.
type Attributes struct {
	Registers int // per thread
	Local     int // bytes per thread: stack and spills
	Shared    int // bytes of static shared memory per block
}

// Attributes reads f's attributes.
func (f *Function) Attributes() (a Attributes, err error) {
	for _, q := range []struct {
		number uintptr // CUfunction_attribute
		to     *int
	}{{1, &a.Shared}, {3, &a.Local}, {4, &a.Registers}} {
		var v int32
		if err := f.ctx.call(cuFuncGetAttribute, uintptr(unsafe.Pointer(&v)), q.number, f.handle); err != nil {
			return a, fmt.Errorf("kernel %s: %w", f.Name, err)
		}
		*q.to = int(v)
	}
	return a, nil
}

// ParamSizes returns the bytes of each parameter of f. ok is false if the driver does not report
// them, as before CUDA 12.4.
func (f *Function) ParamSizes() (sizes []int, ok bool) {
	const invalidValue, maxParams = 1, 4096 // there is no parameter of that number; kernels have fewer
	if cuFuncGetParamInfo.addr == 0 {
		return nil, false
	}
	for i := range maxParams {
		var offset, size uintptr
		err := f.ctx.call(cuFuncGetParamInfo, f.handle, uintptr(i), uintptr(unsafe.Pointer(&offset)), uintptr(unsafe.Pointer(&size)))
		var e *Error
		if errors.As(err, &e) && e.Code == invalidValue {
			return sizes, true
		}
		if err != nil {
			return nil, false
		}
		sizes = append(sizes, int(size))
	}
	return nil, false
}

// MaxActiveBlocks returns the maximum number of resident blocks per SM, for blocks of that many threads and bytes of dynamic
// shared memory.
func (f *Function) MaxActiveBlocks(block, shared int) (int, error) {
	var n int32
	err := f.ctx.call(cuOccupancy, uintptr(unsafe.Pointer(&n)), f.handle, uintptr(block), uintptr(shared))
	return int(n), err
}
