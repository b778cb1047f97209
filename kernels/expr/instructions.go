package expr

import (
	"fmt"
	"math"
)

// convert adds a conversion. Integers are rounded to floating-point numbers.
func (a *Assembler) convert(r string, in instruction) {
	switch {
	case in.to == F16:
		a.half("cvt.rn.f16.f32 h, %s; cvt.u32.u16 %s, h", in.x, r)
		return
	case in.from == F16:
		a.half("cvt.u16.u32 h, %s; cvt.f32.f16 %s, h", in.x, r)
		return
	case in.from == BF16:
		t := a.Register(B32)
		a.Line("shl.b32 %s, %s, 16", t, in.x)
		a.Line("mov.b32 %s, %s", r, t)
		return
	case in.to == BF16 && a.RoundsBF16:
		a.half("cvt.rn.bf16.f32 h, %s; cvt.u32.u16 %s, h", in.x, r)
		return
	case in.to == BF16:
		p, odd := a.Register(Pred), a.Register(B32)
		a.Line("setp.nan.f32 %s, %s, %s", p, in.x, in.x)
		a.Line("mov.b32 %s, %s", r, in.x)
		a.Line("bfe.u32 %s, %s, 16, 1", odd, r)
		a.Line("add.u32 %s, %s, %s", r, r, odd)
		a.Line("add.u32 %s, %s, 0x7fff", r, r)
		a.Line("shr.u32 %s, %s, 16", r, r)
		a.Line("selp.b32 %s, %#x, %s, %s", r, nan16, r, p)
		return
	}
	if !in.to.IsFloat() {
		a.toInteger(r, in)
		return
	}
	switch in.from {
	case Bool:
		a.Line("selp.%v %s, %s, %s, %s", in.to, r, Literal(in.to, 1), Literal(in.to, 0), in.x)
	case Float32:
		a.Line("cvt.f64.f32 %s, %s", r, in.x)
	case Float64:
		a.Line("cvt.rn.f32.f64 %s, %s", r, in.x)
	default:
		a.Line("cvt.rn.%v.s%s %s, %s", in.to, kinds[in.from.Kind()].dtype[1:], r, in.x)
	}
}

// toInteger adds a conversion to an integer type. Those of numbers out of its range give the nearest one; those of NaN give
// 0 or the least, depending on the types.
func (a *Assembler) toInteger(r string, in instruction) {
	to, bits := in.to.PTX(), kinds[in.to.Kind()].dtype
	switch {
	case in.from == Bool:
		a.Line("selp.%s %s, 1, 0, %s", bits, r, in.x)
	case in.from.IsFloat():
		a.Line("cvt.rzi.%s.%v %s, %s", to, in.from, r, in.x)
		p := a.Register(Pred)
		a.Line("setp.eq.%v %s, %s, %s", in.from, p, in.x, in.x)
		a.Line("selp.%s %s, %s, 0, %s", bits, r, r, p)
		if in.to == Uint8 {
			a.Line("max.s32 %s, %s, 0", r, r)
			a.Line("min.s32 %s, %s, 255", r, r)
		}
	case in.from.PTX() != to:
		a.Line("cvt.%s.%s %s, %s", to, in.from.PTX(), r, in.x)
		a.narrow(r, in.to)
	default:
		a.Line("mov.%s %s, %s", bits, r, in.x)
		a.narrow(r, in.to)
	}
}

// narrow wraps a register of 32 bits to Uint8, if d is that.
func (a *Assembler) narrow(r string, d Dtype) {
	if d == Uint8 {
		a.Line("and.b32 %s, %s, 255", r, r)
	}
}

// half adds instructions with a register h of 16 bits.
func (a *Assembler) half(format string, args ...any) {
	fmt.Fprintf(&a.text, "\t{ .reg .b16 h; "+format+"; }\n", args...)
}

// plain are the operations of one instruction. Sums and products are marked as rounded, so that the assembler does not make one of both.
var plain = map[Op]string{Neg: "neg.%v", Abs: "abs.%v", Ceil: "cvt.rpi.%[1]v.%[1]v", Floor: "cvt.rmi.%[1]v.%[1]v", Sqrt: "sqrt.rn.%v",
	Add: "add.rn.%v", Sub: "sub.rn.%v", Mul: "mul.rn.%v", Div: "div.rn.%v"}

// comparison are the conditions of setp. Those but neu are false for a NaN.
var comparison = map[Op]string{Eq: "eq", Ne: "neu", Lt: "lt", Le: "le"}

// integral are the operations of one instruction on two integers, logical those on two of Bool.
var (
	integral = map[Op]string{Add: "add", Sub: "sub", Mul: "mul.lo", Min: "min", Max: "max"}
	logical  = map[Op]string{And: "and.pred", Or: "or.pred", Ne: "xor.pred"}
)

