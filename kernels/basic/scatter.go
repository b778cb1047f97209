package basic

import (
	"cmp"

	"github.com/stheno-ml/stheno/kernels"
)

var (
	scatterKernel = own.Pair("scatter", "scatter", scatterBody[float32], scatterBody[float64])
	scatterHeavy  = own.Pair("scatter", "scatter_heavy", nothing, nothing) // rows of many indices

	splitCount = own.Kernel("split", "split_count", splitCountBody)
	splitScan  = own.Kernel("split", "split_scan", splitScanBody)
	splitPlace = own.Kernel("split", "split_place", splitPlaceBody)
)

// Constants of scatter.cu and split.cu.
const (
	scatterHeight = 512 // max rows of a tile
	splitBands    = 128 // max bands of rows
	splitWarps    = 4   // of a block
	scanBlock     = 1024
	heavyColumns  = 32
	heavyStages   = 8
	heavyHeld     = 8192 // indices in the list of a block
)

type scatterArgs struct {
	G, Indices, Out kernels.Ref
	scatterSplit
	Many                      int64 `arg:"int32"`
	Outer, Rows, Count, Inner int64
	TileRows, TileColumns     int64 `arg:"int32"`
	TileOuter                 int64
	TilesDown, TilesAcross    int64 `arg:"int32"`
}

type scatterHeavyArgs struct {
	G, Indices, Out kernels.Ref
	scatterSplit
	Deep, TilesAcross, Outer int64 `arg:"int32"`
	Rows, Count, Inner       int64
}

// scatterSplit is the result of splitting the indices among bands of rows, as in split.cu. Parts is 0 where they are not split.
type scatterSplit struct {
	Starts, List, Heavy kernels.Ref
	Parts, BandRows     int64 `arg:"int32"`
}

// splitArgs are the arguments of split_count and split_place, which write to To the heavy rows and the list.
type splitArgs struct {
	Indices, Starts, To          kernels.Ref
	Count, Rows                  int64
	BandRows, Bands, Parts, Each int64 `arg:"int32"`
}

type splitScanArgs struct {
	Counts kernels.Ref
	N      int64 `arg:"int32"`
}

// scatterPolicy tunes Scatter.
type scatterPolicy struct {
	tile       int64 // bytes
	blocks     int64 // wanted for each SM
	splitMin   int64 // min indices for splitting them among bands first
	partMin    int64 // min indices of a warp that splits
	maxCounts  int64 // max parts times bands: one block scans that many counts
	heavyMin   int64 // min indices of a heavy row, which is left to blocks of a few columns
	heavyShare int64 // a heavy row has at least 1 / share of all indices, too
	panels     int64 // bytes of the panels of a block of heavy rows, if the device has as many
}

var scatterPolicies = kernels.Measured[scatterPolicy]{
	{90, scatterPolicy{tile: 64 << 10, blocks: 8, splitMin: 512, partMin: 256, maxCounts: 1 << 15, heavyMin: 256, heavyShare: 512, panels: 64 << 10}},
}

// Scatter plans the adjoint of [Gather]: out has the shape, and at each index along the axis the sum of the rows of g with this index, 0 if
// there are none. Rows are summed in their order, or by parts ([ScatterParts]). The inputs are g, with count elements along the axis,
// and count indices of Int64; indices outside the axis are ignored. Types are Float32 and Float64.
func Scatter(dev kernels.Device, dt kernels.Dtype, shape []int, axis int, count int64) (*kernels.Plan, error) {
	return ScatterBy(dev, dt, kernels.Int64, shape, axis, count)
}

// ScatterBy is [Scatter] with indices of type index: Uint8, Int32, Int64 or Int.
func ScatterBy(dev kernels.Device, dt, index kernels.Dtype, shape []int, axis int, count int64) (*kernels.Plan, error) {
	p, outer, rows, inner, err := newIndexed("scatter", dt, index, shape, axis, count)
	each := index.Size()
	p.Inputs, p.Out, p.Flops = []int64{outer * count * inner * dt.Size(), count * each}, outer*rows*inner*dt.Size(), outer*count*inner
	if err = cmp.Or(err, checkFloats(dev, dt)); err != nil || p.Out == 0 {
		return p.Or(err)
	}
	indices := appendWidened(p, kernels.In(1), each, count)
	if parts := ScatterParts(outer, rows, inner, count); parts > 1 {
		return appendScatterParts(p, dt, indices, outer, rows, count, inner, parts)
	}
	if scatterRowsPolicies.On(dev).takes(dev, dt, outer, rows, inner, count) {
		appendScatterRows(p, dev, dt, kernels.In(0), indices, rows, inner, count, 0)
		return p, nil
	}
	pol := scatterPolicies.On(dev)
	columns := min(inner, pol.tile/dt.Size())
	across := kernels.CeilDiv(inner, columns)
	fill := max(kernels.CeilDiv(rows*across*outer, pol.blocks*int64(dev.SMs)), 1) // max rows of a tile with enough blocks
	height := min(max(pol.tile/(columns*dt.Size()), 1), fill, scatterHeight, rows)
	tiles := across * kernels.CeilDiv(rows, height)
	deep := min(max(kernels.CeilDiv(tiles*outer, pol.blocks*int64(dev.SMs)), 1), outer)
	blocks := tiles * kernels.CeilDiv(outer, deep)
	args := scatterArgs{G: kernels.In(0), Indices: indices, Out: kernels.At(kernels.Out, 0),
		scatterSplit: scatterSplit{Starts: indices, List: indices, Heavy: indices},
		Outer:        outer, Rows: rows, Count: count, Inner: inner,
		TileRows: height, TileColumns: columns, TileOuter: deep, TilesDown: tiles / across, TilesAcross: across}
	heavyAcross := kernels.CeilDiv(inner, heavyColumns)
	items := heavyAcross * outer * kernels.CeilDiv(count, pol.heavyMin) // max of scatter_heavy
	split := dev.Kind == kernels.GPU && count >= pol.splitMin && max(rows, items) < 1<<31
	if split {
		args.Many = max(pol.heavyMin, count/pol.heavyShare)
		args.scatterSplit = appendSplitIndices(p, pol, indices, rows, count, height, args.Many)
	}
	p.Launch(scatterKernel[dt], int(blocks), indicesBlock, args)
	if split {
		shared := min(int64(dev.SharedOptin), heavyHeld*kernels.Int32.Size()+pol.panels)
		panel := (shared - heavyHeld*kernels.Int32.Size()) / heavyStages
		p.Launch(scatterHeavy[dt], int(min(max(items, 1), int64(dev.SMs)*2)), indicesBlock, scatterHeavyArgs{args.G, args.Indices, args.Out, args.scatterSplit,
			panel / (heavyColumns * dt.Size()), heavyAcross, outer, rows, count, inner}).Shared = int(shared)
	}
	return p.Or(kernels.CheckGrid(blocks))
}

