package opspec

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
	"gorgonia.org/tensor"
)

// This file has the loops of a program without Stheno on one core, as [Drawn.Plain].

// plain makes loops over elements of a type into one over memory.
func plain[In, Out kernels.Element](f func(in [][]In, out []Out)) Plain {
	return func(in [][]byte, out []byte) {
		x := make([][]In, len(in))
		for i, b := range in {
			x[i] = kernels.Elements[In](b)
		}
		f(x, kernels.Elements[Out](out))
	}
}

// plainFloats chooses one of two by the type.
func (s *Sizes) plainFloats(f32 func(in [][]float32, out []float32), f64 func(in [][]float64, out []float64)) Plain {
	if s.Type == kernels.Float32 {
		return plain(f32)
	}
	return plain(f64)
}

func plainAdd[T kernels.Float](in [][]T, out []T) {
	for i, a := range in[0] {
		out[i] = a + in[1][i]
	}
}

// plainScale multiplies the rows of a matrix by a number each.
func plainScale[T kernels.Float](in [][]T, out []T) {
	n := len(in[0]) / len(in[1])
	for i, s := range in[1] {
		for j, x := range in[0][i*n : (i+1)*n] {
			out[i*n+j] = s * x
		}
	}
}

// plainDot makes one number of each row.
func plainDot[T kernels.Float](in [][]T, out []T) {
	n := len(in[0]) / len(out)
	for i := range out {
		var sum T
		for j, a := range in[0][i*n : (i+1)*n] {
			sum += a * in[1][i*n+j]
		}
		out[i] = sum
	}
}

// plainBroadcast copies each piece of the input `copies` times.
func plainBroadcast[T kernels.Float](piece, copies int) func(in [][]T, out []T) {
	return func(in [][]T, out []T) {
		for from := range slices.Chunk(in[0], piece) {
			for range copies {
				out = out[copy(out, from):]
			}
		}
	}
}

// plainSum sums over axes, walking the input in order.
func plainSum[T kernels.Float](shape tensor.Shape, axes []int, mean bool) func(in [][]T, out []T) {
	strides, n := make([]int, len(shape)), 1 // in the output
	for a := len(shape) - 1; a >= 0; a-- {
		if !slices.Contains(axes, a) {
			strides[a] = n
			n *= shape[a]
		}
	}
	var walk func(axis, at int, in, out []T) (rest []T)
	walk = func(axis, at int, in, out []T) []T {
		if axis < len(shape)-1 {
			for i := range shape[axis] {
				in = walk(axis+1, at+i*strides[axis], in, out)
			}
			return in
		}
		for i, x := range in[:shape[axis]] {
			out[at+i*strides[axis]] += x
		}
		return in[shape[axis]:]
	}
	return func(in [][]T, out []T) {
		clear(out)
		walk(0, 0, in[0], out)
		if mean {
			for i := range out {
				out[i] /= T(len(in[0]) / n)
			}
		}
	}
}

// plainWindow keeps a running sum of the window, in float64.
func plainWindow[T kernels.Float](row, radius int, same bool) func(in [][]T, out []T) {
	return func(in [][]T, out []T) {
		for x := range slices.Chunk(in[0], row) {
			first, last := radius, row-radius
			if same {
				first, last = 0, row
			}
			sum := 0.0
			for j := 0; j < min(first+radius, row); j++ {
				sum += float64(x[j])
			}
			for centre := first; centre < last; centre++ {
				if j := centre + radius; j < row {
					sum += float64(x[j])
				}
				out[centre-first] = T(sum)
				if j := centre - radius; j >= 0 {
					sum -= float64(x[j])
				}
			}
			out = out[last-first:]
		}
	}
}

func plainHistogram[T kernels.Element](bins int, lo, hi float64) func(in [][]T, out []int64) {
	return func(in [][]T, out []int64) {
		clear(out)
		for _, x := range in[0] {
			if x := float64(x); x >= lo && x < hi {
				out[min(int((x-lo)*(float64(bins)/(hi-lo))), bins-1)]++
			}
		}
	}
}

func (s *Sizes) plainHistogram(bins int, lo, hi float64) Plain {
	switch s.Type {
	case kernels.Float32:
		return plain(plainHistogram[float32](bins, lo, hi))
	case kernels.Float64:
		return plain(plainHistogram[float64](bins, lo, hi))
	}
	return plain(plainHistogram[uint8](bins, lo, hi))
}

