package codegen

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// partials are partial results of a reduction: of floating-point numbers in double precision, or of integers.
type partials struct {
	floats   []float64
	integers []int64
}

func (p *partials) clear() { p.floats, p.integers = p.floats[:0], p.integers[:0] }

// add adds the block of a reduction's arguments.
func (p *partials) add(op expr.Op, d expr.Dtype, b []byte, rows, columns int64, across bool) {
	switch {
	case d == kernels.Float32:
		p.floats = reduceBlock(p.floats, op, reductionOf[op].Identity(), kernels.Elements[float32](b), rows, columns, across, arith.Sum)
	case d == kernels.Float64:
		p.floats = reduceBlock(p.floats, op, reductionOf[op].Identity(), kernels.Elements[float64](b), rows, columns, across, arith.Sum)
	case d.Size() == 1:
		p.integers = reduceBlock(p.integers, op, integerIdentity(op, d), b, rows, columns, across, sumIntegers)
	case d.Size() == 4:
		p.integers = reduceBlock(p.integers, op, integerIdentity(op, d), kernels.Elements[int32](b), rows, columns, across, sumIntegers)
	default:
		p.integers = reduceBlock(p.integers, op, integerIdentity(op, d), kernels.Elements[int64](b), rows, columns, across, sumIntegers)
	}
}

// integerIdentity returns the reduction of no integers.
func integerIdentity(op expr.Op, d expr.Dtype) int64 {
	least, most := d.Limits()
	return map[expr.Op]int64{expr.RowMax: least, expr.RowMin: most}[op]
}

func sumIntegers[T kernels.Element](x []T) (sum int64) {
	for _, v := range x {
		sum += int64(v)
	}
	return sum
}

// reduceBlock appends the reduction of each row's part of a block. Over a strided axis it adds a block to one partial result for each row.
func reduceBlock[A float64 | int64, T kernels.Element](pieces []A, op expr.Op, identity A, b []T, rows, columns int64, across bool, sum func([]T) A) []A {
	if !across {
		for r := range rows {
			pieces = append(pieces, reduceRun(op, b[r*columns:(r+1)*columns], sum))
		}
		return pieces
	}
	if len(pieces) == 0 {
		pieces = append(pieces, slices.Repeat([]A{identity}, int(rows))...)
	}
	if op == expr.RowSum { // the block's own sums first: one sum after the other, of a long axis, rounds too often
		pieces = append(pieces, make([]A, rows)...)
		addColumns(pieces[rows:], b[:rows*columns])
		for r, v := range pieces[rows:] {
			pieces[r] += v
		}
		return pieces[:rows]
	}
	for c := range columns {
		x := b[c*rows : (c+1)*rows]
		p := pieces[:len(x)]
		if op == expr.RowMax {
			for r, v := range x {
				p[r] = max(p[r], A(v))
			}
			continue
		}
		for r, v := range x {
			p[r] = min(p[r], A(v))
		}
	}
	return pieces
}

// addColumns adds to the sum of each row its elements, four columns at a time.
func addColumns[A float64 | int64, T kernels.Element](sums []A, b []T) {
	n := len(sums)
	for ; len(b) >= 4*n; b = b[4*n:] {
		x, y, z, w := b[:n], b[n:2*n], b[2*n:3*n], b[3*n:4*n]
		for r := range sums {
			sums[r] += (A(x[r]) + A(y[r])) + (A(z[r]) + A(w[r]))
		}
	}
	for ; len(b) > 0; b = b[n:] {
		for r, v := range b[:n] {
			sums[r] += A(v)
		}
	}
}

// reduceRun returns the reduction of a part of a row.
func reduceRun[A float64 | int64, T kernels.Element](op expr.Op, x []T, sum func([]T) A) A {
	if op == expr.RowSum {
		return sum(x)
	}
	most := x[0]
	for _, v := range x[1:] {
		if op == expr.RowMax {
			most = max(most, v)
		} else {
			most = min(most, v)
		}
	}
	return A(most)
}

// reductionOf returns reductions of rows as reductions of a whole buffer: both fold in one order.
var reductionOf = map[expr.Op]Reduction{expr.RowSum: {operator: expr.Add}, expr.RowMax: {operator: expr.Max}, expr.RowMin: {operator: expr.Min}}

// combine writes the reduction of each of some rows. There is one partial result for each row, or those of the blocks of the only row.
func (p *partials) combine(op expr.Op, d expr.Dtype, rows int64, to []byte) {
	if int64(len(p.floats)) > rows {
		p.floats = []float64{reductionOf[op].Fold(p.floats)}
	}
	if int64(len(p.integers)) > rows {
		p.integers = []int64{reduceRun(op, p.integers, sumIntegers)}
	}
	switch {
	case d == kernels.Float32:
		storeAs(kernels.Elements[float32](to), p.floats)
	case d == kernels.Float64:
		copy(kernels.Elements[float64](to), p.floats)
	case d.Size() == 1:
		storeAs(to, p.integers)
	case d.Size() == 4:
		storeAs(kernels.Elements[int32](to), p.integers)
	default:
		copy(kernels.Elements[int64](to), p.integers)
	}
}

func storeAs[T kernels.Element, A float64 | int64](to []T, from []A) {
	for i, v := range from {
		to[i] = T(v)
	}
}
