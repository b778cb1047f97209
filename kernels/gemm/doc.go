// Package gemm plans products of matrices and vectors.
package gemm

import "github.com/stheno-ml/stheno/kernels"

// own holds the kernels of the family.
var own = kernels.Builtin()

// out is where a plan's output begins.
var out = kernels.At(kernels.Out, 0)
