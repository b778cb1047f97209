package gemm

import (
	"fmt"
	"iter"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// convTile is a size of the tiles of conv_mma.cu: m filters by n pixels, or by n columns of filters.
type convTile struct {
	m, n     int64
	shared   int64                 // bytes: two stages of K slices, and the sums
	resident int64                 // blocks of an SM
	costs    [2]convTileCost       // of windows and of filters
	kernels  [2][2]*kernels.Kernel // of windows and of filters, by whether blocks of a cluster join splits
}

// convTileCost has times by the model, in us: of a block of a full SM, of a K slice of such a block, and of a K slice of a block that is alone.
type convTileCost struct{ block, step, alone float64 }

const (
	convTileStep    = 32        // terms of a K slice
	convTileThreads = 128       // of a block
	convTileCluster = 8         // blocks
	convTileStart   = 2.5       // us of a launch
	convTileJoin    = 0.6       // us in which the blocks of a cluster join splits
	convTileSplits  = 64        // the most splits that another launch adds up
	convTileMost    = 1<<15 - 1 // elements along an axis: a lane's tap has 16 bits for each
)

var convTiles = []convTile{
	newConvTile("", 64, 64, 4, convTileCost{0.8, 0.17, 0.45}, convTileCost{0.8, 0.17, 0.45}),
	newConvTile("_few", 32, 32, 7, convTileCost{0.4, 0.08, 0.35}, convTileCost{0.4, 0.08, 0.35}),
	newConvTile("_thin", 16, 128, 3, convTileCost{0.6, 0.13, 0.4}, convTileCost{0.6, 0.13, 0.4}),
}

func newConvTile(name string, m, n, resident int64, windows, filters convTileCost) convTile {
	pair := func(entry string, filters bool) (list [2]*kernels.Kernel) {
		for i, joined := range []string{"", "joined_"} {
			list[i] = own.Kernel("conv_mma", "conv_mma_"+joined+entry+name, convTileBody(filters))
		}
		return list
	}
	return convTile{m, n, 2*2*(m+n)*64 + 4*m*(n+8), resident, [2]convTileCost{windows, filters}, [2][2]*kernels.Kernel{pair("windows", false), pair("filters", true)}}
}

// convTileArgs are the arguments of conv_mma.cu.
type convTileArgs struct {
	convArgs
	Parts  int64 `arg:"int32"` // splits of K that the blocks of a cluster join
	Across bool  // whether rows of the matrix are contiguous, and terms are not
	Kind   int64 `arg:"int32"` // TF32, BF16, F16
}

// convTiling is a tile with a number of splits of K that a cluster joins, parts, or that another launch adds up.
type convTiling struct {
	*convTile
	parts, splits int64
}

// entry names the kernel and its splits.
func (c convTiling) entry(v Conv) string {
	return fmt.Sprintf("%s[%d %d]", c.kernel(v).Entry, c.parts, c.splits)
}

func (c convTiling) kernel(v Conv) *kernels.Kernel {
	return c.kernels[v.Result/ConvFilters][arith.Flag(c.parts > 1)]
}

// tilings yields the ways in which conv_mma.cu computes the convolution on a device, and their times by the model.
func (v Conv) tilings(dev kernels.Device) iter.Seq2[convTiling, float64] {
	return func(yield func(convTiling, float64) bool) {
		if !isHopper(dev) || v.Dtype != kernels.Float32 || v.Round == kernels.FullPrecision || v.Groups > 1 && v.Groups == v.Channels && v.Groups == v.Filters || v.ChannelsLast != [2]bool{} {
			return
		}
		for _, a := range []ConvAxis{v.Rows, v.Columns} {
			if max(a.In, a.Out(), a.reach()) > convTileMost {
				return
			}
		}
		a := v.arguments()
		for i := range convTiles {
			t := &convTiles[i]
			for parts := int64(1); parts <= convTileCluster; parts *= 2 {
				if c := (convTiling{t, parts, 1}); (parts == 1 || a.K >= parts*convTileStep) && !yield(c, c.time(v, a, dev)) {
					return
				}
			}
			for splits := int64(2); splits <= convTileSplits && a.K >= 2*splits*convTileStep; splits *= 2 {
				if c := (convTiling{t, 1, splits}); !yield(c, c.time(v, a, dev)) {
					return
				}
			}
		}
	}
}

// tiles returns the tiles of all groups and phases.
func (c convTiling) tiles(a convArgs) int64 {
	return a.Groups * a.Rows.Phases * a.Columns.Phases * kernels.CeilDiv(a.M, c.m) * kernels.CeilDiv(a.N, c.n)
}

// time returns the time by the model.
func (c convTiling) time(v Conv, a convArgs, dev kernels.Device) float64 {
	cost, slices := c.costs[v.Result/ConvFilters], float64(kernels.CeilDiv(kernels.CeilDiv(a.K, c.parts*c.splits), convTileStep))
	busy := kernels.CeilDiv(c.tiles(a)*c.parts*c.splits, int64(dev.SMs)) // blocks of the busiest SM
	us := convTileStart + float64(busy)*cost.block + slices*max(float64(kernels.CeilDiv(busy, c.resident))*cost.alone, float64(busy)*cost.step)
	if c.parts > 1 {
		us += convTileJoin
	}
	if c.splits > 1 {
		us += convLaunch + float64(4*a.Count*(c.splits+1))/convPrepareBytes
	}
	return us
}

// emit appends the launches.
func (c convTiling) emit(p *kernels.Plan, v Conv, args convArgs) error {
	a := convTileArgs{convArgs: args, Parts: c.parts, Across: v.Result == ConvImages && v.Rows.Size*v.Columns.Size == 1}
	switch v.Round {
	case kernels.BF16:
		a.Kind = 1
	case kernels.F16:
		a.Kind = 2
	}
	a.Chunk = arith.RoundUp(kernels.CeilDiv(a.K, c.parts*c.splits), convTileStep)
	blocks, splits := c.tiles(args)*c.parts, int64(1)
	if c.parts > 1 {
		blocks = arith.RoundUp(blocks, convTileCluster)
	} else if splits = kernels.CeilDiv(a.K, a.Chunk); splits > 1 {
		a.Out, blocks = p.Workspace(splits*p.Out), blocks*splits
	}
	if err := kernels.CheckGrid(blocks); err != nil {
		return err
	}
	p.Precision = v.Round
	p.Launch(c.kernel(v), int(blocks), convTileThreads, a).Shared = int(c.shared)
	if splits > 1 {
		problem{Product: Product{Dtype: v.Dtype, Batch: 1, M: 1, N: a.Count}}.combine(p, a.Out, splits)
	}
	return nil
}

// convTileBody rounds the operands.
func convTileBody(filters bool) func(kernels.Call) {
	return func(c kernels.Call) {
		a := kernels.Args[convTileArgs](c)
		if a.Parts > 1 {
			a.Chunk = a.K
		}
		by := [...]kernels.Precision{kernels.TF32, kernels.BF16, kernels.F16}[a.Kind]
		body := windowsIn[float32]
		if filters {
			body = filtersIn[float32]
		}
		body(c, a.convArgs, by, nil)
	}
}
