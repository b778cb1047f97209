// Package nccl calls NVIDIA's NCCL, the library of collective operations among GPUs, without cgo. The library is loaded at run
// time where it is installed, so a program that imports this package runs where there is none.
package nccl

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Variable is the environment variable that names the library's file.
const Variable = "STHENO_NCCL"

// functions are the functions of the library. Each but GetErrorString returns a ncclResult_t. Streams, communicators and device
// memory are addresses.
type functions struct {
	GetVersion        func(version *int32) int32
	GetErrorString    func(code int32) string
	GetUniqueId       func(id *ID) int32
	CommInitRank      func(comm *uintptr, ranks int32, id ID, rank int32) int32
	CommGetAsyncError func(comm uintptr, code *int32) int32
	CommAbort         func(comm uintptr) int32
	CommDestroy       func(comm uintptr) int32
	GroupStart        func() int32
	GroupEnd          func() int32
	AllReduce         func(send, recv, count uintptr, dtype, op int32, comm, stream uintptr) int32
	Reduce            func(send, recv, count uintptr, dtype, op, root int32, comm, stream uintptr) int32
	Broadcast         func(send, recv, count uintptr, dtype, root int32, comm, stream uintptr) int32
	AllGather         func(send, recv, count uintptr, dtype int32, comm, stream uintptr) int32
	ReduceScatter     func(send, recv, count uintptr, dtype, op int32, comm, stream uintptr) int32
}

// ID identifies a communicator: one rank makes it, and all ranks pass it to [Library.Join].
type ID struct{ Bytes [128]byte }

// Op is a reduction.
type Op int32

// The reductions, as NCCL numbers them.
const (
	Sum  Op = 0
	Mean Op = 4
)

// dtypes are NCCL's numbers of element types.
var dtypes = map[kernels.Dtype]int32{kernels.Uint8: 1, kernels.Bool: 1, kernels.Int32: 2, kernels.Int64: 4, kernels.Int: 4, expr.F16: 6, kernels.Float32: 7, kernels.Float64: 8, expr.BF16: 9}

// Error is a call that failed.
type Error struct {
	Call string // the function: "ncclAllReduce"
	Code int    // the ncclResult_t
	Text string // NCCL's description of it
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code) }

// ErrNone is wrapped by the error of [Load] on a machine without NCCL.
var ErrNone = errors.New("NCCL cannot be loaded")

// Library is a loaded NCCL.
type Library struct {
	Path string // the file, or the name that the system's loader found
	fn   functions
}

// Load loads the library, once: the file that STHENO_NCCL names or else the first that loads of the system's libnccl.so.2 and
// those of the wheels nvidia-nccl-cu12 and nvidia-nccl-cu13 in Python's environments. The error lists the places.
func Load() (*Library, error) {
	loaded.Do(func() {
		names := append([]string{"libnccl.so.2"}, wheels()...)
		if path := os.Getenv(Variable); path != "" {
			names = []string{path}
		}
		loaded.library, loaded.err = openFirst(names)
	})
	return loaded.library, loaded.err
}

// loaded is what Load returns. A variable of [sync.OnceValues] would be set in all programs, which would then link what it calls.
var loaded struct {
	sync.Once
	library *Library
	err     error
}

// openFirst opens the first library of names that loads.
func openFirst(names []string) (*Library, error) {
	errs := []error{fmt.Errorf("%w, want a libnccl.so.2 of the system or of the wheels nvidia-nccl-cu12 or nvidia-nccl-cu13, or its file in %s; looked for", ErrNone, Variable)}
	for _, name := range names {
		l, err := open(name)
		if err == nil {
			return l, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", name, err))
	}
	return nil, errors.Join(errs...)
}

// wheels returns the files of installed wheels, or the patterns that match none. Python's environments are the active ones and
// that of the python3 in the path.
func wheels() (files []string) {
	roots := []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")}
	if python, err := exec.LookPath("python3"); err == nil {
		roots = append(roots, filepath.Dir(filepath.Dir(python)))
	}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(home, ".local"))
	}
	roots = append(roots, "/usr/local", "/usr")
	for i, root := range roots {
		if root == "" || slices.Contains(roots[:i], root) {
			continue
		}
		pattern := filepath.Join(root, "lib", "python3*", "*-packages", "nvidia", "nccl", "lib", "libnccl.so.2")
		found, _ := filepath.Glob(pattern)
		if len(found) == 0 {
			found = []string{pattern}
		}
		files = append(files, found...)
	}
	return files
}

// check returns the error of a call.
func (l *Library) check(call string, code int32) error {
	if code == 0 {
		return nil
	}
	return &Error{call, int(code), l.fn.GetErrorString(code)}
}

// Version returns the library's version, 10000*major + 100*minor + patch: 22803 is NCCL 2.28.3.
func (l *Library) Version() (int, error) {
	var v int32
	err := l.check("ncclGetVersion", l.fn.GetVersion(&v))
	return int(v), err
}

// NewID makes the identity of a communicator. The process listens on a port until all ranks have joined.
func (l *Library) NewID() (id ID, err error) {
	err = l.check("ncclGetUniqueId", l.fn.GetUniqueId(&id))
	return id, err
}

