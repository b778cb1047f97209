package gorgonia

import (
	"fmt"
	"reflect"
	"sync"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Gorgonia's element-wise ops and products keep their kinds in unexported numbers and pointers.
// These are learnt from Gorgonia itself: one op of each kind is made through its public
// constructor, and the number or pointer in it stands for the kind. So a version with other numbers
// is still read correctly, and one with other fields is not read at all.

// Function is one of Gorgonia's functions that make element-wise ops.
type Function[F any] struct {
	Kind string // of its ops, as Unary or Binary returns it
	Name string // in package gorgonia
	New  F
}

// UnaryFunctions are the functions of one operand. This is the only list of them: the kinds of ops, the prebuilt kernels and the page of
// Gorgonia's ops follow from it, and package lower has the operation of each kind.
var UnaryFunctions = []Function[func(x *gorgonia.Node) (*gorgonia.Node, error)]{
	{"abs", "Abs", gorgonia.Abs}, {"sign", "Sign", gorgonia.Sign}, {"ceil", "Ceil", gorgonia.Ceil}, {"floor", "Floor", gorgonia.Floor},
	{"sin", "Sin", gorgonia.Sin}, {"cos", "Cos", gorgonia.Cos}, {"exp", "Exp", gorgonia.Exp}, {"log", "Log", gorgonia.Log}, {"log2", "Log2", gorgonia.Log2},
	{"neg", "Neg", gorgonia.Neg}, {"square", "Square", gorgonia.Square}, {"sqrt", "Sqrt", gorgonia.Sqrt},
	{"inverse", "Inverse", gorgonia.Inverse}, {"inversesqrt", "InverseSqrt", gorgonia.InverseSqrt}, {"cube", "Cube", gorgonia.Cube},
	{"tanh", "Tanh", gorgonia.Tanh}, {"sigmoid", "Sigmoid", gorgonia.Sigmoid},
	{"log1p", "Log1p", gorgonia.Log1p}, {"expm1", "Expm1", gorgonia.Expm1}, {"softplus", "Softplus", gorgonia.Softplus},
}

// BinaryFunctions are the functions of two operands. Comparisons return ones and zeros.
var BinaryFunctions = []Function[func(a, b *gorgonia.Node) (*gorgonia.Node, error)]{
	{"add", "Add", gorgonia.Add}, {"sub", "Sub", gorgonia.Sub}, {"mul", "HadamardProd", gorgonia.HadamardProd}, {"div", "HadamardDiv", gorgonia.HadamardDiv}, {"pow", "Pow", gorgonia.Pow},
	{"lt", "Lt", compare(gorgonia.Lt)}, {"gt", "Gt", compare(gorgonia.Gt)}, {"le", "Lte", compare(gorgonia.Lte)}, {"ge", "Gte", compare(gorgonia.Gte)},
	{"eq", "Eq", compare(gorgonia.Eq)}, {"ne", "Ne", compare(gorgonia.Ne)},
}

func compare(f func(a, b *gorgonia.Node, same bool) (*gorgonia.Node, error)) func(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return f(a, b, true) }
}

// kinds are the kinds of ops by the numbers and pointers in them.
type kinds struct {
	unary   map[uintptr]string // by the pointer to the operator's function
	binary  map[uint64]string
	product map[uint64]string
}

// learn makes an op of each kind. Its error names the field that this version of Gorgonia lacks.
var learn = sync.OnceValues(func() (*kinds, error) {
	k := &kinds{map[uintptr]string{}, map[uint64]string{}, map[uint64]string{}}
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		for _, f := range UnaryFunctions {
			x := gorgonia.NewVector(gorgonia.NewGraph(), dt, gorgonia.WithName("x"), gorgonia.WithShape(2))
			n, err := f.New(x)
			if err != nil {
				return nil, fmt.Errorf("gorgonia: %s of a vector: %w", f.Name, err)
			}
			at, ok := unaryKind(n.Op())
			if old := k.unary[at]; !ok || old != "" {
				return nil, elsewhere(f.Kind, old)
			}
			k.unary[at] = f.Kind
		}
	}
	for _, f := range BinaryFunctions {
		g := gorgonia.NewGraph()
		vector := func(name string) *gorgonia.Node {
			return gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName(name), gorgonia.WithShape(2))
		}
		n, err := f.New(vector("x"), vector("y"))
		if err != nil {
			return nil, fmt.Errorf("gorgonia: %s of vectors: %w", f.Name, err)
		}
		number, ok := binaryKind(n.Op())
		if old := k.binary[number]; !ok || old != "" {
			return nil, elsewhere(f.Kind, old)
		}
		k.binary[number] = f.Kind
	}
	return k, k.learnProducts()
})

