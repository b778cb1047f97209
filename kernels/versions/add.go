package versions

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
)

var addSimple = library.Pair("add", "add_simple", basic.AddBody[float32], basic.AddBody[float64])

// Add plans [basic.Add] by version 1, one thread per element in blocks of 512, or 2,
// the op's own. It is an error if the device cannot run that many blocks in one launch.
func Add(dev kernels.Device, dt kernels.Dtype, v int, n int64) (*kernels.Plan, error) {
	if err := check("add", v, 2); err != nil {
		return nil, err
	}
	p := basic.Add(dev, dt, n)
	if v == 2 || n == 0 {
		return p, nil
	}
	const block = 512
	blocks := kernels.CeilDiv(n, block)
	if err := kernels.CheckGrid(blocks); err != nil {
		return nil, fmt.Errorf("versions: %s by version %d: %w", p.Op, v, err)
	}
	l := &p.Launches[0]
	l.Kernel, l.Grid[0], l.Block[0] = addSimple[dt], int(blocks), block
	return p, nil
}
