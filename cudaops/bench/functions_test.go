package bench

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
)

// unaryOps are the functions of one argument.
func unaryOps() []expr.Op {
	var list []expr.Op
	for _, op := range append(append(append([]expr.Op(nil), exprtest.Exact...), exprtest.Inexact...), expr.Square, expr.Cube, expr.Inverse, expr.InverseSqrt) {
		if op.Arity() == 1 {
			list = append(list, op)
		}
	}
	return list
}

// Every function of one argument is within its error bound for every float32 (for one in 4099 with -short). The reference is the
// function in double precision, which TestMapFloat64OnGPU compares with arithmetic of more digits. The device computes the
// errors; the host recomputes the rows of the largest errors with its own functions. With STHENO_RECORD=file the test writes
// the table of errors.
func TestFunctionsOnGPU(t *testing.T) {
	dev := device0(t)
	s := testutil.Get[*cudaops.Session](t)(cudaops.Open(0))
	defer s.Close()
	step := uint64(1)
	if testing.Short() {
		step = 4099
	}
	ops := unaryOps()
	worst := functionErrors(t, ops, dev, s, step, 1<<25)
	if file := os.Getenv("STHENO_RECORD"); file != "" && step == 1 {
		name := testutil.Get[[]cudaops.Device](t)(cudaops.Devices())[0].Name
		testutil.Do(t, os.WriteFile(file, []byte(functionsPage(name, ops, worst, drawnErrors(t, dev, drawnArguments))), 0o666))
	}
}

// The Go bodies of a few arguments: of one in 65537 float32.
func TestFunctionsOnHost(t *testing.T) {
	s := cudaops.OpenHost()
	defer s.Close()
	functionErrors(t, unaryOps(), kernels.HostDevice(), s, 65537, 1<<16)
}

// functionErrors finds the largest error of each function over every step-th float32,
// as many at a time as a chunk.
func functionErrors(t *testing.T, ops []expr.Op, dev kernels.Device, s *cudaops.Session, step uint64, chunk int64) []worstError {
	t.Helper()
	const columns = 1024
	in, out := testutil.Get[*cudaops.Buffer](t)(s.Alloc(4*chunk)), testutil.Get[*cudaops.Buffer](t)(s.Alloc(8*chunk/columns))
	x, errors := make([]float32, chunk), make([]float64, chunk/columns)
	worst, plans := make([]worstError, len(ops)), make([]*kernels.Plan, len(ops))
	for i, op := range ops {
		shape := []int{int(chunk / columns), columns}
		plans[i] = testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, errorOf(t, op), shape, []int{1}, []bool{true}, codegen.Dense(shape)))
	}
	for first := uint64(0); first < 1<<32; first += uint64(chunk) * step {
		// The rest of the last chunk is filled with NaN, as the greatest bits are.
		kernels.Parallel(chunk, 1<<16, func(lo, hi int64) {
			for i := lo; i < hi; i++ {
				x[i] = math.Float32frombits(uint32(min(first+uint64(i)*step, 1<<32-1)))
			}
		})
		testutil.Do(t, s.CopyTo(in, kernels.Bytes(x)))
		for i, op := range ops {
			launch(t, s, plans[i], map[kernels.Operand]*cudaops.Buffer{0: in, kernels.Out: out})
			testutil.Do(t, s.CopyFrom(kernels.Bytes(errors), out))
			row := 0
			for r, e := range errors {
				if !(e <= errors[row]) { // NaN too
					row = r
				}
			}
			if !(errors[row] <= worst[i].most) {
				worst[i].check(t, op, dev, x[row*columns:][:columns], errors[row])
			}
		}
	}
	for i, op := range ops {
		t.Log(worst[i].line(op))
		if !(worst[i].most <= mapBound(op)) {
			t.Errorf("%s of %v is off by %g units in the last place, want at most %v", op, worst[i].at, worst[i].most, mapBound(op))
		}
	}
	return worst
}

