package kernels

import (
	"fmt"
	"math"
	"strings"
)

// values evaluates t for all elements b into out, which is as long. scratch, up to
// t.operations() times as long, holds right operands: made anew for each piece they
// cost as much time as the arithmetic.
func (t *term) values(b, out, scratch []float64) {
	var right []float64
	if t.x != nil {
		t.x.values(b, out, scratch)
	}
	if t.y != nil {
		right, scratch = scratch[:len(b)], scratch[len(b):]
		t.y.values(b, right, scratch)
	}
	switch t.name {
	case "":
		for i := range out {
			out[i] = t.value
		}
	case "b":
		copy(out, b)
	case "neg":
		for i := range out {
			out[i] = -out[i]
		}
	case "abs":
		for i := range out {
			out[i] = math.Abs(out[i])
		}
	case "sqrt":
		for i := range out {
			out[i] = math.Sqrt(out[i])
		}
	case "+":
		for i, y := range right {
			out[i] += y
		}
	case "-":
		for i, y := range right {
			out[i] -= y
		}
	case "*":
		for i, y := range right {
			out[i] = float64(out[i] * y) // no fused multiply-add
		}
	case "/":
		for i, y := range right {
			out[i] /= y
		}
	case "max":
		for i, y := range right {
			out[i] = max(out[i], y)
		}
	case "min":
		for i, y := range right {
			out[i] = min(out[i], y)
		}
	}
}

// fold joins values, halves first, so that the rounding errors of long sums stay
// as small as those of the kernel's many accumulators.
func (r *Reduction) fold(values []float64) float64 {
	if n := len(values); n > 16 {
		return r.join(r.fold(values[:n/2]), r.fold(values[n/2:]))
	}
	a := values[0]
	for _, b := range values[1:] {
		a = r.join(a, b)
	}
	return a
}

func (r *Reduction) join(a, b float64) float64 {
	switch r.Operator {
	case "+":
		return a + b
	case "*":
		return a * b
	case "max":
		return max(a, b)
	}
	return min(a, b)
}

// ptx writes instructions for t to w and returns the register or literal of its value. n
// counts registers.
func (t *term) ptx(w *strings.Builder, n *int, b string) string {
	switch t.name {
	case "":
		return fmt.Sprintf("0d%016X", math.Float64bits(t.value))
	case "b":
		return b
	}
	x := t.x.ptx(w, n, b)
	y := ""
	if t.y != nil {
		y = t.y.ptx(w, n, b)
	}
	r := fmt.Sprintf("%%value%d", *n)
	*n++
	instruction(w, t.name, r, x, y)
	return r
}

// instruction writes r = x name y. Sums and products are not fused, so that
// they are rounded as in Go. max and min of a NaN are NaN, as in Go, which PTX's
// own are not for double.
func instruction(w *strings.Builder, name, r, x, y string) {
	switch name {
	case "+":
		fmt.Fprintf(w, "\tadd.rn.f64 %s, %s, %s;\n", r, x, y)
	case "-":
		fmt.Fprintf(w, "\tsub.rn.f64 %s, %s, %s;\n", r, x, y)
	case "*":
		fmt.Fprintf(w, "\tmul.rn.f64 %s, %s, %s;\n", r, x, y)
	case "/":
		fmt.Fprintf(w, "\tdiv.rn.f64 %s, %s, %s;\n", r, x, y)
	case "neg":
		fmt.Fprintf(w, "\tneg.f64 %s, %s;\n", r, x)
	case "abs":
		fmt.Fprintf(w, "\tabs.f64 %s, %s;\n", r, x)
	case "sqrt":
		fmt.Fprintf(w, "\tsqrt.rn.f64 %s, %s;\n", r, x)
	case "max", "min":
		fmt.Fprintf(w, "\tsetp.nan.f64 %%unordered, %s, %s;\n\tadd.rn.f64 %%nan, %s, %s;\n\t%s.f64 %%best, %s, %s;\n\tselp.f64 %s, %%nan, %%best, %%unordered;\n",
			x, y, x, y, name, x, y, r)
	}
}

// lines returns the PTX of r = a operator f(b), or for r = a operator b where b is an
// accumulator itself.
func (r *Reduction) lines(to, a, b string, step bool) string {
	var w strings.Builder
	n := 0
	if step {
		b = r.f.ptx(&w, &n, b)
	}
	instruction(&w, r.Operator, to, a, b)
	return fmt.Sprintf("\t{\n\t.reg .pred %%unordered;\n\t.reg .f64 %%nan, %%best, %%value<%d>;\n%s\t}\n", n+1, w.String())
}
