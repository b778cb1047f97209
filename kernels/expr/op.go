package expr

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

	RowSum // the sum of x over a row, rounded once
	RowMax // the greatest x of a row
	RowMin // the least x of a row

	Square      // x * x
	Cube        // x * x * x
	Inverse     // 1 / x
	InverseSqrt // 1 / √x

	opCount
)

// ops lists the operations' names in text and their numbers of arguments.
var ops = [opCount]struct {
	name  string
	arity int
}{
	operand: {"operand", 0}, constant: {"constant", 0}, number: {"number", 0}, convert: {"convert", 1},
	Neg: {"neg", 1}, Abs: {"abs", 1}, Sign: {"sign", 1}, Ceil: {"ceil", 1}, Floor: {"floor", 1}, Sqrt: {"sqrt", 1},
	Exp: {"exp", 1}, Expm1: {"expm1", 1}, Log: {"log", 1}, Log2: {"log2", 1}, Log1p: {"log1p", 1},
	Sin: {"sin", 1}, Cos: {"cos", 1}, Tanh: {"tanh", 1}, Erf: {"erf", 1}, Sigmoid: {"sigmoid", 1}, Softplus: {"softplus", 1},
	Add: {"+", 2}, Sub: {"-", 2}, Mul: {"*", 2}, Div: {"/", 2}, Pow: {"pow", 2}, Min: {"min", 2}, Max: {"max", 2},
	Eq: {"==", 2}, Ne: {"!=", 2}, Lt: {"<", 2}, Le: {"<=", 2}, Gt: {">", 2}, Ge: {">=", 2},
	Select: {"select", 3},
	RowSum: {"rowsum", 1}, RowMax: {"rowmax", 1}, RowMin: {"rowmin", 1},
	Square: {"square", 1}, Cube: {"cube", 1}, Inverse: {"inverse", 1}, InverseSqrt: {"inverseSqrt", 1},
}

// String returns the operation as it stands in text, such as "+" or "tanh".
func (o Op) String() string { return ops[o].name }

// Arity returns the number of arguments.
func (o Op) Arity() int { return ops[o].arity }

// compares reports whether the operation returns a Bool.
func (o Op) compares() bool { return o >= Eq && o <= Ge }

// reduces reports whether the operation takes a whole row.
func (o Op) reduces() bool { return o >= RowSum && o <= RowMin }

// transcendental reports whether the operation is a function with a body of
// kernels/codegen/math.cu.
func (o Op) transcendental() bool { return o >= Exp && o <= Softplus || o == Pow }
