// Package gorgonnx has the Gemm of onnx-go's package of this name, for tests without that module: its type, its attributes, its shapes, and a
// plain Do.
package gorgonnx

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// gemm has the fields of onnx-go's.
type gemm struct {
	alpha, beta    float32
	transA, transB bool
}

// Gemm returns the op alpha A B + beta C.
func Gemm(alpha, beta float32, transA, transB bool) gorgonia.Op {
	return &gemm{alpha, beta, transA, transB}
}

func (o *gemm) Arity() int { return 3 }

func (o *gemm) Type() hm.Type {
	t := gorgonia.TensorType{Dims: 2, Of: hm.TypeVariable('a')}
	return hm.NewFnType(t, t, t, t)
}

func (o *gemm) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	size := func(i, axis int, transposed bool) int {
		if transposed {
			axis = 1 - axis
		}
		n, err := in[i].DimSize(axis)
		if err != nil {
			panic(err)
		}
		return n
	}
	return tensor.Shape{size(0, 0, o.transA), size(1, 1, o.transB)}, nil
}

// Do computes in float64. C is a matrix, a row or a number.
func (o *gemm) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	var list [3][]float64
	for i, v := range in {
		switch m := v.Data().(type) {
		case []float64:
			list[i] = m
		case []float32:
			for _, x := range m {
				list[i] = append(list[i], float64(x))
			}
		default:
			return nil, fmt.Errorf("gemm: got a %T", m)
		}
	}
	a, b, c := list[0], list[1], list[2]
	shape, err := o.InferShape(in[0].Shape(), in[1].Shape())
	if err != nil {
		return nil, err
	}
	m, n := shape[0], shape[1]
	k := len(a) / m
	if len(c) != m*n && len(c) != n && len(c) != 1 {
		return nil, errors.New("Gemm: unhandled shape for C broadcast not fully suported")
	}
	out := tensor.New(tensor.Of(in[0].Dtype()), tensor.WithShape(m, n))
	for i := range m {
		for j := range n {
			sum := 0.0
			for l := range k {
				x, y := i*k+l, l*n+j
				if o.transA {
					x = l*m + i
				}
				if o.transB {
					y = j*k + l
				}
				sum += a[x] * b[y]
			}
			if sum *= float64(o.alpha); o.beta != 0 {
				sum += float64(o.beta) * c[(i*n+j)%len(c)]
			}
			switch to := out.Data().(type) {
			case []float64:
				to[i*n+j] = sum
			case []float32:
				to[i*n+j] = float32(sum)
			}
		}
	}
	return out, nil
}

func (*gemm) ReturnsPtr() bool        { return true }
func (*gemm) CallsExtern() bool       { return false }
func (*gemm) OverwritesInput() int    { return 2 }
func (o *gemm) WriteHash(h hash.Hash) { fmt.Fprint(h, o) }
func (o *gemm) Hashcode() uint32      { h := fnv.New32a(); o.WriteHash(h); return h.Sum32() }
func (o *gemm) String() string {
	return fmt.Sprintf("gemm-%v-%v-%v-%v", o.transA, o.transB, o.alpha, o.beta)
}
