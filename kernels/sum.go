package kernels

import (
	"fmt"
	"math/bits"
	"slices"
)

// sumKernel holds the kernels by input and output type.
var sumRows, sumShort, sumCols, sumColsVec [2][2]*Kernel

func init() {
	fill := func(in, out Dtype, rows, short, cols func(Call)) {
		name := in.String()
		if in != out {
			name += "_" + out.String()
		}
		sumRows[in][out] = own.Kernel("sum", "sum_rows_"+name, rows)
		sumShort[in][out] = own.Kernel("sum", "sum_short_"+name, short)
		sumCols[in][out] = own.Kernel("sum", "sum_cols_"+name, cols)
		sumColsVec[in][out] = own.Kernel("sum", "sum_colsvec_"+name, cols)
	}
	fill(Float32, Float32, sumRowsBody[float32, float32], sumShortBody[float32, float32], sumColsBody[float32, float32])
	fill(Float32, Float64, sumRowsBody[float32, float64], sumShortBody[float32, float64], sumColsBody[float32, float64])
	fill(Float64, Float64, sumRowsBody[float64, float64], sumShortBody[float64, float64], sumColsBody[float64, float64])
	fill(Float64, Float32, sumRowsBody[float64, float32], sumShortBody[float64, float32], sumColsBody[float64, float32])
}

// Sum plans out = (sum of in over axes) / div, in row-major order: div is 1, or
// the number of terms for the mean. axes holds distinct axes of shape.
func Sum(dev Device, dt Dtype, shape, axes []int, mean bool) *Plan {
	terms := int64(1)
	for _, a := range axes {
		terms *= int64(shape[a])
	}
	n := Count(shape)
	out := int64(1)
	for a, d := range shape {
		if !slices.Contains(axes, a) {
			out *= int64(d)
		}
	}
	div, name := 1.0, "sum"
	if mean {
		div, name = float64(terms), "mean"
	}
	p := &Plan{Op: fmt.Sprintf("%s_%v(%v over %v)", name, dt, shape, axes), Inputs: []int64{n * dt.Size()}, Out: out * dt.Size(), Flops: n}
	if out == 0 {
		return p
	}
	groups := merge(shape, axes)
	passes := 0
	for _, g := range groups {
		if g.chosen {
			passes++
		}
	}
	src, in := Ref{0, 0}, dt
	for ; passes > 1; passes-- {
		var k int // the longest reduction first: it shrinks the data most
		for i, g := range groups {
			if g.chosen && (!groups[k].chosen || g.n > groups[k].n) {
				k = i
			}
		}
		outer, r, inner := around(groups, k)
		dst := p.Workspace(outer * inner * 8)
		p.sumPass(dev, src, in, dst, Float64, outer, r, inner, 1)
		src, in = dst, Float64
		groups = drop(groups, k)
	}
	k := slices.IndexFunc(groups, func(g group) bool { return g.chosen })
	outer, r, inner := around(groups, k)
	p.sumPass(dev, src, in, Ref{Out, 0}, dt, outer, r, inner, div)
	return p
}

// AppendSum appends the launches that add up n elements at src, of type in, into the
// element at dst, of type out, in an order that depends on n and dev alone.
func (p *Plan) AppendSum(dev Device, src Ref, in Dtype, n int64, dst Ref, out Dtype) {
	p.sumPass(dev, src, in, dst, out, 1, n, 1, 1)
}

