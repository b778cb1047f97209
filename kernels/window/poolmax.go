package window

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var poolMaxKernel = [...]*kernels.Kernel{kernels.Float32: poolMaxOf[float32](kernels.Float32), kernels.Float64: poolMaxOf[float64](kernels.Float64)}

func poolMaxOf[T kernels.Float](dt kernels.Dtype) *kernels.Kernel {
	return own.Kernel("poolmax", fmt.Sprintf("poolmax_%v", dt), maxPoolBody[T](func(c kernels.Call) int64 { return c.Int(2) }))
}

const (
	poolMaxBeside = 4        // windows of a thread, where they are by 1: as in poolmax.cu
	poolMaxShared = 24 << 10 // bytes of a tile: several blocks share a multiprocessor
	poolMaxWide   = 128      // columns of a tile, at most
	poolMaxBlocks = 8        // blocks wanted for each multiprocessor
)

// poolMaxTile is a tile of poolmax.cu: rows x columns windows of each of some planes. Their greatest elements are found in two
// steps: first in parts of rows, high rows of them, then in windows. across is how many parts of a row a thread
// finds, down how many windows of a column.
type poolMaxTile struct{ planes, rows, columns, high, across, down int64 }

// newPoolMaxTile returns the tile. It returns false where it takes fewer comparisons to go through each window alone, and
// where no tile fits into shared memory.
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
	args := append([]any{kernels.In(0), kernels.At(kernels.Out, 0), planes}, w.arguments()...)
	for _, n := range []int64{t.planes, t.rows, tilesDown, tilesAcross} {
		args = append(args, int32(n))
	}
	for _, d := range []int64{t.high, t.across, t.down, t.columns} {
		args = append(args, arith.Divide(d)...)
	}
	p.Launch(poolMaxKernel[dt], int(blocks), poolThreads, args...).Shared = int(t.planes * t.high * t.columns * dt.Size())
	return p, nil
}
