package kernels

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/hostmem"
	"github.com/stheno-ml/stheno/internal/hostproduct"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// Float is the constraint of most Go bodies.
type Float interface{ float32 | float64 }

// Element is the constraint of elements in memory.
type Element interface {
	Float | uint8 | uint16 | int32 | int64 | int | uint32
}

// Call is a launch on the host, as a Go body sees it.
type Call struct {
	*Launch
	plan    *Plan
	inputs  [][]byte
	outputs [][]byte // by part
	scratch []byte
	blas    BLAS
	took    func(argument int, element any) // is called with the elements that Slice returns, for Check
}

// BLAS has the functions of gonum.org/v1/gonum/blas that Go bodies call. Its matrices are row-major.
type BLAS interface {
	Sdot(n int, x []float32, incX int, y []float32, incY int) float32
	Ddot(n int, x []float64, incX int, y []float64, incY int) float64
	Dsdot(n int, x []float32, incX int, y []float32, incY int) float64
	Saxpy(n int, alpha float32, x []float32, incX int, y []float32, incY int)
	Daxpy(n int, alpha float64, x []float64, incX int, y []float64, incY int)
	Dgemv(tA blas.Transpose, m, n int, alpha float64, a []float64, lda int, x []float64, incX int, beta float64, y []float64, incY int)
	Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int)
	Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int)
}

// Multiplier is a [BLAS] that has products of its own for some matrices. In them NaN and
// Inf are numbers as others: 0 x Inf is NaN. An element's bits depend on the processor,
// the sizes, the transposes, and its row and column of the operands alone: not on where
// matrices lie or how many cores there are.
type Multiplier interface {
	BLAS
	// Multiply32 and Multiply64 write C, or return false and leave it to the BLAS.
	Multiply32(Matrices[float32]) bool
	Multiply64(Matrices[float64]) bool
}

// Matrices are the operands of C = op(A) op(B), row-major, the rows of A and B LDA and LDB
// elements apart, those of C without a gap. op(A) is M x K and op(B) is K x N, as
// a product of gemm has them; K > 0.
type Matrices[T Float] struct {
	TransA, TransB bool
	M, N, K        int64
	A, B, C        []T
	LDA, LDB       int64
}

// Multiply writes C, with the bits of gonum's BLAS, or returns false where it is not faster.
func (x Matrices[T]) Multiply() bool {
	return !x.TransB && hostproduct.Multiply(x.TransA, x.M, x.N, x.K, x.A, x.LDA, x.B, x.LDB, x.C)
}

// hostBLAS is gonum's with faster products of the same bits. It embeds an interface, as programs that use package reflect link all methods of gonum's implementation
// once more for each type that embeds it.
type hostBLAS struct{ BLAS }

// Multiply32 implements [Multiplier].
func (hostBLAS) Multiply32(x Matrices[float32]) bool { return x.Multiply() }

// Multiply64 implements [Multiplier].
func (hostBLAS) Multiply64(x Matrices[float64]) bool { return x.Multiply() }

// Host runs plans on the host. The zero value multiplies by gonum's own BLAS.
type Host struct{ BLAS BLAS }

// WithOutput returns the call with other memory for the only output.
func (c Call) WithOutput(memory []byte) Call {
	c.outputs = [][]byte{memory}
	return c
}

// BLAS returns the BLAS that the launch multiplies by.
func (c Call) BLAS() BLAS { return c.blas }

// Slice returns the elements from where an argument of [Args] points to the end of its operand.
func Slice[T Element](c Call, r Ref) []T {
	if c.took != nil && r.argument > 0 {
		c.took(int(r.argument)-1, T(0))
	}
	var mem []byte
	switch r.Operand {
	case Out:
		var part int
		part, r.Offset = c.plan.Part(r.Offset)
		mem = c.outputs[part]
	case Scratch:
		mem = c.scratch
	default:
		mem = c.inputs[r.Operand]
	}
	return Elements[T](mem[r.Offset:])
}

