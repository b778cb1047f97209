package versions

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/window"
)

var (
	windowSimple = library.Pair("windowsum", "windowsum_simple", window.WindowSumBody[float32], window.WindowSumBody[float64])
	windowShared = library.Pair("windowsum", "windowsum_shared", window.WindowSumBody[float32], window.WindowSumBody[float64])
)

type windowSumArgs struct {
	In, Out                 kernels.Ref
	NIn, NOut, W, Off, Rows int64
}

// WindowSum plans [window.WindowSum] by version 1, one thread per output, 2, with the elements of a block in shared memory, or 3, the op's own. mode
// is WindowValid or WindowSame. It is an error if the device cannot run that many blocks in one launch.
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
	args := windowSumArgs{In: in0, Out: out, NIn: n, NOut: mode.Outputs(n, radius), Rows: rows}
	if mode == window.WindowSame {
		radius = min(radius, n-1) // wider windows contain no further element
		args.Off = -radius
	}
	args.W = 2*radius + 1

	const block, widest = 256, 1024 // threads; max elements of a window in shared memory
	blocks := kernels.CeilDiv(rows*args.NOut, block)
	if v == 2 {
		blocks = rows * kernels.CeilDiv(args.NOut, block)
	}
	if err := kernels.CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("versions: %s by version %d: %w", p.Op, v, err)
	}
	if v == 1 {
		p.Launch(windowSimple[dt], int(blocks), block, args)
		return p, nil
	}
	piece := min(args.W, widest)
	p.Launch(windowShared[dt], int(blocks), block, args, int32(piece)).Shared = int((block + piece - 1) * dt.Size())
	return p, nil
}
