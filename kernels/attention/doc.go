// Package attention plans softmax attention and its gradients.
package attention

import "github.com/stheno-ml/stheno/kernels"

// own holds the kernels of the family.
var own = kernels.Builtin()