// instructIntegers adds an operation on integers or Bool.
func (a *Assembler) instructIntegers(r string, in instruction) {
	d := in.to
	switch {
	case in.op == Not:
		a.Line("not.pred %s, %s", r, in.x)
	case in.from == Bool:
		a.Line("%s %s, %s, %s", logical[in.op], r, in.x, in.y)
	case in.op == Ne:
		a.Line("setp.ne.%s %s, %s, %s", in.from.PTX(), r, in.x, in.y)
	case in.op.compares():
		a.Line("setp.%s.%s %s, %s, %s", comparison[in.op], in.from.PTX(), r, in.x, in.y)
	case in.op == Select:
		a.Line("selp.%s %s, %s, %s, %s", kinds[d.Kind()].dtype, r, in.y, in.z, in.x)
	case in.op == Neg:
		a.Line("neg.%s %s, %s", d.PTX(), r, in.x)
		a.narrow(r, d)
	case in.op == Abs && d == Uint8:
		a.Line("mov.b32 %s, %s", r, in.x)
	case in.op == Abs && d == Int32:
		a.Line("abs.s32 %s, %s", r, in.x)
	case (in.op == Max || in.op == Min) && d == Int32:
		a.Extreme("", in.op, r, in.x, in.y)
	case in.op == Abs:
		a.Line("neg.%s %s, %s", d.PTX(), r, in.x)
		a.Line("max.%s %s, %s, %s", d.PTX(), r, r, in.x)
	default:
		a.Line("%s.%s %s, %s, %s", integral[in.op], d.PTX(), r, in.x, in.y)
		a.narrow(r, d)
	}
}

// Extreme sets r, of Int32, to the Max or Min of x and y, if `predicate`, the text before an instruction, holds, else to x. It compares unsigned numbers: of max(max(y, -x), z), ptxas 12.9
// and driver 580 lose the sign of x, on 9.0 and 10.0, where they make one instruction of both maxima.
func (a *Assembler) Extreme(predicate string, op Op, r, x, y string) {
	const flip = "xor.b32 %s, %s, 0x80000000"
	other := a.Register(B32)
	a.Line(flip, r, x)
	a.Line(flip, other, y)
	a.Line("%s%s.u32 %s, %s, %s", predicate, integral[op], r, r, other)
	a.Line(flip, r, r)
}

// instruct adds an operation of one or a few instructions.
func (a *Assembler) instruct(r string, in instruction) {
	d := in.to
	switch {
	case !in.from.IsFloat():
		a.instructIntegers(r, in)
	case plain[in.op] != "" && in.y == "":
		a.Line(fmt.Sprintf(plain[in.op], d)+" %s, %s", r, in.x)
	case plain[in.op] != "":
		a.Line(fmt.Sprintf(plain[in.op], d)+" %s, %s, %s", r, in.x, in.y)
	case in.op == Inverse: // 0 <= 1 / x, without the division: x is +0, a positive number or -Inf
		size, positive, minus := 8*in.from.Size(), a.Register(Pred), Literal(in.from, math.Inf(-1))
		bits := a.Register(map[int64]Kind{32: B32, 64: B64}[size])
		a.Line("mov.b%d %s, %s", size, bits, in.x)
		a.Line("setp.le.u%d %s, %s, 0x%s", size, positive, bits, Literal(in.from, math.Inf(1))[2:])
		a.Line("setp.eq.or.%v %s, %s, %s, %s", in.from, r, in.x, minus, positive)
	case comparison[in.op] != "":
		a.Line("setp.%s.%v %s, %s, %s", comparison[in.op], in.from, r, in.x, in.y)
	case in.op == Select:
		kind := d.String()
		if minus0 := Literal(d, math.Copysign(0, -1)); in.y == minus0 || in.z == minus0 {
			// NVIDIA's assembler takes a choice between -0 and a positive constant for a
			// number without a sign, and drops abs of it. Of bits it assumes nothing.
			kind = "b" + kind[1:]
		}
		a.Line("selp.%s %s, %s, %s, %s", kind, r, in.y, in.z, in.x)
	case in.op == Sign:
		p, q, t := a.Register(Pred), a.Register(Pred), a.Register(d.Kind())
		a.Line("setp.lt.%v %s, %s, %s", d, p, in.x, Literal(d, 0))
		a.Line("setp.gt.%v %s, %s, %s", d, q, in.x, Literal(d, 0))
		a.Line("selp.%v %s, %s, %s, %s", d, t, Literal(d, -1), in.x, p)
		a.Line("selp.%v %s, %s, %s, %s", d, r, Literal(d, 1), t, q)
	default: // Min and Max, which lose a NaN in PTX
		p, nan, t := a.Register(Pred), a.Register(d.Kind()), a.Register(d.Kind())
		a.Line("setp.nan.%v %s, %s, %s", d, p, in.x, in.y)
		a.Line("add.rn.%v %s, %s, %s", d, nan, in.x, in.y)
		a.Line("%v.%v %s, %s, %s", in.op, d, t, in.x, in.y)
		a.Line("selp.%v %s, %s, %s, %s", d, r, nan, t, p)
	}
}

// literal returns a constant.
func (n *node) literal() string {
	switch {
	case n.dtype.IsFloat():
		return Literal(n.dtype, n.value())
	case n.dtype.Size() == 8:
		return fmt.Sprintf("0x%X", uint64(n.integer()))
	}
	return fmt.Sprintf("0x%X", uint32(n.integer()))
}

// Literal returns a number of a floating-point type as PTX has it, with all its bits.
func Literal(d Dtype, v float64) string {
	if d == Float32 {
		return fmt.Sprintf("0f%08X", math.Float32bits(float32(v)))
	}
	return fmt.Sprintf("0d%016X", math.Float64bits(v))
}