// sumPass appends the launches that reduce src[outer][r][inner] to
// dst[outer][inner], dividing by div.
func (p *Plan) sumPass(dev Device, src Ref, in Dtype, dst Ref, out Dtype, outer, r, inner int64, div float64) {
	if inner == 1 {
		pol := rowPolicies.on(dev)
		if r <= pol.short {
			p.rowsShort(sumShort[in][out], pol, []any{src}, dst, outer, r, div)
			return
		}
		splits, chunk := pol.split(dev, outer, r)
		if splits == 1 {
			p.Launch(sumRows[in][out], int(outer), pol.block, src, dst, r, r, int32(1), div)
			return
		}
		part := p.Workspace(outer * splits * 8)
		p.Launch(sumRows[in][Float64], int(outer*splits), pol.block, src, part, r, chunk, int32(splits), 1.0)
		p.sumPass(dev, part, Float64, dst, out, outer, splits, 1, div)
		return
	}
	w := 16 / in.Size()
	kernel := sumColsVec
	if inner%w != 0 {
		w, kernel = 1, sumCols
	}
	// Threads side by side cover the columns, the rest of the block goes down the
	// rows, as long as each has enough of them.
	pol := columnPolicies.on(dev)
	x := min(pow2(CeilDiv(inner, w)), 32)
	y := min(pol.block/x, pow2(CeilDiv(r, pol.rows)))
	x = min(pol.block/y, pow2(CeilDiv(inner, w)))
	tiles := CeilDiv(inner, x*w)
	splits := max(min(int64(dev.SMs)*pol.blocks/max(outer*tiles, 1), r/(y*pol.chunk)), 1)
	chunk := CeilDiv(r, splits)
	splits = max(CeilDiv(r, max(chunk, 1)), 1)
	to, typ, d := dst, out, div
	if splits > 1 {
		to, typ, d = p.Workspace(outer*splits*inner*8), Float64, 1
	}
	p.Launches = append(p.Launches, Launch{
		Kernel: kernel[in][typ], Grid: [3]int{int(outer * splits * tiles), 1, 1}, Block: [3]int{int(x), int(y), 1}, Shared: int(x * y * w * 8),
		Args: []any{src, to, r, inner, chunk, int32(splits), int32(tiles), d},
	})
	if splits > 1 {
		p.sumPass(dev, to, Float64, dst, out, outer, splits, inner, div)
	}
}

// rowsShort appends a launch with a group of lanes for each row: as many lanes
// as keep four elements each, so that short rows share a warp.
func (p *Plan) rowsShort(k *Kernel, pol rowPolicy, src []any, dst Ref, rows, n int64, div float64) {
	lanes := min(pow2(CeilDiv(n, 4)), 32)
	p.Launch(k, int(CeilDiv(rows*lanes, int64(pol.block))), pol.block, append(slices.Clone(src), dst, rows, int32(n), int32(lanes), div)...)
}

// split returns the number of chunks that each row is cut into, so that the device is
// full, and the elements of a chunk.
func (pol rowPolicy) split(dev Device, rows, n int64) (splits, chunk int64) {
	splits = min(int64(dev.SMs)*pol.blocks/max(rows, 1), n/pol.chunk)
	if splits <= 1 {
		return 1, n
	}
	chunk = CeilDiv(CeilDiv(n, splits), 64) * 64 // chunks start 16-byte aligned where rows do
	return CeilDiv(n, chunk), chunk
}

// group is a run of adjacent axes, all chosen (to be reduced, or repeated) or
// all not.
type group struct {
	n      int64
	chosen bool
}

// merge joins adjacent axes that are treated alike. There is always a chosen
// group; axes of extent 1 are dropped.
func merge(shape, axes []int) []group {
	var groups []group
	chosen := false
	for a, d := range shape {
		if d == 1 {
			continue
		}
		c := slices.Contains(axes, a)
		chosen = chosen || c
		if k := len(groups); k > 0 && groups[k-1].chosen == c {
			groups[k-1].n *= int64(d)
		} else {
			groups = append(groups, group{int64(d), c})
		}
	}
	if !chosen {
		groups = append(groups, group{1, true})
	}
	return groups
}

// around returns the shape outer x r x inner seen from group k.
func around(groups []group, k int) (outer, r, inner int64) {
	outer, inner = 1, 1
	for i, g := range groups {
		switch {
		case i < k:
			outer *= g.n
		case i > k:
			inner *= g.n
		}
	}
	return outer, groups[k].n, inner
}

