package codegen

import (
	"fmt"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// codeWriter writes the common parts of generated kernels: parameters, indices, addresses, loads
// and stores.
type codeWriter struct {
	*expr.Assembler
	index  string    // the type of indices
	kind   expr.Kind // of the registers for indices
	target string    // the oldest that the code is for
	waited bool      // the code has the instruction of follow
	params []string
}

// newCodeWriter returns a writer of a kernel for devices of a major compute capability, whose indices take
// 64 bits or 32.
func newCodeWriter(major int, wide bool) (codeWriter, error) {
	fs, err := MathFunctions()
	if err != nil {
		return codeWriter{}, err
	}
	w := codeWriter{Assembler: expr.NewAssembler(fs), index: "u32", kind: expr.B32, target: "sm_70"}
	if major >= 9 {
		w.target = "sm_90"
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

// follow has all threads wait for the kernels that this one follows, where a device may start it before they are
// done: see follow.cuh. It comes before the first use of the device's memory, and behind all that can be computed before.
func (w *codeWriter) follow() {
	if w.target == "sm_90" && !w.waited {
		w.Line("griddepcontrol.wait")
		w.waited = true
	}
}

// admit lets kernels that follow this one come to the device.
func (w *codeWriter) admit() {
	if w.waited {
		w.Line("griddepcontrol.launch_dependents")
	}
}

// parameter adds a parameter, in the order of the launch's arguments, and returns a
// register with its value.
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
		registers = append(registers, w.parameter(d.String(), d.Kind()))
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
		q, t, at := w.Register(w.kind), w.Register(w.kind), w.Register(w.kind)
		w.Line("mul.hi.%s %s, %s, %s", w.index, q, rest, by[a].magic)
		w.Line("shr.%s %s, %s, %s", w.index, q, q, by[a].shift)
		w.Line("mul.lo.%s %s, %s, %s", w.index, t, q, by[a].extent)
		w.Line("sub.%s %s, %s, %s", w.index, at, rest, t)
		list[a], rest = at, q
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

// location is an address in global memory.
type location struct {
	register string
	bytes    int64 // beyond it
}

// String returns the address as PTX has it.
func (l location) String() string { return fmt.Sprintf("[%s+%d]", l.register, l.bytes) }

// elementAt returns where element k of a vector is, given the address of the first or
// those of all.
func elementAt(addresses []string, k int, size int64) location {
	if len(addresses) > 1 {
		return location{addresses[k], 0}
	}
	return location{addresses[0], int64(k) * size}
}

// whole loads or stores the elements of a vector, 16 bytes at a time. op is an instruction such as
// ld.global, perhaps with a predicate before it.
func (w *codeWriter) whole(op string, d expr.Dtype, at location, regs []string) {
	if len(regs) == 1 {
		to, from := regs[0], at.String()
		if strings.Contains(op, "st.") {
			to, from = from, to
		}
		w.Line("%s.%s %s, %s", op, memoryType(d), to, from)
		return
	}
	each := min(len(regs), int(16/d.Size()))
	for k := 0; k < len(regs); k += each {
		to, list := location{at.register, at.bytes + int64(k)*d.Size()}.String(), "{"+strings.Join(regs[k:k+each], ", ")+"}"
		if strings.Contains(op, "st.") {
			to, list = list, to
		}
		w.Line("%s.v%d.%s %s, %s", op, each, memoryType(d), list, to)
	}
}
