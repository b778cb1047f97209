package expr

import "math"

// Op is an operation on elements.
type Op uint8

// The operations. x, y and z are the arguments in order.
const (
	operand  Op = iota // made by Builder.Operand
	constant           // made by Builder.Constant
	number             // a constant that Func.Numbers took out
	convert            // made by Builder.Convert

	Neg      // -x
	Abs      // |x|
	Sign     // -1 for x < 0, 1 for x > 0, else x
	Ceil     // the least integer >= x
	Floor    // the greatest integer <= x
	Sqrt     // √x
	Exp      // eˣ
	Expm1    // eˣ - 1
	Log      // ln x
	Log2     // log₂ x
	Log1p    // ln(1 + x)
	Sin      // sin x
	Cos      // cos x
	Tanh     // tanh x
	Erf      // the error function
	Sigmoid  // 1 / (1 + e⁻ˣ)
	Softplus // ln(1 + eˣ)

	Add // x + y
	Sub // x - y
	Mul // x * y
	Div // x / y
	Pow // xʸ
	Min // the lesser of x and y
	Max // the greater of x and y

	Eq // x == y, a Bool, as are the next five
	Ne // x != y
	Lt // x < y
	Le // x <= y
	Gt // x > y
	Ge // x >= y

	Select // y if x, a Bool, is true, else z

	RowSum // the sum of x over a row, rounded once; an Int64 of integers and of Bool
	RowMax // the greatest x of a row
	RowMin // the least x of a row

	Square      // x * x
	Cube        // x * x * x
	Inverse     // 1 / x
	InverseSqrt // 1 / √x

	And // x and y, of Bool, as are the next two
	Or  // x or y
	Not // not x

	opCount
)

