package gorgonia

import (
	"reflect"
	"strings"

	"gorgonia.org/gorgonia"
)

// Gemm holds the attributes of a Gemm of onnx-go: alpha A B + beta C.
type Gemm struct {
	Alpha, Beta    float64
	TransA, TransB bool
}

// ONNXGemm returns the attributes of a Gemm of onnx-go's package gorgonnx, v0.5.0, or of a fork's. ok is false for any other op.
func ONNXGemm(op gorgonia.Op) (g Gemm, ok bool) {
	v := reflect.ValueOf(op)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return g, false
	}
	v = v.Elem()
	if v.Kind() != reflect.Struct || v.Type().Name() != "gemm" || !strings.HasSuffix(v.Type().PkgPath(), "/gorgonnx") || v.NumField() != 4 {
		return g, false
	}
	alpha, beta, transA, transB := v.FieldByName("alpha"), v.FieldByName("beta"), v.FieldByName("transA"), v.FieldByName("transB")
	if alpha.Kind() != reflect.Float32 || beta.Kind() != reflect.Float32 || transA.Kind() != reflect.Bool || transB.Kind() != reflect.Bool {
		return g, false
	}
	return Gemm{alpha.Float(), beta.Float(), transA.Bool(), transB.Bool()}, true
}
