package tape

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// guarded is an op whose panics become errors. A machine runs its ops in a goroutine that it starts
// itself, where a caller cannot catch them.
type guarded struct{ gorgonia.Op }

// guardedCUDA is a guarded op for a device. Gorgonia recognises ops that run there by CUDADo alone, so
// an op for the host must not have it.
type guardedCUDA struct{ guarded }

var (
	_ gorgonia.UsePreallocDoer = guarded{}
	_ gorgonia.UnsafeDoer      = guarded{}
	_ gorgonia.CUDADoer        = guardedCUDA{}
)

func guard(op gorgonia.Op) gorgonia.Op {
	if _, ok := op.(gorgonia.CUDADoer); ok {
		return guardedCUDA{guarded{op}}
	}
	return guarded{op}
}

func (o guarded) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(&err, o.Op)
	return o.Op.Do(in...)
}

// UsePreallocDo calls Do for an op without this method, as a machine does.
func (o guarded) UsePreallocDo(prealloc gorgonia.Value, in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(&err, o.Op)
	if op, ok := o.Op.(gorgonia.UsePreallocDoer); ok {
		return op.UsePreallocDo(prealloc, in...)
	}
	return o.Op.Do(in...)
}

// UnsafeDo calls Do for an op without this method, as a machine does.
func (o guarded) UnsafeDo(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(&err, o.Op)
	if op, ok := o.Op.(gorgonia.UnsafeDoer); ok {
		return op.UnsafeDo(in...)
	}
	return o.Op.Do(in...)
}

func (o guardedCUDA) CUDADo(extern gorgonia.External, dev gorgonia.Device, prealloc gorgonia.Value, in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(&err, o.Op)
	return o.Op.(gorgonia.CUDADoer).CUDADo(extern, dev, prealloc, in...)
}

// recovered, when deferred, turns a panic of what into an error.
func recovered(err *error, what any) {
	switch p := recover().(type) {
	case nil:
	case error:
		*err = fmt.Errorf("tape: %v panicked: %w", what, p)
	default:
		*err = fmt.Errorf("tape: %v panicked: %v", what, p)
	}
}
