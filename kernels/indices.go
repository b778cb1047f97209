package kernels

import (
	"errors"
	"fmt"
)

// gatherKernels are the kernels that move words of each size, in bytes.
var gatherKernels = map[int64]*Kernel{
	1:  own.Kernel("indices", "gather_b8", gatherBody(1)),
	4:  own.Kernel("indices", "gather_b32", gatherBody(4)),
	8:  own.Kernel("indices", "gather_b64", gatherBody(8)),
	16: own.Kernel("indices", "gather_b128", gatherBody(16)),
}

// scatterKernels are the kernel for all rows and the one for rows of many indices.
var scatterKernels = [...][2]*Kernel{
	Float32: {own.Kernel("indices", "scatter_f32", scatterBody[float32]), own.Kernel("indices", "scatter_heavy_f32", scatterHeavyBody)},
	Float64: {own.Kernel("indices", "scatter_f64", scatterBody[float64]), own.Kernel("indices", "scatter_heavy_f64", scatterHeavyBody)},
}

var (
	splitCount = own.Kernel("indices", "split_count", splitCountBody)
	splitScan  = own.Kernel("indices", "split_scan", splitScanBody)
	splitPlace = own.Kernel("indices", "split_place", splitPlaceBody)
)

// Constants of indices.cu.
const (
	gatherEach    = 4   // words of a thread
	indicesBlock  = 256 // threads of a block
	scatterHeight = 512 // most rows of a tile
	splitBands    = 128 // most bands of rows
	splitWarps    = 4   // of a block
	scanBlock     = 1024
	heavyColumns  = 32
	heavyStages   = 8
	heavyHeld     = 8192 // indices in the list of a block
)

// scatterPolicy tunes Scatter.
type scatterPolicy struct {
	tile   int64 // bytes
	blocks int64 // wanted for each multiprocessor
	split  int64 // indices from which on they are split among bands before
	part   int64 // least indices of a warp that splits
	counts int64 // most of them times bands: one block sums that many
	many   int64 // indices of a row from which on it is left to blocks of a few columns, and more among many indices:
	share  int64 // such a part of all
	panels int64 // bytes of the panels of such a block, if the device has as many
}

var scatterPolicies = measured[scatterPolicy]{
	{90, scatterPolicy{tile: 64 << 10, blocks: 8, split: 512, part: 256, counts: 1 << 15, many: 256, share: 512, panels: 64 << 10}},
}

// Gather plans out = the elements of x at indices along an axis: out has the shape of x,
// but count elements along the axis. The inputs are x and the indices, of Int64. Where an
// index is none of the axis, out is 0.
func Gather(dev Device, dt Dtype, shape []int, axis int, count int64) (*Plan, error) {
	outer, rows, inner, err := alongAxis(shape, axis, count)
	p := &Plan{Op: fmt.Sprintf("gather_%v(%v, %d along %d)", dt, shape, count, axis)}
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	size := inner * dt.Size() // of a row
	p.Inputs, p.Out = []int64{outer * rows * size, count * Int64.Size()}, outer*count*size
	if p.Out == 0 {
		return p, nil
	}
	word := int64(16)
	for gatherKernels[word] == nil || size%word != 0 {
		word /= 2
	}
	words := p.Out / word
	blocks := CeilDiv(words, gatherEach*indicesBlock)
	if err := CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	args := []any{Ref{0, 0}, Ref{1, 0}, Ref{Out, 0}, words, rows}
	for _, d := range []int64{count, size / word} {
		magic, shift := divisor(max(d, 2), true)
		args = append(args, d, int64(magic), int32(shift))
	}
	p.Launch(gatherKernels[word], int(blocks), indicesBlock, args...)
	return p, nil
}