// 0 <= 1 / x, of which no kernel divides, is what a division gives: of one in 1021 float32 and of the ends of all kinds of them.
func TestInverseIsPositiveOnGPU(t *testing.T) {
	const columns = 1024
	var x []float32
	for _, end := range []uint32{0, 1, 1 << 23, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff} {
		x = append(x, math.Float32frombits(end), math.Float32frombits(end|1<<31))
	}
	for bits := uint64(0); bits < 1<<32 || len(x)%columns > 0; bits += 1021 {
		x = append(x, math.Float32frombits(uint32(bits)))
	}
	b := expr.NewBuilder(expr.Float32)
	number := func(v float64) expr.Value { return b.Constant(expr.Float32, v) }
	inverse := b.Apply(expr.Div, number(1), b.Operand(0))
	differs := b.Apply(expr.Ne, b.Apply(expr.Le, number(0), inverse), b.Apply(expr.Le, number(0), b.Apply(expr.Mul, inverse, number(1))))
	f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.RowMax, b.Apply(expr.Select, differs, number(1), number(0)))))
	shape := []int{len(x) / columns, columns}
	p := testutil.Get[*kernels.Plan](t)(codegen.Rows(device0(t), f, shape, []int{1}, []bool{true}, codegen.Dense(shape)))
	different := make([]float32, shape[0])
	testutil.Do(t, Run(0, p, [][]byte{kernels.Bytes(x)}, kernels.Bytes(different)))
	for row, v := range different {
		if v != 0 {
			t.Errorf("one of %v is not what a division gives", x[row*columns:][:columns])
			break
		}
	}
}

// launch launches a plan whose operands are the whole of those buffers.
func launch(t *testing.T, s *cudaops.Session, p *kernels.Plan, buffers map[kernels.Operand]*cudaops.Buffer) {
	t.Helper()
	for _, l := range p.Launches {
		args := make([]any, len(l.Args))
		for i, a := range l.Args {
			args[i] = a
			if r, ok := a.(kernels.Ref); ok {
				args[i] = buffers[r.Operand]
			}
		}
		testutil.Do(t, s.Launch(l.Kernel, l.Grid, l.Block, l.Shared, args...))
	}
}

// errorOf is the largest error in a row of an operation of float32, in units in the
// last place of its value in double precision. A value that should be NaN, infinite or
// a zero of either sign, and is not, is off by infinity.
func errorOf(t *testing.T, op expr.Op) expr.Func {
	b := expr.NewBuilder(expr.Float32)
	number := func(v float64) expr.Value { return b.Constant(expr.Float64, v) }
	inf, zero := number(math.Inf(1)), number(0)
	truth := b.Apply(op, b.Convert(b.Operand(0), expr.Float64))
	got := b.Convert(b.Apply(op, b.Operand(0)), expr.Float64)
	want := b.Convert(b.Convert(truth, expr.Float32), expr.Float64)

	// An infinity that should be finite is the number after the greatest.
	edge := number(0x1p128)
	finite := b.Apply(expr.Min, b.Apply(expr.Max, got, b.Apply(expr.Neg, edge)), edge)
	exponent := b.Apply(expr.Floor, b.Apply(expr.Log2, b.Apply(expr.Abs, truth)))
	exponent = b.Apply(expr.Min, b.Apply(expr.Max, exponent, number(-126)), number(127))
	unit := b.Apply(expr.Pow, number(2), b.Apply(expr.Sub, number(23), exponent))
	e := b.Apply(expr.Mul, b.Apply(expr.Abs, b.Apply(expr.Sub, finite, truth)), unit)

	// Of the right value, only the rest that rounding leaves counts; infinities leave nothing.
	right := b.Apply(expr.Select, b.Apply(expr.Ge, b.Apply(expr.Abs, truth), edge), zero, e)
	signs := b.Apply(expr.Eq, b.Apply(expr.Inverse, got), b.Apply(expr.Inverse, want))
	right = b.Apply(expr.Select, signs, right, inf)
	e = b.Apply(expr.Select, b.Apply(expr.Eq, got, want), right, e)
	e = b.Apply(expr.Select, b.Apply(expr.Ne, got, got), inf, e)
	noNumber := b.Apply(expr.Select, b.Apply(expr.Ne, got, got), zero, inf)
	e = b.Apply(expr.Select, b.Apply(expr.Ne, truth, truth), noNumber, e)
	return testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.RowMax, e)))
}

