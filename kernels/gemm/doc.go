// Package gemm plans products of matrices and vectors.
package gemm

import "github.com/stheno-ml/stheno/kernels"

// own holds the kernels of the family.
var own = kernels.Builtin()
