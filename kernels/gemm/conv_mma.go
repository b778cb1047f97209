package gemm

import (
	"fmt"
	"iter"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// convTile is a size of the tiles of conv_mma.cu: m filters by n pixels, or by n columns of filters.
type convTile struct {
	m, n, slices int64              // slices: of a stage
	threads      int64              // of a block
	resident     int64              // blocks of an SM
	costs        [2]convTileCost    // of windows and of filters
	kernels      [2]*kernels.Kernel // of windows and of filters
}

// convTileCost has times by the model, in us: of a block of a full SM, of a K slice of such a block, and of a K slice of a block that is alone.
type convTileCost struct{ block, step, alone float64 }

const (
	convTileStep   = 32      // terms of a K slice
	convTileStart  = 2.5     // us of a launch
	convTileSplits = 512     // the most splits
	convTileMost   = 1 << 28 // elements along an axis: rows and columns of images are added to those of taps
	convTileAcross = 4       // outputs of an image and a filter up to which those of other filters are nearer in memory than those of other images
)

var convTiles = []convTile{
	{64, 64, 2, 256, 2, [2]convTileCost{{1.55, 0.57, 1}, {1.17, 0.68, 1.16}}, [2]*kernels.Kernel{convTileKernel("windows"), convTileKernel("filters")}},
	{64, 128, 1, 256, 2, [2]convTileCost{{1.48, 0.81, 1.38}, {1.85, 1, 1.7}}, [2]*kernels.Kernel{convTileKernel("windows_wide"), convTileKernel("filters_wide")}},
	{32, 32, 4, 128, 3, [2]convTileCost{{0.65, 0.26, 0.72}, {0.57, 0.34, 0.94}}, [2]*kernels.Kernel{convTileKernel("windows_few"), convTileKernel("filters_few")}},
	{16, 128, 2, 256, 2, [2]convTileCost{{1.22, 0.54, 0.87}, {1.06, 0.73, 1.23}}, [2]*kernels.Kernel{convTileKernel("windows_thin"), convTileKernel("filters_thin")}},
}

func convTileKernel(name string) *kernels.Kernel {
	return own.Kernel("conv_mma", "conv_mma_"+name, convTileBody(strings.HasPrefix(name, "filters")))
}

// convTileArgs are the arguments of conv_mma.cu.
type convTileArgs struct {
	convArgs
	Across bool  // whether rows of the matrix are contiguous, and terms are not
	Kind   int64 `arg:"int32"` // TF32, BF16, F16
}

// convTiling is a tile with a number of splits of K, which another launch adds up.
type convTiling struct {
	*convTile
	splits int64
}

// entry names the kernel and the number of splits.
func (c convTiling) entry(v Conv) string {
	return fmt.Sprintf("%s[%d]", c.kernels[v.Result/ConvFilters].Entry, c.splits)
}

// tilings yields the ways in which conv_mma.cu computes the convolution on a device, and their times by the model.
func (v Conv) tilings(dev kernels.Device) iter.Seq2[convTiling, float64] {
	return func(yield func(convTiling, float64) bool) {
		if !isHopper(dev) || v.Dtype != kernels.Float32 || v.Round == kernels.FullPrecision || v.depthwiseGroups() || v.tensorAlone() {
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
			for splits := int64(1); splits == 1 || splits <= convTileSplits && a.K >= splits*convTileStep; splits *= 2 {
				if c := (convTiling{t, splits}); !yield(c, c.time(v, a, dev)) {
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
	cost, slices := c.costs[v.Result/ConvFilters], float64(kernels.CeilDiv(kernels.CeilDiv(a.K, c.splits), convTileStep))
	busy := kernels.CeilDiv(c.tiles(a)*c.splits, int64(dev.SMs)) // blocks of the busiest SM
	us := convTileStart + float64(busy)*cost.block + slices*max(float64(kernels.CeilDiv(busy, c.resident))*cost.alone, float64(busy)*cost.step)
	if c.splits > 1 {
		us += convLaunch + float64(4*a.Count*(c.splits+1))/convPrepareBytes
	}
	return us
}

// tilesAcross reports whether lanes of a warp load rows of the matrix, and columns of filters, and not terms, which are not contiguous.
func (v Conv) tilesAcross() bool {
	if v.Result == ConvFilters {
		sizes := v.elements()
		return v.Rows.Out()*v.Columns.Out() <= convTileAcross && max(sizes[ConvOutput], sizes[ConvImages]) < 1<<31
	}
	return v.Result == ConvImages && v.Rows.Size*v.Columns.Size == 1
}

// emit appends the launches.
func (c convTiling) emit(p *kernels.Plan, v Conv, args convArgs) error {
	a, panels := convTileArgs{convArgs: args, Across: v.tilesAcross()}, int64(1)
	switch v.Round {
	case kernels.TF32:
		panels = 2
	case kernels.BF16:
		a.Kind = 1
	case kernels.F16:
		a.Kind = 2
	}
	a.Chunk = arith.RoundUp(kernels.CeilDiv(a.K, c.splits), convTileStep)
	splits := kernels.CeilDiv(a.K, a.Chunk)
	blocks := c.tiles(args) * splits
	if err := kernels.CheckGrid(blocks); err != nil {
		return err
	}
	if p.Precision = v.Round; splits > 1 {
		a.Out = p.Workspace(splits * p.Out)
	}
	const stages, panel = 2, 64 // bytes of a line
	p.Launch(c.kernels[v.Result/ConvFilters], int(blocks), int(c.threads), a).Shared = int(max(stages*c.slices*panels*(c.m+c.n)*panel, 4*c.m*(c.n+8)))
	sumSplits(p, v.Dtype, a.Count, a.Out, splits)
	return nil
}

// convTileBody rounds the operands.
func convTileBody(filters bool) func(kernels.Call) {
	return func(c kernels.Call) {
		a := kernels.Args[convTileArgs](c)
		by := [...]kernels.Precision{kernels.TF32, kernels.BF16, kernels.F16}[a.Kind]
		body := windowsIn[float32]
		if filters {
			body = filtersIn[float32]
		}
		body(c, a.convArgs, by, nil)
	}
}
