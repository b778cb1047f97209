// Package codegen plans maps and rows of functions, and generates their kernels.
package codegen

import "github.com/stheno-ml/stheno/kernels"

// own holds the kernels of the family.
var own = kernels.Builtin()