// plainMap computes an expression in float64. A scalar serves for all elements.
func plainMap[T kernels.Float](f func(x []float64) float64) func(in [][]T, out []T) {
	return func(in [][]T, out []T) {
		x := make([]float64, len(in))
		for i := range out {
			for k, operand := range in {
				x[k] = float64(operand[min(i, len(operand)-1)])
			}
			out[i] = T(f(x))
		}
	}
}

func plainReduce[T kernels.Float](f func(b float64) float64, identity float64, operator byte) func(in [][]T, out []T) {
	return func(in [][]T, out []T) {
		a := identity
		for _, b := range in[0] {
			switch x := f(float64(b)); operator {
			case '+':
				a += x
			case '>':
				a = max(a, x)
			case '<':
				a = min(a, x)
			case '*':
				a *= x
			}
		}
		out[0] = T(a)
	}
}

// plainIterate multiplies by gonum's BLAS.
func plainIterate(n, steps int) (f32 func(in [][]float32, out []float32), f64 func(in [][]float64, out []float64)) {
	f32 = func(in [][]float32, out []float32) {
		half := make([]float32, n)
		copy(out, in[2])
		for range steps {
			gonum.Implementation{}.Sgemv(blas.NoTrans, n, n, 1, in[0], n, out, 1, 0, half, 1)
			gonum.Implementation{}.Sgemv(blas.NoTrans, n, n, 1, in[1], n, half, 1, 0, out, 1)
		}
	}
	f64 = func(in [][]float64, out []float64) {
		half := make([]float64, n)
		copy(out, in[2])
		for range steps {
			gonum.Implementation{}.Dgemv(blas.NoTrans, n, n, 1, in[0], n, out, 1, 0, half, 1)
			gonum.Implementation{}.Dgemv(blas.NoTrans, n, n, 1, in[1], n, half, 1, 0, out, 1)
		}
	}
	return f32, f64
}

// product is a batch of products: m x k by k x n, each operand stored transposed or not.
type product struct {
	transposes
	batch, m, n, k int
}

func (p product) order() (a, b blas.Transpose, lda, ldb int) {
	a, b, lda, ldb = blas.NoTrans, blas.NoTrans, p.k, p.n
	if p.a {
		a, lda = blas.Trans, p.m
	}
	if p.b {
		b, ldb = blas.Trans, p.k
	}
	return a, b, lda, ldb
}

func (p product) f32(in [][]float32, out []float32) {
	a, b, lda, ldb := p.order()
	for z := range p.batch {
		gonum.Implementation{}.Sgemm(a, b, p.m, p.n, p.k, 1, in[0][z*p.m*p.k:], lda, in[1][z*p.k*p.n:], ldb, 0, out[z*p.m*p.n:], p.n)
	}
}

func (p product) f64(in [][]float64, out []float64) {
	a, b, lda, ldb := p.order()
	for z := range p.batch {
		gonum.Implementation{}.Dgemm(a, b, p.m, p.n, p.k, 1, in[0][z*p.m*p.k:], lda, in[1][z*p.k*p.n:], ldb, 0, out[z*p.m*p.n:], p.n)
	}
}

// fillKind writes data of a kind, "uniform", "equal" or "skewed", into memory of elements of a
// type: numbers in [-1, 1), or bytes. A quarter of the skewed elements is in the lowest 2^-16 of
// the range.
func fillKind(dt kernels.Dtype, data string) func(operand []byte) {
	if data == "uniform" {
		return nil
	}
	return func(operand []byte) {
		r := rand.New(rand.NewPCG(1, 2))
		block := operand[:min(len(operand), 1<<20)] // the rest repeats it
		for i := range block[:len(block)/int(dt.Size())] {
			at := 0.3 // in [0, 1)
			if data == "skewed" {
				at = math.Pow(r.Float64(), 8)
			}
			switch dt {
			case kernels.Float32:
				kernels.Elements[float32](block)[i] = float32(2*at - 1)
			case kernels.Float64:
				kernels.Elements[float64](block)[i] = 2*at - 1
			default:
				block[i] = byte(256 * at)
			}
		}
		for done := len(block); done < len(operand); done *= 2 {
			copy(operand[done:], operand[:done])
		}
	}
}
