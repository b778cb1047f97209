package window

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var poolMaxKernel = [...]*kernels.Kernel{kernels.Float32: poolMaxOf[float32](kernels.Float32), kernels.Float64: poolMaxOf[float64](kernels.Float64)}

func poolMaxOf[T kernels.Float](dt kernels.Dtype) *kernels.Kernel {
	return own.Kernel("poolmax", fmt.Sprintf("poolmax_%v", dt), func(c kernels.Call) {
		args := kernels.Args[poolMaxArgs](c)
		maxPool[T](c, args.In, args.Out, args.Planes, args.Axes)
	})
}

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

// poolMaxTile is a tile of poolmax.cu: rows x columns windows of each of some planes. The maxima are computed in two
// steps: first of parts of rows, of high rows, then of windows. A thread computes across parts of a row, or down windows of a column.
type poolMaxTile struct{ planes, rows, columns, high, across, down int64 }

// newPoolMaxTile returns the tile. It returns false if reducing each window separately takes fewer comparisons, or
// if no tile fits into shared memory.
func newPoolMaxTile(dev kernels.Device, dt kernels.Dtype, planes int64, w Windows) (t poolMaxTile, ok bool) {
	alone := w.elements()
	if shared := int64(w.Columns.Size)*int64(min(w.Rows.Stride, w.Rows.Size)) + int64(w.Rows.Size); shared > alone*3/4 {
		return t, false
	}
	room := poolMaxShared / dt.Size()
	unit := func(a WindowAxis) int64 {
		if a.Stride == 1 && a.Size >= poolMaxBeside-1 {
			return poolMaxBeside
		}
		return 1
	}
	units := func(a WindowAxis, n int64) int64 { return kernels.CeilDiv(n, unit(a)) * unit(a) } // n, in whole units
	t.columns = units(w.Columns, evenly(int64(w.Columns.Out()), poolMaxWide))
	for t.rows = units(w.Rows, int64(w.Rows.Out())); ; t.rows = units(w.Rows, t.rows/2) {
		t.high = (t.rows-1)*int64(w.Rows.Stride) + int64(w.Rows.Size)
		if t.high*t.columns <= room {
			break
		}
		if t.rows == unit(w.Rows) {
			return t, false
		}
	}
	t.planes = 1
	if t.rows >= int64(w.Rows.Out()) && t.columns >= int64(w.Columns.Out()) {
		t.planes = max(min(room/(t.high*t.columns), planes/(poolMaxBlocks*max(int64(dev.SMs), 1))), 1)
	}
	t.across, t.down = t.columns/unit(w.Columns), t.rows/unit(w.Rows)
	return t, true
}

// appendPoolMax appends the launch of a kernel of tiles.
func appendPoolMax(p *kernels.Plan, dt kernels.Dtype, planes int64, w Windows, t poolMaxTile) (*kernels.Plan, error) {
	if p.Out == 0 {
		return p, nil
	}
	tilesDown, tilesAcross := kernels.CeilDiv(int64(w.Rows.Out()), t.rows), kernels.CeilDiv(int64(w.Columns.Out()), t.columns)
	blocks := kernels.CeilDiv(planes, t.planes) * tilesDown * tilesAcross
	if err := kernels.CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", p.Op, err)
	}
	p.Launch(poolMaxKernel[dt], int(blocks), poolThreads, poolMaxArgs{kernels.In(0), kernels.At(kernels.Out, 0), planes, w.axes(), t.planes, t.rows, tilesDown, tilesAcross,
		arith.DivideBy(t.high), arith.DivideBy(t.across), arith.DivideBy(t.down), arith.DivideBy(t.columns)}).Shared = int(t.planes * t.high * t.columns * dt.Size())
	return p, nil
}
