package codegen

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// codeWriter writes the common parts of generated kernels: parameters, indices, addresses, loads and stores.
type codeWriter struct {
	*expr.Assembler
	index  string    // the type of indices
	kind   expr.Kind // of the registers for indices
	target string    // the oldest that the code is for
	waits  bool      // the code has the instruction of follow
	params []string
}

// newCodeWriter returns a writer of a kernel for devices of a major compute capability, whose indices take 64 bits or 32.
func newCodeWriter(major int, wide bool) (codeWriter, error) {
	fs, err := MathFunctions()
	if err != nil {
		return codeWriter{}, err
	}
	w := codeWriter{Assembler: expr.NewAssembler(fs), index: "u32", kind: expr.B32, target: "sm_70"}
	if major >= 9 {
		w.target, w.RoundsBF16 = "sm_90", true
	}
	if wide {
		w.index, w.kind = "u64", expr.B64
	}
	return w, nil
}

// MathFunctions reads the PTX of math.cu.
var MathFunctions = sync.OnceValues(func() (*expr.Functions, error) {
	text, err := own.PTX("math")
	if err != nil {
		return nil, err
	}
	return expr.ReadFunctions(string(text))
})

// gridDependencyWait has all threads wait until the kernels that this one depends on have completed (griddepcontrol.wait), on devices
// that may launch it before that: see follow.cuh. It precedes the first access to global memory and follows what can be computed before.
func (w *codeWriter) gridDependencyWait() {
	if w.target == "sm_90" && !w.waits {
		w.Line("griddepcontrol.wait")
		w.waits = true
	}
}

// launchDependents lets kernels that depend on this one launch.
func (w *codeWriter) launchDependents() {
	if w.waits {
		w.Line("griddepcontrol.launch_dependents")
	}
}

// parameter adds a parameter, in the order of the launch's arguments, and returns a register with its value.
func (w *codeWriter) parameter(dtype string, k expr.Kind) string {
	name := fmt.Sprintf("p%d", len(w.params))
	w.params = append(w.params, "."+dtype+" "+name)
	r := w.Register(k)
	w.Line("ld.param.%s %s, [%s]", dtype, r, name)
	return r
}

// numberParameters adds the parameters for the constants that were taken out of a function.
func (w *codeWriter) numberParameters(f expr.Func) {
	var registers []string
	for _, d := range f.NumberTypes() {
		registers = append(registers, w.parameter(d.PTX(), d.Kind()))
	}
	w.Numbers(registers)
}

func (w *codeWriter) pointer() string {
	r := w.parameter("u64", expr.B64)
	w.Line("cvta.to.global.u64 %s, %s", r, r)
	return r
}

// divide holds the parameters of a division by an extent: see [divisor].
type divide struct{ extent, magic, shift string }

// divides adds the parameters of the divisions by all extents but the first.
func (w *codeWriter) divides(axes int) []divide {
	list := make([]divide, max(axes, 1))
	for a := 1; a < axes; a++ {
		list[a] = divide{w.parameter(w.index, w.kind), w.parameter(w.index, w.kind), w.parameter("u32", expr.B32)}
	}
	return list
}

// divisions returns the arguments of [codeWriter.divides] for a shape.
func divisions(shape []int64, wide bool) (args []any) {
	for _, extent := range shape[min(1, len(shape)):] {
		magic, shift := arith.Divisor(extent, wide)
		args = append(args, indexArgument(extent, wide), indexArgument(int64(magic), wide), int32(shift))
	}
	return args
}

// indexArgument returns an argument of the type of indices.
func indexArgument(v int64, wide bool) any {
	if wide {
		return v
	}
	return int32(v)
}

// indicesOf returns the index along each axis of an index in row-major order.
func (w *codeWriter) indicesOf(rest string, by []divide) []string {
	list := make([]string, len(by))
	for a := len(by) - 1; a > 0; a-- {
		q := w.calculate("mul.hi", rest, by[a].magic)
		w.Line("shr.%s %s, %s, %s", w.index, q, q, by[a].shift)
		list[a], rest = w.calculate("sub", rest, w.calculate("mul.lo", q, by[a].extent)), q
	}
	list[0] = rest
	return list
}

// address sets to = base + index * size.
func (w *codeWriter) address(to, base, index string, size int64) {
	if w.kind == expr.B64 {
		w.Line("mad.lo.u64 %s, %s, %d, %s", to, index, size, base)
	} else {
		w.Line("mad.wide.u32 %s, %s, %d, %s", to, index, size, base)
	}
}

// memoryType returns the type of loads and stores of elements.
func memoryType(d expr.Dtype) string {
	switch {
	case d.IsFloat():
		return d.String()
	case d.Size() == 1:
		return "u8"
	}
	return fmt.Sprintf("u%d", 8*d.Size())
}

// location is an address in memory.
type location struct {
	register string
	bytes    int64 // beyond it
}

// String returns the address as PTX has it.
func (l location) String() string { return fmt.Sprintf("[%s+%d]", l.register, l.bytes) }