// Join makes the calling thread's current device one of ranks, numbered rank from 0. It waits until all ranks have joined. A
// process with several ranks calls it for each in a goroutine locked to a thread.
func (l *Library) Join(id ID, ranks, rank int) (*Comm, error) {
	c := &Comm{lib: l, rank: rank}
	if err := l.check("ncclCommInitRank", l.fn.CommInitRank(&c.handle, int32(ranks), id, int32(rank))); err != nil {
		return nil, err
	}
	return c, nil
}

// Comm is a rank's communicator. Its collectives are queued on a stream, or captured if the stream captures; all ranks must queue
// the same ones in the same order. Addresses are of memory of the rank's device.
type Comm struct {
	lib    *Library
	handle uintptr
	rank   int
	ended  atomic.Bool // by Abort or Close
	asking sync.Mutex  // during AsyncError, which must not use a communicator that ends
}

var errEnded = errors.New("the communicator has ended")

// Rank returns the number of the rank.
func (c *Comm) Rank() int { return c.rank }

// dtype returns NCCL's number of an element type.
func dtype(d kernels.Dtype) (int32, error) {
	n, ok := dtypes[d]
	if !ok {
		return 0, fmt.Errorf("nccl: got elements of %v, want uint8, int32, int64, float32, float64, F16 or BF16", d)
	}
	return n, nil
}

// call checks an element type and queues a collective.
func (c *Comm) call(name string, d kernels.Dtype, f func(dtype int32) int32) error {
	n, err := dtype(d)
	if err != nil {
		return err
	}
	if c.ended.Load() {
		return fmt.Errorf("%s: %w", name, errEnded)
	}
	return c.lib.check(name, f(n))
}

// AllReduce reduces count elements of all ranks; every rank receives the result. recv may be send.
func (c *Comm) AllReduce(send, recv uintptr, count int64, d kernels.Dtype, op Op, stream uintptr) error {
	return c.call("ncclAllReduce", d, func(t int32) int32 {
		return c.lib.fn.AllReduce(send, recv, uintptr(count), t, int32(op), c.handle, stream)
	})
}

// Reduce reduces count elements of all ranks to the memory recv of rank root; on other ranks recv is not written.
func (c *Comm) Reduce(send, recv uintptr, count int64, d kernels.Dtype, op Op, root int, stream uintptr) error {
	return c.call("ncclReduce", d, func(t int32) int32 {
		return c.lib.fn.Reduce(send, recv, uintptr(count), t, int32(op), int32(root), c.handle, stream)
	})
}

// Broadcast copies count elements of rank root to recv of all ranks.
func (c *Comm) Broadcast(send, recv uintptr, count int64, d kernels.Dtype, root int, stream uintptr) error {
	return c.call("ncclBroadcast", d, func(t int32) int32 {
		return c.lib.fn.Broadcast(send, recv, uintptr(count), t, int32(root), c.handle, stream)
	})
}

// AllGather concatenates count elements of each rank in the order of the ranks; every rank receives the result.
func (c *Comm) AllGather(send, recv uintptr, count int64, d kernels.Dtype, stream uintptr) error {
	return c.call("ncclAllGather", d, func(t int32) int32 {
		return c.lib.fn.AllGather(send, recv, uintptr(count), t, c.handle, stream)
	})
}

// ReduceScatter reduces the elements of all ranks; rank r receives part r of the result, count elements.
func (c *Comm) ReduceScatter(send, recv uintptr, count int64, d kernels.Dtype, op Op, stream uintptr) error {
	return c.call("ncclReduceScatter", d, func(t int32) int32 {
		return c.lib.fn.ReduceScatter(send, recv, uintptr(count), t, int32(op), c.handle, stream)
	})
}

// Group makes the collectives that f queues one operation. They must come from f's goroutine, which is locked to its thread meanwhile.
func (c *Comm) Group(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.lib.check("ncclGroupStart", c.lib.fn.GroupStart()); err != nil {
		return err
	}
	err := f()
	return errors.Join(err, c.lib.check("ncclGroupEnd", c.lib.fn.GroupEnd()))
}

// AsyncError returns the error of a queued collective, or nil, from any goroutine. After an error the communicator can only be aborted.
func (c *Comm) AsyncError() error {
	if c.ended.Load() { // Abort may take long
		return errEnded
	}
	c.asking.Lock()
	defer c.asking.Unlock()
	if c.ended.Load() {
		return errEnded
	}
	var code int32
	if err := c.lib.check("ncclCommGetAsyncError", c.lib.fn.CommGetAsyncError(c.handle, &code)); err != nil {
		return err
	}
	return c.lib.check("a collective", code)
}

// Abort ends the communicator and its collectives, also those that wait for another rank, from any goroutine. Later collectives are
// errors. Abort does not wait for NCCL, which waits until the graphs that have captured collectives have been destroyed.
func (c *Comm) Abort() {
	if c.ended.Swap(true) {
		return
	}
	go func() {
		c.asking.Lock()
		defer c.asking.Unlock()
		c.lib.fn.CommAbort(c.handle) // an error changes nothing: the communicator is not used again
	}()
}

// Close ends the communicator when its collectives have completed. After Abort it does nothing.
func (c *Comm) Close() error {
	if c.ended.Swap(true) {
		return nil
	}
	return c.lib.check("ncclCommDestroy", c.lib.fn.CommDestroy(c.handle))
}
