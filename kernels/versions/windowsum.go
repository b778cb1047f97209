package versions

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/window"
)

var (
	windowSimple = pair("windowsum", "simple", window.WindowSumBody[float32], window.WindowSumBody[float64])
	windowShared = pair("windowsum", "shared", window.WindowSumBody[float32], window.WindowSumBody[float64])
)

// WindowSum plans [window.WindowSum] by version 1, one thread per output, 2, with the
// elements of a block in shared memory, or 3, the op's own. mode is WindowValid or
// WindowSame. It is an error if the device cannot run that many blocks in one launch.
func WindowSum(dev kernels.Device, dt kernels.Dtype, v int, rows, n, radius int64, mode window.WindowMode) (*kernels.Plan, error) {
	if err := check("window sum", v, 3); err != nil {
		return nil, err
	}
	if mode == window.WindowFull {
		return nil, fmt.Errorf("versions: window sum: got mode %v, want Valid or Same", mode)
	}
	p := window.WindowSum(dev, dt, rows, n, radius, mode)
	if v == 3 || p.Out == 0 {
		return p, nil
	}
	p.Launches, p.Scratch = nil, 0
	outputs, first := mode.Outputs(n, radius), int64(0)
	if mode == window.WindowSame {
		radius = min(radius, n-1) // wider windows meet no further element
		first = -radius
	}
	width := 2*radius + 1

	const block, widest = 256, 1024 // threads; elements of a window held at a time
	kernel, blocks, args := windowSimple[dt], kernels.CeilDiv(rows*outputs, block), []any{in0, out, n, outputs, width, first, rows}
	shared := int64(0)
	if v == 2 {
		piece := min(width, widest)
		kernel, blocks, args = windowShared[dt], rows*kernels.CeilDiv(outputs, block), append(args, int32(piece))
		shared = (block + piece - 1) * dt.Size()
	}
	if err := kernels.CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("versions: %s by version %d: %w", p.Op, v, err)
	}
	p.Launch(kernel, int(blocks), block, args...).Shared = int(shared)
	return p, nil
}
