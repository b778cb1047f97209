package basic

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// scatterKernels are the kernel for all rows and the one for rows of many indices.
var scatterKernels = [...][2]*kernels.Kernel{
	kernels.Float32: {own.Kernel("scatter", "scatter_f32", scatterBody[float32]), own.Kernel("scatter", "scatter_heavy_f32", scatterHeavyBody)},
	kernels.Float64: {own.Kernel("scatter", "scatter_f64", scatterBody[float64]), own.Kernel("scatter", "scatter_heavy_f64", scatterHeavyBody)},
}

var (
	splitCount = own.Kernel("split", "split_count", splitCountBody)
	splitScan  = own.Kernel("split", "split_scan", splitScanBody)
	splitPlace = own.Kernel("split", "split_place", splitPlaceBody)
)

// Constants of scatter.cu and split.cu.
const (
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

var scatterPolicies = kernels.Measured[scatterPolicy]{
	{90, scatterPolicy{tile: 64 << 10, blocks: 8, split: 512, part: 256, counts: 1 << 15, many: 256, share: 512, panels: 64 << 10}},
}

// Scatter plans the adjoint of [Gather]: out, of the shape, is at each index along the axis
// the sum of the rows of g that have it, in their order, or by parts ([ScatterParts]), and 0 where none has. The inputs
// are g, with count elements along the axis, and as many indices, of Int64; one that is none of the
// axis counts nowhere. Types are Float32 and Float64.
func Scatter(dev kernels.Device, dt kernels.Dtype, shape []int, axis int, count int64) (*kernels.Plan, error) {
	outer, rows, inner, err := alongAxis(shape, axis, count)
	if err == nil && !dt.IsFloat() {
		err = errors.New("want float32 or float64")
	}
	if err == nil && dev.SMs < 1 {
		err = errors.New("got the zero Device, want HostDevice or the properties of a CUDA device")
	}
	p := &kernels.Plan{Op: fmt.Sprintf("scatter_%v(%v, %d along %d)", dt, shape, count, axis)}
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	p.Inputs, p.Out = []int64{outer * count * inner * dt.Size(), count * kernels.Int64.Size()}, outer*rows*inner*dt.Size()
	p.Flops = outer * count * inner
	if p.Out == 0 {
		return p, nil
	}
	if parts := ScatterParts(outer, rows, inner, count); parts > 1 {
		return appendScatterParts(p, dt, outer, rows, count, inner, parts)
	}
	pol := scatterPolicies.On(dev)
	columns := min(inner, pol.tile/dt.Size())
	across := kernels.CeilDiv(inner, columns)
	fill := max(kernels.CeilDiv(rows*across*outer, pol.blocks*int64(dev.SMs)), 1) // rows of a tile of which there are enough
	height := min(max(pol.tile/(columns*dt.Size()), 1), fill, scatterHeight, rows)
	tiles := across * kernels.CeilDiv(rows, height)
	deep := min(max(kernels.CeilDiv(tiles*outer, pol.blocks*int64(dev.SMs)), 1), outer)
	blocks := tiles * kernels.CeilDiv(outer, deep)
	if err := kernels.CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	s := scatterSplit{starts: kernels.In(1), list: kernels.In(1), heavy: kernels.In(1)}
	heavyAcross := kernels.CeilDiv(inner, heavyColumns)
	items := heavyAcross * outer * kernels.CeilDiv(count, pol.many) // of scatter_heavy, at most
	split := dev.Major > 0 && count >= pol.split && max(rows, items) < 1<<31
	if split {
		s = appendSplitIndices(p, pol, rows, count, height)
	}
	p.Launch(scatterKernels[dt][0], int(blocks), indicesBlock, kernels.In(0), kernels.In(1), kernels.At(kernels.Out, 0), s.starts, s.list, s.heavy, s.parts, s.bandRows, s.many,
		outer, rows, count, inner, int32(height), int32(columns), deep, int32(tiles/across), int32(across))
	if split {
		shared := min(int64(dev.SharedOptin), heavyHeld*kernels.Int32.Size()+pol.panels)
		panel := (shared - heavyHeld*kernels.Int32.Size()) / heavyStages
		p.Launch(scatterKernels[dt][1], int(min(max(items, 1), int64(dev.SMs)*2)), indicesBlock, kernels.In(0), kernels.In(1), kernels.At(kernels.Out, 0), s.starts, s.list, s.heavy, s.parts,
			s.bandRows, int32(panel/(heavyColumns*dt.Size())), int32(heavyAcross), int32(outer), rows, count, inner).Shared = int(shared)
	}
	return p, nil
}

// scatterSplit is where the indices of each band of rows are: see split.cu.
type scatterSplit struct {
	starts, list, heavy   kernels.Ref
	parts, bandRows, many int32 // 0 where they are not split
}

// appendSplitIndices appends the launches that split the indices among bands, each of some tiles of
// that many rows.
func appendSplitIndices(p *kernels.Plan, pol scatterPolicy, rows, count, height int64) scatterSplit {
	bandRows := kernels.CeilDiv(kernels.CeilDiv(rows, height), splitBands) * height
	bands := kernels.CeilDiv(rows, bandRows)
	each := (max(kernels.CeilDiv(count, pol.counts/bands), pol.part) + 31) &^ 31
	parts, many := kernels.CeilDiv(count, each), max(pol.many, count/pol.share)
	s := scatterSplit{p.Workspace((bands*parts + 1) * kernels.Int32.Size()), p.Workspace(2 * count * kernels.Int32.Size()), p.Workspace((1 + count/many) * kernels.Int32.Size()),
		int32(parts), int32(bandRows), int32(many)}
	blocks := int(kernels.CeilDiv(parts, splitWarps))
	args := []any{count, rows, int32(bandRows), int32(bands), int32(parts), int32(each)}
	p.Launch(splitCount, blocks, 32*splitWarps, append([]any{kernels.In(1), s.starts, s.heavy}, args...)...)
	p.Launch(splitScan, 1, scanBlock, s.starts, int32(bands*parts))
	p.Launch(splitPlace, blocks, 32*splitWarps, append([]any{kernels.In(1), s.starts, s.list}, args...)...)
	return s
}

// splitting is the arguments that the kernels which split have in common, from argument i on.
func splitting(c kernels.Call, i int) (count, rows, bandRows, parts, each int64) {
	return c.Int(i), c.Int(i + 1), c.Int(i + 2), c.Int(i + 4), c.Int(i + 5)
}

func splitCountBody(c kernels.Call) {
	indices, counts, heavy := kernels.Slice[int64](c, 0), kernels.Slice[int32](c, 1), kernels.Slice[int32](c, 2)
	count, rows, bandRows, parts, each := splitting(c, 3)
	clear(counts[:c.Int(6)*parts])
	heavy[0] = 0
	for k, v := range indices[:count] {
		if v >= 0 && v < rows {
			counts[v/bandRows*parts+int64(k)/each]++
		}
	}
}

func splitScanBody(c kernels.Call) {
	counts, n := kernels.Slice[int32](c, 0), c.Int(1)
	sum := int32(0)
	for i, x := range counts[:n] {
		counts[i], sum = sum, sum+x
	}
	counts[n] = sum
}

func splitPlaceBody(c kernels.Call) {
	indices, starts, list := kernels.Slice[int64](c, 0), kernels.Slice[int32](c, 1), kernels.Slice[int32](c, 2)
	count, rows, bandRows, parts, each := splitting(c, 3)
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

// scatterHeavyBody does nothing: scatterBody does all rows.
func scatterHeavyBody(kernels.Call) {}

// scatterBody is the Go body: the columns are shared among goroutines. It needs no list of the
// indices of a tile.
func scatterBody[T kernels.Float](c kernels.Call) {
	g, indices, out := kernels.Slice[T](c, 0), kernels.Slice[int64](c, 1), kernels.Slice[T](c, 2)
	outer, rows, count, inner := c.Int(9), c.Int(10), c.Int(11), c.Int(12)
	kernels.Parallel(outer*inner, max(kernels.Grain/(count+rows), 1), func(lo, hi int64) {
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