// appendSplitIndices appends the launches that split the indices among bands of rows, each band a number of tiles of height rows. Rows of
// many indices are heavy.
func appendSplitIndices(p *kernels.Plan, pol scatterPolicy, indices kernels.Ref, rows, count, height, many int64) scatterSplit {
	bandRows := kernels.CeilDiv(kernels.CeilDiv(rows, height), splitBands) * height
	bands := kernels.CeilDiv(rows, bandRows)
	each := (max(kernels.CeilDiv(count, pol.maxCounts/bands), pol.partMin) + 31) &^ 31
	parts := kernels.CeilDiv(count, each)
	s := scatterSplit{p.Workspace((bands*parts + 1) * kernels.Int32.Size()), p.Workspace(2 * count * kernels.Int32.Size()), p.Workspace((1 + count/many) * kernels.Int32.Size()), parts, bandRows}
	blocks, args := int(kernels.CeilDiv(parts, splitWarps)), splitArgs{indices, s.Starts, s.Heavy, count, rows, bandRows, bands, parts, each}
	p.Launch(splitCount, blocks, 32*splitWarps, args)
	p.Launch(splitScan, 1, scanBlock, splitScanArgs{s.Starts, bands * parts})
	args.To = s.List
	p.Launch(splitPlace, blocks, 32*splitWarps, args)
	return s
}

func splitCountBody(c kernels.Call) {
	args := kernels.Args[splitArgs](c)
	counts, heavy := kernels.Slice[int32](c, args.Starts), kernels.Slice[int32](c, args.To)
	clear(counts[:args.Bands*args.Parts])
	heavy[0] = 0
	for k, v := range kernels.Slice[int64](c, args.Indices)[:args.Count] {
		if v >= 0 && v < args.Rows {
			counts[v/args.BandRows*args.Parts+int64(k)/args.Each]++
		}
	}
}

func splitScanBody(c kernels.Call) {
	args := kernels.Args[splitScanArgs](c)
	counts, sum := kernels.Slice[int32](c, args.Counts), int32(0)
	for i, x := range counts[:args.N] {
		counts[i], sum = sum, sum+x
	}
	counts[args.N] = sum
}

func splitPlaceBody(c kernels.Call) {
	args := kernels.Args[splitArgs](c)
	list, next := kernels.Slice[int32](c, args.To), make([]int32, args.Bands*args.Parts)
	copy(next, kernels.Slice[int32](c, args.Starts))
	for k, v := range kernels.Slice[int64](c, args.Indices)[:args.Count] {
		if v >= 0 && v < args.Rows {
			at := &next[v/args.BandRows*args.Parts+int64(k)/args.Each]
			list[2**at], list[2**at+1] = int32(k), int32(v%args.BandRows)
			*at++
		}
	}
}

// scatterBody splits the columns among goroutines. It needs no list of the indices of a tile.
func scatterBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[scatterArgs](c)
	g, indices, out := kernels.Slice[T](c, args.G), kernels.Slice[int64](c, args.Indices), kernels.Slice[T](c, args.Out)
	sumInOrder(g, indices[:args.Count], out, args.Outer, args.Rows, args.Inner)
}

// sumInOrder writes the sums of outer x len(indices) x inner elements g to outer x rows x inner elements out.
func sumInOrder[T kernels.Float](g []T, indices []int64, out []T, outer, rows, inner int64) {
	count := int64(len(indices))
	kernels.Parallel(outer*inner, max(kernels.Grain/(count+rows), 1), func(lo, hi int64) {
		for o := lo / inner; o*inner < hi; o++ {
			from, to := max(lo-o*inner, 0), min(hi-o*inner, inner)
			for v := range rows {
				at := (o*rows + v) * inner
				clear(out[at+from : at+to])
			}
			for k, v := range indices {
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
