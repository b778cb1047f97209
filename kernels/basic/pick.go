package basic

import (
	"cmp"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var (
	// pickKernels are the kernels by bytes of an element.
	pickKernels = map[int64]*kernels.Kernel{
		1: own.Kernel("pick", "pick_b8", pickBody[uint8]),
		2: own.Kernel("pick", "pick_b16", pickBody[uint16]),
		4: own.Kernel("pick", "pick_b32", pickBody[uint32]),
		8: own.Kernel("pick", "pick_b64", pickBody[int64]),
	}
	pickAdjoint = own.Pair("pick", "pick_adjoint", pickAdjointBody[float32], pickAdjointBody[float64])
)

type pickArgs struct {
	X              kernels.Ref
	Indices        indexArgs
	Out            kernels.Ref
	Elements, Rows int64
	Inner, Slice   wideDivide // elements of a row; count rows
}

type pickAdjointArgs struct {
	G                         kernels.Ref
	Indices                   indexArgs
	Out                       kernels.Ref
	Warps, Rows, Count, Inner int64
	TileRows                  int64 `arg:"int32"`
	TilesDown, TilesAcross    int64
}

// pickPolicy tunes the adjoint of Pick.
type pickPolicy struct {
	warps            int64 // of a block, at most 8
	minTile, maxTile int64 // elements of a warp's tile: as many as the warp has indices to go through, within these
}

var pickPolicies = kernels.Measured[pickPolicy]{
	// H100, float32, indices of int64                    us   PyTorch
	// 1 of 50304, 8192 rows                             505       514
	// 50 of 50304, 8192 rows                            521       541
	// 4096 of 4096, 4096 rows                           279         -
	// 512 of 512, 64 x 512 columns                      517         -
	{90, pickPolicy{warps: 4, minTile: 1 << 10, maxTile: 1 << 12}},
}

// Pick plans out[o][k][c] = x[o][indices[o][k][c]][c], the elements of x at indices along an axis: out has the shape of x, but count elements along the
// axis. The inputs are x and the indices, of the shape of out and of type index: Uint8, Int32, Int64 or Int. Where an index is outside the axis, out is 0.
func Pick(dev kernels.Device, dt, index kernels.Dtype, shape []int, axis int, count int64) (*kernels.Plan, error) {
	p, outer, rows, inner, err := newIndexed("pick", dt, index, shape, axis, count)
	elements, each := outer*count*inner, index.Size()
	if p.Inputs, p.Out = []int64{outer * rows * inner * dt.Size(), elements * each}, elements*dt.Size(); err != nil || elements == 0 {
		return p.Or(err)
	}
	p.Accessed = []int64{min(p.Inputs[0], p.Out), p.Inputs[1], p.Out}
	blocks := kernels.CeilDiv(elements, gatherEach*indicesBlock)
	p.Launch(pickKernels[dt.Size()], int(blocks), indicesBlock,
		pickArgs{kernels.In(0), indexArgs{kernels.In(1), each}, kernels.At(kernels.Out, 0), elements, rows, wideDivideBy(inner), wideDivideBy(count * inner)})
	return p.Or(kernels.CheckGrid(blocks))
}

// PickAdjoint plans the adjoint of [Pick]: out has the shape, and at [o][v][c] the sum of g[o][k][c] over the k with indices[o][k][c] = v, in the order of k, 0 if
// there are none. The inputs are g, with count elements along the axis, and the indices, of the shape of g and of type index; indices outside the axis are
// ignored. Types are Float32 and Float64.
func PickAdjoint(dev kernels.Device, dt, index kernels.Dtype, shape []int, axis int, count int64) (*kernels.Plan, error) {
	p, outer, rows, inner, err := newIndexed("pick_adjoint", dt, index, shape, axis, count)
	elements, each := outer*count*inner, index.Size()
	p.Inputs, p.Out, p.Flops = []int64{elements * dt.Size(), elements * each}, outer*rows*inner*dt.Size(), elements
	if err = cmp.Or(err, checkFloats(dev, dt)); err != nil || p.Out == 0 {
		return p.Or(err)
	}
	if outer == 1 && inner == 1 && rows > scatterPartsRows { // in the same order, and by all blocks
		return ScatterBy(dev, dt, index, shape, axis, count)
	}
	pol := pickPolicies.On(dev)
	width := min(inner, 32)
	tile := min(max(arith.Pow2(count*width), pol.minTile), pol.maxTile*kernels.Float32.Size()/dt.Size()) / width // rows
	tile = min(tile, rows)
	down, across := kernels.CeilDiv(rows, tile), kernels.CeilDiv(inner, 32)
	warps := outer * down * across
	inBlock := min(pol.warps, warps, max(int64(dev.SharedOptin)/(tile*width*dt.Size()), 1))
	blocks := kernels.CeilDiv(warps, inBlock)
	p.Launch(pickAdjoint[dt], int(blocks), int(32*inBlock), pickAdjointArgs{kernels.In(0), indexArgs{kernels.In(1), each}, kernels.At(kernels.Out, 0),
		warps, rows, count, inner, tile, down, across}).Shared = int(inBlock * tile * width * dt.Size())
	return p.Or(kernels.CheckGrid(blocks))
}

func pickBody[T kernels.Element](c kernels.Call) {
	args := kernels.Args[pickArgs](c)
	x, indices, out := kernels.Slice[T](c, args.X), args.Indices.load(c, args.Elements), kernels.Slice[T](c, args.Out)
	rows, inner, slice := args.Rows, args.Inner.D, args.Slice.D
	kernels.Parallel(args.Elements, kernels.Grain, func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			if v := indices[i]; v >= 0 && v < rows {
				out[i] = x[(i/slice*rows+v)*inner+i%inner]
			} else {
				out[i] = 0
			}
		}
	})
}

func pickAdjointBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[pickAdjointArgs](c)
	rows, count, inner := args.Rows, args.Count, args.Inner
	outer := args.Warps / (args.TilesDown * args.TilesAcross)
	g, indices, out := kernels.Slice[T](c, args.G), args.Indices.load(c, outer*count*inner), kernels.Slice[T](c, args.Out)
	kernels.Parallel(outer, max(kernels.Grain/((rows+count)*inner), 1), func(lo, hi int64) {
		clear(out[lo*rows*inner : hi*rows*inner])
		for i := lo * count * inner; i < hi*count*inner; i++ {
			if v := indices[i]; v >= 0 && v < rows {
				out[(i/(count*inner)*rows+v)*inner+i%inner] += g[i]
			}
		}
	})
}