// learnProducts makes a product of each kind.
func (k *kinds) learnProducts() error {
	g := gorgonia.NewGraph()
	node := func(dims int) *gorgonia.Node {
		shape := []int{2, 2, 2}[:dims]
		return gorgonia.NewTensor(g, tensor.Float64, dims, gorgonia.WithName(fmt.Sprint("x", len(g.AllNodes()))), gorgonia.WithShape(shape...))
	}
	for name, make := range map[string]func() (*gorgonia.Node, error){
		"matmul":        func() (*gorgonia.Node, error) { return gorgonia.Mul(node(2), node(2)) },
		"matvec":        func() (*gorgonia.Node, error) { return gorgonia.Mul(node(2), node(1)) },
		"dot":           func() (*gorgonia.Node, error) { return gorgonia.Mul(node(1), node(1)) },
		"outer":         func() (*gorgonia.Node, error) { return gorgonia.OuterProd(node(1), node(1)) },
		"batchedmatmul": func() (*gorgonia.Node, error) { return gorgonia.BatchedMatMul(node(3), node(3)) },
	} {
		n, err := make()
		if err != nil {
			return fmt.Errorf("gorgonia: %s: %w", name, err)
		}
		number, ok := productKind(n.Op())
		if old := k.product[number]; !ok || old != "" {
			return elsewhere(name, old)
		}
		k.product[number] = name
	}
	return nil
}

func elsewhere(name, old string) error {
	if old != "" {
		return fmt.Errorf("gorgonia: this version does not distinguish %s from %s: want v0.9.18", name, old)
	}
	return fmt.Errorf("gorgonia: this version keeps the kind of %s elsewhere: want v0.9.18", name)
}

// unaryKind returns the pointer that an element-wise op of one operand holds.
func unaryKind(op gorgonia.Op) (at uintptr, ok bool) {
	if OpName(op) != "elemUnaryOp" {
		return 0, false
	}
	f := reflect.ValueOf(op).FieldByName("ʘUnaryOperator")
	if !f.IsValid() || f.Kind() != reflect.Interface || f.Elem().Kind() != reflect.Pointer {
		return 0, false
	}
	return f.Elem().Pointer(), true
}

// binaryKind returns the number that an element-wise op of two operands holds.
func binaryKind(op gorgonia.Op) (number uint64, ok bool) {
	if OpName(op) != "elemBinOp" {
		return 0, false
	}
	f := reflect.ValueOf(op).FieldByName("ʘBinaryOperator")
	if !f.IsValid() || f.Kind() != reflect.Interface || f.Elem().Kind() != reflect.Struct {
		return 0, false
	}
	f = f.Elem().FieldByName("ʘBinaryOperatorType")
	if !f.IsValid() || !f.CanUint() {
		return 0, false
	}
	return f.Uint(), true
}

// productKind returns the number that a product holds.
func productKind(op gorgonia.Op) (number uint64, ok bool) {
	if OpName(op) != "linAlgBinOp" {
		return 0, false
	}
	f := reflect.ValueOf(op).FieldByName("āBinaryOperator")
	if !f.IsValid() || !f.CanUint() {
		return 0, false
	}
	return f.Uint(), true
}

// Unary returns the name of an element-wise op of one operand: abs, sign, ceil,
// floor, sin, cos, exp, log, log2, neg, square, sqrt, inverse, inversesqrt, cube,
// tanh, sigmoid, log1p, expm1 or softplus. ok is false for any other op.
func Unary(op gorgonia.Op) (name string, ok bool) {
	at, ok := unaryKind(op)
	if !ok {
		return "", false
	}
	k, err := learn()
	if err != nil {
		return "", false
	}
	name, ok = k.unary[at]
	return name, ok
}

// Binary returns the name of an element-wise op of two operands, tensors of one
// shape or scalars: add, sub, mul, div, pow, lt, gt, le, ge, eq or ne. same
// reports that a comparison returns 1 and 0 of its operands' type rather than bool.
// ok is false for any other op.
func Binary(op gorgonia.Op) (name string, same, ok bool) {
	number, ok := binaryKind(op)
	if !ok {
		return "", false, false
	}
	k, err := learn()
	if err != nil {
		return "", false, false
	}
	if name, ok = k.binary[number]; !ok {
		return "", false, false
	}
	f := reflect.ValueOf(op).FieldByName("retSame")
	if !f.IsValid() || f.Kind() != reflect.Bool {
		return "", false, false
	}
	return name, f.Bool(), true
}

// Product returns the name of a product: matmul, matvec, dot, outer or
// batchedmatmul, and which operands it takes transposed. ok is false for any
// other op.
func Product(op gorgonia.Op) (name string, transA, transB, ok bool) {
	number, ok := productKind(op)
	if !ok {
		return "", false, false, false
	}
	k, err := learn()
	if err != nil {
		return "", false, false, false
	}
	if name, ok = k.product[number]; !ok {
		return "", false, false, false
	}
	transA, transB = Transposes(op)
	return name, transA, transB, true
}

// Learnt returns an error that names the ops of Gorgonia that cannot be read, nil if all can: without
// it Unary, Binary and Product recognise no op.
func Learnt() error {
	_, err := learn()
	return err
}