// Scatter plans the adjoint of [Gather]: out, of the shape, is at each index along the axis
// the sum of the rows of g that have it, in their order, and 0 where none has. The inputs
// are g, with count elements along the axis, and as many indices, of Int64; one that is none of the
// axis counts nowhere. Types are Float32 and Float64.
func Scatter(dev Device, dt Dtype, shape []int, axis int, count int64) (*Plan, error) {
	outer, rows, inner, err := alongAxis(shape, axis, count)
	if err == nil && !dt.IsFloat() {
		err = errors.New("want float32 or float64")
	}
	p := &Plan{Op: fmt.Sprintf("scatter_%v(%v, %d along %d)", dt, shape, count, axis)}
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	p.Inputs, p.Out = []int64{outer * count * inner * dt.Size(), count * Int64.Size()}, outer*rows*inner*dt.Size()
	p.Flops = outer * count * inner
	if p.Out == 0 {
		return p, nil
	}
	pol := scatterPolicies.on(dev)
	columns := min(inner, pol.tile/dt.Size())
	across := CeilDiv(inner, columns)
	fill := max(CeilDiv(rows*across*outer, pol.blocks*int64(dev.SMs)), 1) // rows of a tile of which there are enough
	height := min(max(pol.tile/(columns*dt.Size()), 1), fill, scatterHeight, rows)
	tiles := across * CeilDiv(rows, height)
	deep := min(max(CeilDiv(tiles*outer, pol.blocks*int64(dev.SMs)), 1), outer)
	blocks := tiles * CeilDiv(outer, deep)
	if err := CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	s := scatterSplit{starts: Ref{1, 0}, list: Ref{1, 0}, heavy: Ref{1, 0}}
	heavyAcross := CeilDiv(inner, heavyColumns)
	items := heavyAcross * outer * CeilDiv(count, pol.many) // of scatter_heavy, at most
	split := dev.Major > 0 && count >= pol.split && max(rows, items) < 1<<31
	if split {
		s = p.splitIndices(pol, rows, count, height)
	}
	p.Launch(scatterKernels[dt][0], int(blocks), indicesBlock, Ref{0, 0}, Ref{1, 0}, Ref{Out, 0}, s.starts, s.list, s.heavy, s.parts, s.bandRows, s.many,
		outer, rows, count, inner, int32(height), int32(columns), deep, int32(tiles/across), int32(across))
	if split {
		shared := min(int64(dev.SharedOptin), heavyHeld*Int32.Size()+pol.panels)
		panel := (shared - heavyHeld*Int32.Size()) / heavyStages
		p.Launch(scatterKernels[dt][1], int(min(max(items, 1), int64(dev.SMs)*2)), indicesBlock, Ref{0, 0}, Ref{1, 0}, Ref{Out, 0}, s.starts, s.list, s.heavy, s.parts,
			s.bandRows, int32(panel/(heavyColumns*dt.Size())), int32(heavyAcross), int32(outer), rows, count, inner).Shared = int(shared)
	}
	return p, nil
}

// scatterSplit is where the indices of each band of rows are: see indices.cu.
type scatterSplit struct {
	starts, list, heavy   Ref
	parts, bandRows, many int32 // 0 where they are not split
}

// splitIndices appends the launches that split the indices among bands, each of some tiles of
// that many rows.
func (p *Plan) splitIndices(pol scatterPolicy, rows, count, height int64) scatterSplit {
	bandRows := CeilDiv(CeilDiv(rows, height), splitBands) * height
	bands := CeilDiv(rows, bandRows)
	each := (max(CeilDiv(count, pol.counts/bands), pol.part) + 31) &^ 31
	parts, many := CeilDiv(count, each), max(pol.many, count/pol.share)
	s := scatterSplit{p.Workspace((bands*parts + 1) * Int32.Size()), p.Workspace(2 * count * Int32.Size()), p.Workspace((1 + count/many) * Int32.Size()),
		int32(parts), int32(bandRows), int32(many)}
	blocks := int(CeilDiv(parts, splitWarps))
	args := []any{count, rows, int32(bandRows), int32(bands), int32(parts), int32(each)}
	p.Launch(splitCount, blocks, 32*splitWarps, append([]any{Ref{1, 0}, s.starts, s.heavy}, args...)...)
	p.Launch(splitScan, 1, scanBlock, s.starts, int32(bands*parts))
	p.Launch(splitPlace, blocks, 32*splitWarps, append([]any{Ref{1, 0}, s.starts, s.list}, args...)...)
	return s
}

