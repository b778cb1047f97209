// Package window plans sums of windows, pooling, and images as columns of windows.
package window

import "github.com/stheno-ml/stheno/kernels"

// own holds the kernels of the family.
var own = kernels.Builtin()