// worstError is the largest error of a function so far.
type worstError struct {
	most float64
	at   float32
}

// check takes in a row, whose largest error is claimed to be that, and computes it again.
func (w *worstError) check(t *testing.T, op expr.Op, dev kernels.Device, x []float32, claimed float64) {
	t.Helper()
	b := expr.NewBuilder(expr.Float32)
	single := testutil.Get[expr.Func](t)(b.Func(b.Apply(op, b.Operand(0))))
	double := testutil.Get[expr.Func](t)(b.Func(b.Apply(op, b.Convert(b.Operand(0), expr.Float64))))
	arguments := make([]float64, len(x))
	for i, v := range x {
		arguments[i] = float64(v)
	}
	truth := mapOnHost(t, double, arguments)
	got := mapOnHost(t, single, arguments)
	if dev != kernels.HostDevice() {
		got = testutil.Get[[]float64](t)(mapOnGPU(dev, single, arguments))
	}
	row := worstError{at: x[0]}
	for i := range x {
		if e := ulpsOf(got[i], truth[i]); !(e <= row.most) {
			row = worstError{e, x[i]}
		}
	}
	if !(math.Abs(row.most-claimed) <= 1e-6) && row.most != claimed {
		t.Fatalf("%s of %v and the arguments after it: the largest error is %v units in the last place by the device's functions of float64, %v by the host's", op, x[0], claimed, row.most)
	}
	if !(row.most <= w.most) {
		*w = row
	}
}

func (w *worstError) line(op expr.Op) string {
	return fmt.Sprintf("| `%s` | %.3f | %v |", op, w.most, w.at)
}

// ulpsOf is the error of a float32, given the true value, in units in its last place.
func ulpsOf(got, truth float64) float64 {
	want := float64(float32(truth))
	switch {
	case exprtest.Same(got, want) && (math.IsNaN(got) || math.Abs(truth) >= 0x1p128):
		return 0
	case got == want && !exprtest.Same(got, want), math.IsNaN(got), math.IsNaN(want):
		return math.Inf(1)
	case math.IsInf(got, 0): // the number after the greatest
		got = math.Copysign(0x1p128, got)
	}
	exponent := -126
	if truth != 0 {
		exponent = min(max(math.Ilogb(truth), -126), 127)
	}
	return math.Abs(got-truth) * math.Ldexp(1, 23-exponent)
}

// functionsPage is the table of errors as a page of the docs.
func functionsPage(device string, ops []expr.Op, worst []worstError, drawn []drawnError) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Errors of functions\n\nThe largest error of each function of one argument in float32, over all 2^32 values of the argument, in units in the last place\n"+
		"of the true value, and where it is. Correctly rounded values are off by at most 0.5. Measured on %s, %s, by `TestFunctionsOnGPU`\nin `cudaops/bench`, which writes this page.\n\n"+
		"| Function | Largest error | Of |\n|---|--:|--:|\n", device, time.Now().UTC().Format(time.DateOnly))
	for i, op := range ops {
		fmt.Fprintln(&b, worst[i].line(op))
	}
	fmt.Fprintf(&b, "\nThose in float64, and of `pow`, at %d drawn arguments each, of all magnitudes and where functions change, against arithmetic of 256 bits:\n\n"+
		"| Function | Type | Largest error | Of |\n|---|---|--:|--:|\n", drawnArguments)
	for _, e := range drawn {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}