// splitting is the arguments that the kernels which split have in common, from argument i on.
func (c Call) splitting(i int) (count, rows, bandRows, parts, each int64) {
	return c.Int(i), c.Int(i + 1), c.Int(i + 2), c.Int(i + 4), c.Int(i + 5)
}

func splitCountBody(c Call) {
	indices, counts, heavy := Slice[int64](c, 0), Slice[int32](c, 1), Slice[int32](c, 2)
	count, rows, bandRows, parts, each := c.splitting(3)
	clear(counts[:c.Int(6)*parts])
	heavy[0] = 0
	for k, v := range indices[:count] {
		if v >= 0 && v < rows {
			counts[v/bandRows*parts+int64(k)/each]++
		}
	}
}

func splitScanBody(c Call) {
	counts, n := Slice[int32](c, 0), c.Int(1)
	sum := int32(0)
	for i, x := range counts[:n] {
		counts[i], sum = sum, sum+x
	}
	counts[n] = sum
}

func splitPlaceBody(c Call) {
	indices, starts, list := Slice[int64](c, 0), Slice[int32](c, 1), Slice[int32](c, 2)
	count, rows, bandRows, parts, each := c.splitting(3)
	next := make([]int32, c.Int(6)*parts)
	copy(next, starts)
	for k, v := range indices[:count] {
		if v >= 0 && v < rows {
			at := &next[v/bandRows*parts+int64(k)/each]
			list[2**at], list[2**at+1] = int32(k), int32(v%bandRows)
			*at++
		}
	}
}

// alongAxis returns a shape as three axes, of which the second is the one given.
func alongAxis(shape []int, axis int, count int64) (outer, rows, inner int64, err error) {
	const most = 1<<31 - 1 // lists of indices are counted in int32
	switch {
	case axis < 0 || axis >= len(shape):
		err = fmt.Errorf("got axis %d of shape %v", axis, shape)
	case count < 0 || count > most:
		err = fmt.Errorf("got %d indices, want at most %d", count, most)
	default:
		outer, rows, inner = Count(shape[:axis]), int64(shape[axis]), Count(shape[axis+1:])
	}
	return outer, rows, inner, err
}

// gatherBody is the Go body for words of that many bytes.
func gatherBody(word int64) func(Call) {
	return func(c Call) {
		x, indices, out := Slice[uint8](c, 0), Slice[int64](c, 1), Slice[uint8](c, 2)
		words, rows, count, size := c.Int(3), c.Int(4), c.Int(5), c.Int(8)*word
		Parallel(words*word/size, max(Grain/size, 1), func(lo, hi int64) {
			for row := lo; row < hi; row++ {
				to, index := out[row*size:(row+1)*size], indices[row%count]
				if index < 0 || index >= rows {
					clear(to)
					continue
				}
				copy(to, x[(row/count*rows+index)*size:])
			}
		})
	}
}

// scatterHeavyBody does nothing: scatterBody does all rows.
func scatterHeavyBody(Call) {}

// scatterBody is the Go body: the columns are shared among goroutines. It needs no list of the
// indices of a tile.
func scatterBody[T Float](c Call) {
	g, indices, out := Slice[T](c, 0), Slice[int64](c, 1), Slice[T](c, 2)
	outer, rows, count, inner := c.Int(9), c.Int(10), c.Int(11), c.Int(12)
	Parallel(outer*inner, max(Grain/(count+rows), 1), func(lo, hi int64) {
		for o := lo / inner; o*inner < hi; o++ {
			from, to := max(lo-o*inner, 0), min(hi-o*inner, inner)
			for v := range rows {
				at := (o*rows + v) * inner
				clear(out[at+from : at+to])
			}
			for k, v := range indices[:count] {
				if v < 0 || v >= rows {
					continue
				}
				at := (o*count + int64(k)) * inner
				sum, x := out[(o*rows+v)*inner:][from:to], g[at+from:at+to]
				for i := range sum {
					sum[i] += x[i]
				}
			}
		}
	})
}
