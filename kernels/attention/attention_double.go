package attention

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// doubleKernels are those of attention_double.cu for rows of up to 128 and of 256 elements.
var doubleKernels = func() (k [2]*kernels.Kernel) {
	for i := range k {
		k[i] = own.Kernel("attention_double", fmt.Sprintf("attention_double_%d_f64", 128<<i), sharedBody[float64](kernels.Float64))
	}
	return k
}()

// byDouble reports whether attention_double.cu computes the problem on a device.
func (p *Problem) byDouble(dev kernels.Device) bool {
	s := sharePolicy
	return isHopper(dev) && p.Dtype == kernels.Float64 && p.Keys > fewKeys && (p.Dim > s.doubleDim || p.Queries <= s.doubleRows) && p.paysShares(dev)
}

// launchDouble launches attention_double.cu.
func (f *Forward) launchDouble(p *kernels.Plan, dev kernels.Device, args forwardArgs) {
	const weights = workers * (shareSide*(shareSide+4) + 32)
	wide := (f.Dim - 1) / 128
	f.launchShared(p, dev, args, doubleKernels[wide], workers*64, 2-wide, func(rows int64) int64 { return 8 * (rows*(arith.RoundUp(f.Dim, 8)+4) + weights) })
}
