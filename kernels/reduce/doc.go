// Package reduce plans sums, dot products and other reductions.
package reduce

import "github.com/stheno-ml/stheno/kernels"

// own holds the kernels of the family.
var own = kernels.Builtin()
