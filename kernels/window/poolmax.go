package window

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var poolMaxKernel = own.Pair("poolmax", "poolmax", poolMaxBody[float32], poolMaxBody[float64])

type poolMaxArgs struct {
	In, Out                             kernels.Ref
	Planes                              int64
	Axes                                axes
	Group, Rows, TilesDown, TilesAcross int64 `arg:"int32"`
	High, Across, Down, Columns         arith.Divide
}

const (
	poolMaxBeside = 4        // windows of a thread if the stride is 1: as in poolmax.cu
	poolMaxShared = 24 << 10 // bytes of a tile: several blocks share an SM
	poolMaxWide   = 128      // max columns of a tile
	poolMaxBlocks = 8        // blocks wanted for each SM
)

// newPoolMaxTile returns arguments with a tile: Rows x Columns windows of each of Group planes. The maxima are computed in two
// steps: first of parts of rows, of High rows, then of windows. A thread computes Across parts of a row, or Down windows of a column.
// newPoolMaxTile returns false if reducing each window separately takes fewer comparisons, or if no tile fits into shared memory.
func newPoolMaxTile(dev kernels.Device, dt kernels.Dtype, planes int64, w Windows) (t poolMaxArgs, ok bool) {
	alone := w.elements()
	if shared := int64(w.Columns.Size)*int64(min(w.Rows.Stride, w.Rows.Size)) + int64(w.Rows.Size); shared > alone*3/4 {
		return t, false
	}
	room, down, across := poolMaxShared/dt.Size(), int64(w.Rows.Out()), int64(w.Columns.Out()) // windows
	unit := func(a WindowAxis) int64 {
		if a.Stride == 1 && a.Size >= poolMaxBeside-1 {
			return poolMaxBeside
		}
		return 1
	}
	units := func(a WindowAxis, n int64) int64 { return kernels.CeilDiv(n, unit(a)) * unit(a) } // n, in whole units
	columns, high := units(w.Columns, evenly(across, poolMaxWide)), int64(0)
	for t.Rows = units(w.Rows, down); ; t.Rows = units(w.Rows, t.Rows/2) {
		high = (t.Rows-1)*int64(w.Rows.Stride) + int64(w.Rows.Size)
		if high*columns <= room {
			break
		}
		if t.Rows == unit(w.Rows) {
			return t, false
		}
	}
	t.Group = 1
	if t.Rows >= down && columns >= across {
		t.Group = max(min(room/(high*columns), planes/(poolMaxBlocks*max(int64(dev.SMs), 1))), 1)
	}
	t.In, t.Out, t.Planes, t.Axes = kernels.In(0), kernels.At(kernels.Out, 0), planes, w.axes()
	t.TilesDown, t.TilesAcross = kernels.CeilDiv(down, t.Rows), kernels.CeilDiv(across, columns)
	t.High, t.Columns = arith.DivideBy(high), arith.DivideBy(columns)
	t.Across, t.Down = arith.DivideBy(columns/unit(w.Columns)), arith.DivideBy(t.Rows/unit(w.Rows))
	return t, true
}

// appendPoolMax appends the launch of a kernel of tiles.
func appendPoolMax(p *kernels.Plan, dt kernels.Dtype, t poolMaxArgs) (*kernels.Plan, error) {
	if p.Out == 0 {
		return p, nil
	}
	blocks := kernels.CeilDiv(t.Planes, t.Group) * t.TilesDown * t.TilesAcross
	p.Launch(poolMaxKernel[dt], int(blocks), poolThreads, t).Shared = int(t.Group * t.High.D * t.Columns.D * dt.Size())
	return p.Or(kernels.CheckGrid(blocks))
}

func poolMaxBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[poolMaxArgs](c)
	maxPool[T](c, args.In, args.Out, args.Planes, args.Axes)
}