// Elements views bytes as elements; b must be aligned for T.
func Elements[T Element](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// Bytes views elements as bytes.
func Bytes[T Element](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}

var errNoPlan = errors.New("kernels: got a nil plan")

// Run runs the plan on the host with the Go bodies. The buffers' sizes must be
// the plan's; scratch may be nil, then Run allocates it.
func (p *Plan) Run(inputs [][]byte, out, scratch []byte) error {
	if p == nil {
		return errNoPlan
	}
	if int64(len(out)) != p.Out {
		return fmt.Errorf("kernels: %s: output has %d bytes, want %d", p.Op, len(out), p.Out)
	}
	if err := p.checkSizes(); err != nil {
		return fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	return Host{}.Run(p, inputs, p.outputs(out), scratch)
}

// outputs returns the parts of an output of several.
func (p *Plan) outputs(out []byte) [][]byte {
	parts := make([][]byte, max(len(p.Parts), 1))
	parts[0] = out
	for k, at := range p.Parts {
		parts[k] = out[at : at+p.OutputBytes(k)]
	}
	return parts
}

// Run runs a plan with the Go bodies. Its outputs may lie anywhere, each at the beginning of a
// slice.
func (h Host) Run(p *Plan, inputs, outputs [][]byte, scratch []byte) error {
	if p == nil {
		return errNoPlan
	}
	if len(inputs) != len(p.Inputs) {
		return fmt.Errorf("kernels: %s: got %d inputs, want %d", p.Op, len(inputs), len(p.Inputs))
	}
	for i, b := range inputs {
		if int64(len(b)) != p.Inputs[i] {
			return fmt.Errorf("kernels: %s: input %d has %d bytes, want %d", p.Op, i, len(b), p.Inputs[i])
		}
	}
	if want := max(len(p.Parts), 1); len(outputs) != want {
		return fmt.Errorf("kernels: %s: got %d outputs, want %d", p.Op, len(outputs), want)
	}
	if scratch == nil && p.Scratch > 0 {
		if err := hostmem.Check(p.Scratch); err != nil {
			return fmt.Errorf("kernels: %s: scratch memory: %w", p.Op, err)
		}
		scratch = Bytes(make([]float64, CeilDiv(p.Scratch, 8)))
	}
	if int64(len(scratch)) < p.Scratch {
		return fmt.Errorf("kernels: %s: scratch has %d bytes, want %d", p.Op, len(scratch), p.Scratch)
	}
	by := h.BLAS
	if by == nil {
		by = hostBLAS{gonum.Implementation{}}
	}
	for i := range p.Launches {
		if err := (Call{&p.Launches[i], p, inputs, outputs, scratch, by, nil}).run(); err != nil {
			return fmt.Errorf("kernels: %s: %w", p.Op, err)
		}
	}
	return nil
}

// run runs the Go body of the launch, which may belong to another module.
func (c Call) run() (err error) {
	k := c.Kernel
	switch {
	case k == nil:
		return errors.New("got a launch without a kernel")
	case k.Body == nil:
		return fmt.Errorf("kernel %s has no Go body for the host", k.Entry)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the Go body of kernel %s panicked: %v", k.Entry, r)
		}
	}()
	k.Body(c)
	return nil
}

// Parallel calls f on pieces of [0, n) from as many goroutines as there are cores, or once if n is
// at most Grain, so that small work does not wait for goroutines to start. The pieces are disjoint,
// so results do not depend on the number of cores.
func Parallel(n, Grain int64, f func(lo, hi int64)) {
	pieces := CeilDiv(n, max(Grain, 1))
	if pieces > 1 { // GOMAXPROCS waits for a lock
		pieces = min(pieces, int64(runtime.GOMAXPROCS(0)))
	}
	if pieces <= 1 {
		f(0, n)
		return
	}
	var wg sync.WaitGroup
	var panicked atomic.Value // a panic in a goroutine of ours could not be recovered elsewhere
	step := CeilDiv(n, pieces)
	for lo := int64(0); lo < n; lo += step {
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					panicked.CompareAndSwap(nil, caught{r})
				}
			}()
			f(lo, min(lo+step, n))
		})
	}
	wg.Wait()
	if p, ok := panicked.Load().(caught); ok {
		panic(p.value)
	}
}

// caught is a panic of a goroutine.
type caught struct{ value any }

// Grain is the number of elements below which one goroutine is faster than
// two: about 10 us of work, measured against 1-2 us to start a goroutine.
const Grain = 1 << 14