// drop removes group k and joins its neighbours.
func drop(groups []group, k int) []group {
	rest := slices.Delete(slices.Clone(groups), k, k+1)
	if k > 0 && k < len(rest) && rest[k-1].chosen == rest[k].chosen {
		rest[k-1].n *= rest[k].n
		rest = slices.Delete(rest, k, k+1)
	}
	return rest
}

// pow2 returns the least power of two that is at least n.
func pow2(n int64) int64 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len64(uint64(n-1))
}

func sumRowsBody[In, To Float](c Call) {
	in, out := Slice[In](c, 0), Slice[To](c, 1)
	n, chunk, splits, div := c.Int(2), c.Int(3), c.Int(4), c.Float(5)
	Parallel(int64(c.Grid[0]), max(Grain/chunk, 1), func(lo, hi int64) {
		for b := lo; b < hi; b++ {
			first := b % splits * chunk
			row := in[b/splits*n:]
			out[b] = To(add8(row[first:min(first+chunk, n)]) / div)
		}
	})
}

func sumShortBody[In, To Float](c Call) {
	in, out := Slice[In](c, 0), Slice[To](c, 1)
	rows, n, div := c.Int(2), c.Int(3), c.Float(5)
	Parallel(rows, Grain/max(n, 1), func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			out[i] = To(add8(in[i*n:(i+1)*n]) / div)
		}
	})
}

func sumColsBody[In, To Float](c Call) {
	in, out := Slice[In](c, 0), Slice[To](c, 1)
	r, inner, chunk, splits, tiles, div := c.Int(2), c.Int(3), c.Int(4), c.Int(5), c.Int(6), c.Float(7)
	parts := int64(c.Grid[0]) / tiles
	// One goroutine takes a part of the columns through all rows of a chunk, a
	// tile of columns at a time so that the accumulators stay in the first-level
	// cache, and eight rows at a time, so that they are read and written once for
	// eight elements. A column's order depends on its rows alone.
	const tile = 1024
	pieces := CeilDiv(inner, tile)
	Parallel(parts*pieces, max(Grain/(chunk*min(inner, tile)+1), 1), func(lo, hi int64) {
		acc := make([]float64, min(inner, tile))
		for at := lo; at < hi; at++ {
			part, col := at/pieces, at%pieces*tile
			width := min(tile, inner-col)
			first := part % splits * chunk
			acc := acc[:width]
			clear(acc)
			rows := in[part/splits*r*inner+col:]
			j, last := first, min(first+chunk, r)
			for ; j+8 <= last; j += 8 {
				addRows8(acc, rows[j*inner:], inner)
			}
			for ; j < last; j++ {
				row := rows[j*inner:][:len(acc)]
				for i, x := range row {
					acc[i] += float64(x)
				}
			}
			dst := out[part*inner+col:][:len(acc)]
			for i, x := range acc {
				dst[i] = To(x / div)
			}
		}
	})
}

// addRows8 is acc[i] += sum over eight rows j of x[j*ld+i], in double.
func addRows8[T Float](acc []float64, x []T, ld int64) {
	n := len(acc)
	a, b, c, d := x[:n], x[ld:][:n], x[2*ld:][:n], x[3*ld:][:n]
	e, f, g, h := x[4*ld:][:n], x[5*ld:][:n], x[6*ld:][:n], x[7*ld:][:n]
	for i := range acc {
		acc[i] += ((float64(a[i]) + float64(b[i])) + (float64(c[i]) + float64(d[i]))) +
			((float64(e[i]) + float64(f[i])) + (float64(g[i]) + float64(h[i])))
	}
}

// add8 sums in double with eight accumulators, which hide the latency of the
// additions.
func add8[T Float](x []T) float64 {
	var a, b, c, d, e, f, g, h float64
	for ; len(x) >= 8; x = x[8:] {
		a += float64(x[0])
		b += float64(x[1])
		c += float64(x[2])
		d += float64(x[3])
		e += float64(x[4])
		f += float64(x[5])
		g += float64(x[6])
		h += float64(x[7])
	}
	for _, v := range x {
		a += float64(v)
	}
	return ((a + b) + (c + d)) + ((e + f) + (g + h))
}