// ops describes the operations. The gradient of z = op(x, y) w.r.t. each argument is an expression of x, y, z and dz, the gradient
// w.r.t. z; "0" is none.
var ops = [opCount]struct {
	name      string // in text
	arity     int
	gradients []string                   // w.r.t. x and y; nil for an operation that is not of numbers, or that others make up
	body      func(x float64) float64    // Go body of a function with a body in kernels/codegen/math.cu
	single    func(out, x []float32)     // a faster one for float32
	binary    func(x, y float64) float64 // Go body of such a function of two arguments
}{
	operand: {name: "operand"}, constant: {name: "constant"}, number: {name: "number"}, convert: {name: "convert", arity: 1},

	Neg:   {name: "neg", arity: 1, gradients: []string{"-dz"}},
	Abs:   {name: "abs", arity: 1, gradients: []string{"dz * sign(x)"}},
	Sign:  {name: "sign", arity: 1, gradients: []string{"0"}},
	Ceil:  {name: "ceil", arity: 1, gradients: []string{"0"}},
	Floor: {name: "floor", arity: 1, gradients: []string{"0"}},
	Sqrt:  {name: "sqrt", arity: 1, gradients: []string{"dz / (2 * z)"}},

	Exp:      {name: "exp", arity: 1, gradients: []string{"dz * z"}, body: exp, single: expBlock},
	Expm1:    {name: "expm1", arity: 1, gradients: []string{"dz * exp(x)"}, body: math.Expm1},
	Log:      {name: "log", arity: 1, gradients: []string{"dz / x"}, body: math.Log},
	Log2:     {name: "log2", arity: 1, gradients: []string{"dz / (x * 0.6931471805599453)"}, body: log2}, // ln 2
	Log1p:    {name: "log1p", arity: 1, gradients: []string{"dz / (1 + x)"}, body: math.Log1p},
	Sin:      {name: "sin", arity: 1, gradients: []string{"dz * cos(x)"}, body: sin},
	Cos:      {name: "cos", arity: 1, gradients: []string{"-(dz * sin(x))"}, body: cos},
	Tanh:     {name: "tanh", arity: 1, gradients: []string{"dz * (1 - z*z)"}, body: math.Tanh, single: tanhBlock},
	Erf:      {name: "erf", arity: 1, gradients: []string{"dz * (1.1283791670955126 * exp(-(x*x)))"}, body: math.Erf}, // 2/√π
	Sigmoid:  {name: "sigmoid", arity: 1, gradients: []string{"dz * (z * (1 - z))"}, body: sigmoid, single: sigmoidBlock},
	Softplus: {name: "softplus", arity: 1, gradients: []string{"dz * sigmoid(x)"}, body: softplus},

	Add: {name: "+", arity: 2, gradients: []string{"dz", "dz"}},
	Sub: {name: "-", arity: 2, gradients: []string{"dz", "-dz"}},
	Mul: {name: "*", arity: 2, gradients: []string{"dz * y", "dz * x"}},
	Div: {name: "/", arity: 2, gradients: []string{"dz / y", "-(dz / y * z)"}},
	// z ln x goes to 0 with z; the product of its factors would be NaN. By x, pow(x, 0) is constant, also where pow(x, -1) is infinite or NaN; by y, that of 0 is 0 at y = 0, as PyTorch's.
	Pow: {name: "pow", arity: 2, gradients: []string{"dz * select(y == 0, 0, y * pow(x, y - 1))", "dz * select(z == 0 || x == 0 && y == 0, 0, z * log(x))"}, binary: pow},
	Min: {name: "min", arity: 2, gradients: []string{"select(x <= y, dz, 0)", "select(x <= y, 0, dz)"}},
	Max: {name: "max", arity: 2, gradients: []string{"select(x >= y, dz, 0)", "select(x >= y, 0, dz)"}},

	Eq: {name: "==", arity: 2}, Ne: {name: "!=", arity: 2}, Lt: {name: "<", arity: 2}, Le: {name: "<=", arity: 2}, Gt: {name: ">", arity: 2}, Ge: {name: ">=", arity: 2},
	Select: {name: "select", arity: 3},
	RowSum: {name: "rowsum", arity: 1}, RowMax: {name: "rowmax", arity: 1}, RowMin: {name: "rowmin", arity: 1},
	Square: {name: "square", arity: 1}, Cube: {name: "cube", arity: 1}, Inverse: {name: "inverse", arity: 1}, InverseSqrt: {name: "inverseSqrt", arity: 1},
	And: {name: "&&", arity: 2}, Or: {name: "||", arity: 2}, Not: {name: "!", arity: 1},
}

// Ops returns the operations that [Builder.Apply] takes of numbers, in order: those with one right result, and those that
// backends may round differently, the functions of kernels/codegen/math.cu.
func Ops() (exact, inexact []Op) {
	for op := Neg; op < Eq; op++ {
		if op.transcendental() {
			inexact = append(inexact, op)
		} else {
			exact = append(exact, op)
		}
	}
	return append(exact, Select), inexact
}

// String returns the operation as it stands in text, such as "+" or "tanh".
func (o Op) String() string { return ops[o].name }

// Arity returns the number of arguments.
func (o Op) Arity() int { return ops[o].arity }

// takes reports whether the operation's arguments, but a Select's condition, may be of a type.
func (o Op) takes(d Dtype) bool {
	switch o {
	case And, Or, Not:
		return d == Bool
	case Eq, Ne, Select, RowSum:
		return !d.isHalf()
	case Neg, Abs, Add, Sub, Mul, Min, Max, Lt, Le, Gt, Ge, RowMax, RowMin, Square, Cube:
		return d.IsFloat() || d.IsInteger()
	}
	return d.IsFloat()
}

// compares reports whether the operation returns a Bool.
func (o Op) compares() bool { return o >= Eq && o <= Ge }

// reduces reports whether the operation takes a whole row.
func (o Op) reduces() bool { return o >= RowSum && o <= RowMin }

// transcendental reports whether the operation is a function with a body of kernels/codegen/math.cu.
func (o Op) transcendental() bool { return ops[o].body != nil || ops[o].binary != nil }
