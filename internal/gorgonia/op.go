// Package gorgonia has Stheno's knowledge of Gorgonia's unexported parts: its ops by their type
// names, the fields of ops, and the children of a node. No other package accesses these.
//
// If this version of Gorgonia differs there from v0.9.18, the functions return errors that name the difference.
package gorgonia

import (
	"fmt"
	"reflect"
	"unsafe"

	"gorgonia.org/gorgonia"
)

// OpName returns the type name of one of Gorgonia's own ops, such as
// "reshapeOp", also where the op is a pointer, and "" for the op of any other module.
func OpName(op gorgonia.Op) string { return typeName(op) }

// typeName is OpName for any value.
func typeName(v any) string {
	t := reflect.TypeOf(v)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.PkgPath() != reflect.TypeFor[gorgonia.Node]().PkgPath() {
		return ""
	}
	return t.Name()
}

// IsStatement reports whether op is a statement, Let or Read. A statement
// node does not compute a value.
func IsStatement(op gorgonia.Op) bool {
	name := OpName(op)
	return name == "letOp" || name == "readOp"
}

// IsReshape reports whether op is Gorgonia's Reshape.
func IsReshape(op gorgonia.Op) bool { return OpName(op) == "reshapeOp" }

// IsConversion reports whether op is that of gorgonia.ConvType.
func IsConversion(op gorgonia.Op) bool { return OpName(op) == "dtConvOp" }

// IsDiagFlat reports whether op is that of gorgonia.DiagFlat.
func IsDiagFlat(op gorgonia.Op) bool { return OpName(op) == "diagFlatOp" }

// IsGlobalAverage reports whether op is that of gorgonia.GlobalAveragePool2D.
func IsGlobalAverage(op gorgonia.Op) bool { return OpName(op) == "globalAveragePoolOp" }

// IsConstant reports whether op is that of a constant node. (The arity that constantTensor
// returns is 1.)
func IsConstant(op gorgonia.Op) bool {
	name := OpName(op)
	return name == "constantScalar" || name == "constantTensor"
}

// GivesVector reports whether the value of a scalar node is a tensor of shape (1) on
// Gorgonia's machines: that of a Tensordot without free axes.
func GivesVector(n *gorgonia.Node) bool { return n.IsScalar() && OpName(n.Op()) == "tensordotOp" }

// IsCost reports whether gorgonia.Grad or Backpropagate began at the node: its
// derivative is the constant 1, or an input. Such a node is no root of the graph
// if its own gradient uses it, as the gradient of a square root does.
func IsCost(n *gorgonia.Node) bool {
	d := n.Deriv()
	return n.Op() != nil && d != nil && (d.Op() == nil || n.IsScalar() && IsConstant(d.Op()))
}

// IsStray reports whether a node is an unrequested derivative: one that gorgonia.Grad made but did
// not set as any node's derivative.
func IsStray(n *gorgonia.Node) bool {
	g := group(n)
	return len(n.DerivOf()) == 0 && (g == "gradients" || g == "undifferentiated nodes")
}

// IsDerivative reports whether gorgonia.Grad or Backpropagate made a node.
func IsDerivative(n *gorgonia.Node) bool {
	return len(n.DerivOf()) > 0 || IsStray(n)
}

// group returns Gorgonia's note of a node's origin, "" if it cannot be read.
func group(n *gorgonia.Node) string {
	f := reflect.ValueOf(n).Elem().FieldByName("group")
	if !f.IsValid() || f.Kind() != reflect.String {
		return ""
	}
	return f.String()
}

// ReadTarget returns the variable that a Read statement fills, and nil for any
// other op. Gorgonia keeps it in an unexported field.
func ReadTarget(op gorgonia.Op) (*gorgonia.Value, error) {
	if OpName(op) != "readOp" {
		return nil, nil
	}
	v := reflect.ValueOf(op)
	if v.Kind() != reflect.Struct || v.NumField() != 1 || v.Field(0).Type() != reflect.TypeFor[*gorgonia.Value]() {
		return nil, fmt.Errorf("this version of Gorgonia keeps the target of Read elsewhere")
	}
	return (*gorgonia.Value)(unsafe.Pointer(v.Field(0).UnsafePointer())), nil
}

// Transposes reports which operands a matrix product of Gorgonia's, a
// linAlgBinOp, takes transposed.
func Transposes(op gorgonia.Op) (a, b bool) {
	v := reflect.ValueOf(op)
	return v.FieldByName("transA").Bool(), v.FieldByName("transB").Bool()
}
