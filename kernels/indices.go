package kernels

import (
	"errors"
	"fmt"
)

// gatherKernels move words of so many bytes.
var gatherKernels = map[int64]*Kernel{
	1:  own.Kernel("indices", "gather_b8", gatherBody(1)),
	4:  own.Kernel("indices", "gather_b32", gatherBody(4)),
	8:  own.Kernel("indices", "gather_b64", gatherBody(8)),
	16: own.Kernel("indices", "gather_b128", gatherBody(16)),
}

var scatterKernels = [...]*Kernel{
	Float32: own.Kernel("indices", "scatter_f32", scatterBody[float32]),
	Float64: own.Kernel("indices", "scatter_f64", scatterBody[float64]),
}

var (
	splitCount = own.Kernel("indices", "split_count", splitCountBody)
	splitScan  = own.Kernel("indices", "split_scan", splitScanBody)
	splitPlace = own.Kernel("indices", "split_place", splitPlaceBody)
)

// What is compiled into indices.cu.
const (
	gatherEach    = 4    // words of a thread
	indicesBlock  = 256  // threads of a block
	scatterHeight = 512  // most rows of a tile
	splitHeights  = 2048 // most heights of tiles
	splitWarps    = 4    // of a block
	scanBlock     = 1024
)

// scatterPolicy tunes Scatter.
type scatterPolicy struct {
	columns int64 // of a tile, 32 at most
	blocks  int64 // wanted for each multiprocessor
	split   int64 // indices from which on they are split among the tiles before
	part    int64 // least indices of a warp that splits
	counts  int64 // most of them times heights of tiles: one block sums that many
}

var scatterPolicies = measured[scatterPolicy]{
	// not measured alone: columns are as many as a warp has lanes, blocks two waves of those that fit
	{90, scatterPolicy{columns: 32, blocks: 8, split: 1 << 11, part: 256, counts: 1 << 15}},
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
	wanted := pol.blocks * int64(dev.SMs)
	columns := min(inner, pol.columns)
	across := CeilDiv(inner, columns)
	height := min(max(CeilDiv(rows*across*outer, wanted), 1), scatterHeight, rows)
	tiles := across * CeilDiv(rows, height)
	deep := min(max(CeilDiv(tiles*outer, wanted), 1), outer)
	blocks := tiles * CeilDiv(outer, deep)
	if err := CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	s := scatterSplit{starts: Ref{1, 0}, list: Ref{1, 0}}
	if heights := CeilDiv(rows, height); dev.Major > 0 && count >= pol.split && heights > 1 && heights <= splitHeights {
		s = p.splitIndices(pol, rows, count, height, heights)
	}
	p.Launch(scatterKernels[dt], int(blocks), indicesBlock, Ref{0, 0}, Ref{1, 0}, Ref{Out, 0}, s.starts, s.list, s.parts,
		outer, rows, count, inner, int32(height), int32(columns), deep)
	return p, nil
}

// scatterSplit is where the indices of each height of tiles are: see indices.cu.
type scatterSplit struct {
	starts, list Ref
	parts        int32 // 0 where they are not split
}

// splitIndices appends the launches that split the indices.
func (p *Plan) splitIndices(pol scatterPolicy, rows, count, height, heights int64) scatterSplit {
	each := (max(CeilDiv(count, pol.counts/heights), pol.part) + 31) &^ 31
	parts := CeilDiv(count, each)
	s := scatterSplit{p.Workspace((heights*parts + 1) * Int32.Size()), p.Workspace(count * Int32.Size()), int32(parts)}
	blocks := int(CeilDiv(parts, splitWarps))
	args := []any{count, rows, int32(height), int32(heights), int32(parts), int32(each)}
	p.Launch(splitCount, blocks, 32*splitWarps, append([]any{Ref{1, 0}, s.starts}, args...)...)
	p.Launch(splitScan, 1, scanBlock, s.starts, int32(heights*parts))
	p.Launch(splitPlace, blocks, 32*splitWarps, append([]any{Ref{1, 0}, s.starts, s.list}, args...)...)
	return s
}

// splitting is the arguments that the kernels which split have in common, from argument i on.
func (c Call) splitting(i int) (count, rows, height, parts, each int64) {
	return c.Int(i), c.Int(i + 1), c.Int(i + 2), c.Int(i + 4), c.Int(i + 5)
}

func splitCountBody(c Call) {
	indices, counts := Slice[int64](c, 0), Slice[int32](c, 1)
	count, rows, height, parts, each := c.splitting(2)
	clear(counts[:c.Int(5)*parts])
	for k, v := range indices[:count] {
		if v >= 0 && v < rows {
			counts[v/height*parts+int64(k)/each]++
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
	count, rows, height, parts, each := c.splitting(3)
	next := make([]int32, c.Int(6)*parts)
	copy(next, starts)
	for k, v := range indices[:count] {
		if v >= 0 && v < rows {
			at := &next[v/height*parts+int64(k)/each]
			list[*at] = int32(k)
			*at++
		}
	}
}

// alongAxis returns a shape as three axes, of which the second is the one given.
func alongAxis(shape []int, axis int, count int64) (outer, rows, inner int64, err error) {
	const most = 1<<31 - 1 // what a list of indices counts in
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

// scatterBody is the Go body: the columns are shared among goroutines. It needs no list of the
// indices of a tile.
func scatterBody[T Float](c Call) {
	g, indices, out := Slice[T](c, 0), Slice[int64](c, 1), Slice[T](c, 2)
	outer, rows, count, inner := c.Int(6), c.Int(7), c.Int(8), c.Int(9)
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