// elementAt returns where element k of a vector is, given the address of the first or those of all.
func elementAt(addresses []string, k int, size int64) location {
	if len(addresses) > 1 {
		return location{addresses[k], 0}
	}
	return location{addresses[0], int64(k) * size}
}

// vectorAccess loads or stores the elements of a vector, 16 bytes at a time. op is an instruction such as ld.global, perhaps after a predicate.
func (w *codeWriter) vectorAccess(op string, d expr.Dtype, at location, regs []string) {
	each := min(len(regs), int(16/d.Size()))
	for k := 0; k < len(regs); k += each {
		op, to, from := op, regs[k], location{at.register, at.bytes + int64(k)*d.Size()}.String()
		if len(regs) > 1 {
			op, to = fmt.Sprintf("%s.v%d", op, each), "{"+strings.Join(regs[k:k+each], ", ")+"}"
		}
		if strings.Contains(op, "st.") {
			to, from = from, to
		}
		w.Line("%s.%s %s, %s", op, memoryType(d), to, from)
	}
}

// address is where an operand or output is stored, in registers.
type address struct {
	place
	dtype           expr.Dtype
	base            string
	ofRow, ofColumn []string  // strides
	first           []string  // address of the row; of each row, for vectors of scattered rows
	step            string    // bytes from a lane of a spaced vector to the next
	bounds          [2]string // first index with elements, and their number, along the axis of the bounds
	source          *source   // of a random operand, whose base and addresses are numbers of elements, as those of an iota are
	split           *splitOutput
}

// size returns the bytes from one element to the next in memory, 1 for numbers.
func (p *address) size() int64 {
	if p.mark.computed() {
		return 1
	}
	return p.dtype.Size()
}

// iota returns n elements of an iota from a number on, or the numbers that are given.
func (w *codeWriter) iota(at []string, n int) (list []string) {
	for k := range n {
		l := elementAt(at, k, 1)
		list = append(list, w.result(expr.B64, "add.u64 %s, %s, %d", l.register, l.bytes))
	}
	return list
}

// result writes an instruction whose first operand is a new register, and returns that.
func (w *codeWriter) result(k expr.Kind, format string, args ...any) string {
	r := w.Register(k)
	w.Line(format, append([]any{r}, args...)...)
	return r
}

// strides adds the parameters of strides along rows or columns.
func (w *codeWriter) strides(r addressing, axes int) (list []string) {
	if r == linear {
		axes = 1
	} else if r != indexed {
		axes = 0
	}
	for range axes {
		list = append(list, w.parameter(w.index, w.kind))
	}
	return list
}

// emit adds an instruction on registers or numbers, and returns its result.
func (w *codeWriter) emit(k expr.Kind, instruction string, args ...any) string {
	return w.result(k, instruction+" %s"+strings.Repeat(", %v", len(args)), args...)
}

// calculate adds an instruction on indices, and returns its result.
func (w *codeWriter) calculate(op string, args ...any) string {
	dtype := w.index
	if op == "and" {
		dtype = "b" + dtype[1:]
	}
	return w.emit(w.kind, op+"."+dtype, args...)
}

// indexOf returns a 32-bit number as an index.
func (w *codeWriter) indexOf(r string) string {
	if w.kind == expr.B32 {
		return r
	}
	return w.result(expr.B64, "cvt.u64.u32 %s, %s", r)
}

// special returns a special register, such as tid.x, as an index.
func (w *codeWriter) special(name string) string {
	return w.indexOf(w.result(expr.B32, "mov.u32 %s, %%"+name))
}

// predicate adds a comparison of indices.
func (w *codeWriter) predicate(comparison, x, y string) string {
	return w.emit(expr.Pred, "setp."+comparison+"."+w.index, x, y)
}

// shift returns the logarithm of a power of two.
func shift(n int) string { return fmt.Sprint(bits.TrailingZeros(uint(n))) }

// predicated returns the prefix that makes an instruction depend on a predicate, "" for none.
func predicated(predicate string) string {
	if predicate == "" {
		return ""
	}
	return "@" + predicate + " "
}

// registers returns n registers for elements.
func (w *codeWriter) registers(d expr.Dtype, n int) (list []string) {
	for range n {
		list = append(list, w.Register(d.Kind()))
	}
	return list
}

// lanes returns registers for the elements of a vector of n.
func (w *codeWriter) lanes(p *address, n int) []string {
	if p.lanes == single {
		return slices.Repeat(w.registers(p.dtype, 1), n)
	}
	return w.registers(p.dtype, n)
}

// clear sets the register of an element to 0.
func (w *codeWriter) clear(d expr.Dtype, r string) { w.Line("mov.b%d %s, 0", 8*max(d.Size(), 4), r) }

// loadElement loads an element if it exists, else 0.
func (w *codeWriter) loadElement(d expr.Dtype, r, at, exists string) {
	if exists != "" {
		w.clear(d, r)
	}
	w.Line("%sld.global.%s %s, %s", predicated(exists), memoryType(d), r, at)
}
