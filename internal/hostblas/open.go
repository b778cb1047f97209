package hostblas

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"gonum.org/v1/gonum/blas/gonum"
)

// errAbsent is the error for a library that is not on the machine.
var errAbsent = errors.New("there is no such library")

// loaded holds the results of Open for the libraries that it has loaded, by their handles. They
// stay in the process.
var loaded = struct {
	sync.Mutex
	by map[uintptr]opened
}{by: map[uintptr]opened{}}

type opened struct {
	library *Library
	err     error
}

// Open loads a library and returns it if its products are right. The name is a file or, where the
// system's loader searches folders, its last part. A library that was loaded by somebody else is
// refused: Open would change its number of threads.
func Open(name string) (*Library, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if handle := present(name); handle != 0 {
		if o, ok := loaded.by[handle]; ok {
			return o.library, o.err
		}
		if !strings.HasPrefix(name, systems) {
			return nil, fmt.Errorf("%s: another part of this program uses it: give it to gorgonia.Use, or another library to Stheno", name)
		}
	}
	handle, err := load(name)
	if err != nil {
		if strings.Contains(strings.ToLower(err.Error()), "no such file") {
			err = errAbsent
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l := &Library{BLAS: gonum.Implementation{}, file: name, calls: make(chan struct{}, min(runtime.NumCPU(), mostCalls))}
	if err = l.start(functions{handle: handle}); err != nil {
		l, err = nil, fmt.Errorf("%s: %w", name, err)
	}
	loaded.by[handle] = opened{l, err}
	return l, err
}

// start finds the library's functions and checks them.
func (l *Library) start(f functions) error {
	if !f.decorate("sgemm_") {
		return errors.New("has no function sgemm_")
	}
	for _, fn := range []struct {
		to   *uintptr
		name string
	}{{&l.single.gemm, "sgemm_"}, {&l.single.gemv, "sgemv_"}, {&l.double.gemm, "dgemm_"}, {&l.double.gemv, "dgemv_"}} {
		if *fn.to = f.find(fn.name); *fn.to == 0 {
			return fmt.Errorf("has no function %s%s%s", f.prefix, fn.name, f.suffix)
		}
	}
	if err := l.prepare(f); err != nil {
		return err
	}
	if err := l.check(); err != nil {
		return fmt.Errorf("%s is refused: %w", l.name, err)
	}
	return nil
}

// systems is where the libraries of macOS lie, whose number of threads is not set.
const systems = "/System/"

// mostCalls is the number of concurrent calls for which all libraries have memory: OpenBLAS fixes
// it when it is compiled, at 50 threads or more in all builds.
const mostCalls = 32

// load calls open on an OS thread that ends with it: libraries compiled with -ffast-math make the
// thread that loads them flush denormal numbers to 0.
func load(name string) (handle uintptr, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		handle, err = open(name)
	}()
	<-done
	return handle, err
}

// functions are the addresses of a library's functions. Some builds decorate all names.
type functions struct {
	handle         uintptr
	prefix, suffix string
}

// decorations are the prefixes and suffixes of names: of builds with 64-bit integers, and of the
// libraries that NumPy and SciPy bring.
var decorations = [][2]string{{"", ""}, {"", "64_"}, {"", "_64"}, {"scipy_", ""}, {"scipy_", "64_"}}

// decorate finds the decoration of names, from that of one function.
func (f *functions) decorate(name string) bool {
	for _, d := range decorations {
		if f.prefix, f.suffix = d[0], d[1]; f.find(name) != 0 {
			return true
		}
	}
	return false
}

// find returns the address of a function, or 0.
func (f functions) find(name string) uintptr { return symbol(f.handle, f.prefix+name+f.suffix) }

// text returns the text that a function without arguments returns, or "".
func (f functions) text(name string) string {
	fn := f.find(name)
	if fn == 0 {
		return ""
	}
	return goString(call(fn))
}

// goString copies a C string.
func goString(addr uintptr) string {
	if addr == 0 {
		return ""
	}
	p := *(**byte)(unsafe.Pointer(&addr)) // C's memory, which the garbage collector does not move
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// prepare identifies a library and makes each of its calls use one thread.
func (l *Library) prepare(f functions) error {
	switch {
	case f.find("openblas_get_config") != 0:
		return l.prepareOpenBLAS(f)
	case symbol(f.handle, "bli_info_get_version_str") != 0:
		f.prefix, f.suffix = "", ""
		return l.prepareBLIS(f)
	case symbol(f.handle, "MKL_Get_Version_String") != 0:
		f.prefix, f.suffix = "", ""
		return l.prepareMKL(f)
	case strings.HasPrefix(l.file, systems):
		l.name = "Accelerate"
	default:
		l.name = "BLAS of an unknown vendor"
	}
	return nil
}

var openBLASVersion = regexp.MustCompile(`^OpenBLAS (\d+)\.(\d+)\.(\d+)`)

// prepareOpenBLAS refuses versions before 0.3.12, whose kernels for AVX-512 and whose concurrent
// calls returned wrong results.
func (l *Library) prepareOpenBLAS(f functions) error {
	config := f.text("openblas_get_config")
	version := openBLASVersion.FindStringSubmatch(config)
	if version == nil {
		return fmt.Errorf("an OpenBLAS that does not report its version (%q), want 0.3.12 or newer", config)
	}
	number := 0
	for _, part := range version[1:] {
		n, _ := strconv.Atoi(part) // digits by the pattern
		number = number*1000 + n
	}
	if number < 3_012 {
		return fmt.Errorf("%s has errors, want 0.3.12 or newer", version[0])
	}
	l.name = version[0]
	if core := f.text("openblas_get_corename"); core != "" {
		l.name += " for " + core
	}
	set, parallel := f.find("openblas_set_num_threads"), f.find("openblas_get_parallel")
	if set == 0 || parallel == 0 {
		return fmt.Errorf("has no openblas_set_num_threads or openblas_get_parallel")
	}
	call(set, 1)
	switch call(parallel) & 0xff {
	case 0: // built without threads, perhaps without locks
		l.calls = make(chan struct{}, 1)
	case 2: // with OpenMP, whose number of threads belongs to an OS thread
		if l.threads = symbol(f.handle, "omp_set_num_threads"); l.threads == 0 {
			return fmt.Errorf("%s uses OpenMP, whose omp_set_num_threads is not there", l.name)
		}
	}
	return nil
}

func (l *Library) prepareBLIS(f functions) error {
	l.name = "BLIS " + f.text("bli_info_get_version_str")
	if l.threads = f.find("bli_thread_set_num_threads"); l.threads == 0 {
		return fmt.Errorf("%s has no bli_thread_set_num_threads", l.name)
	}
	return nil
}

// prepareMKL asks MKL for its code without threads, before anything loads the threaded one, and for
// results that do not depend on where operands lie.
func (l *Library) prepareMKL(f functions) error {
	const sequential, automatic = 1, 2
	l.name = "MKL"
	layer, reproducible, threads := f.find("MKL_Set_Threading_Layer"), f.find("MKL_CBWR_Set"), f.find("MKL_Set_Num_Threads")
	if layer == 0 || reproducible == 0 || threads == 0 {
		return errors.New("MKL has no MKL_Set_Threading_Layer, MKL_CBWR_Set or MKL_Set_Num_Threads")
	}
	if r := int32(call(layer, sequential)); r != sequential {
		return fmt.Errorf("MKL_Set_Threading_Layer(SEQUENTIAL) returns %d, want %d", r, sequential)
	}
	if r := int32(call(reproducible, automatic)); r != 0 {
		return fmt.Errorf("MKL_CBWR_Set(AUTO) returns %d, want 0", r)
	}
	call(threads, 1)
	var version [200]byte
	call(f.find("MKL_Get_Version_String"), uintptr(unsafe.Pointer(&version[0])), uintptr(len(version)-1))
	if m := mklVersion.FindSubmatch(version[:]); m != nil {
		l.name += " " + string(m[1])
	}
	return nil
}

var mklVersion = regexp.MustCompile(`Version (\d[\w.]*)`)
