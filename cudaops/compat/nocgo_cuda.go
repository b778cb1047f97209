//go:build cuda && !cgo

package compat

// Without cgo, gorgonia.org/cu has nothing to build with. The name that is missing here says so
// among the compiler's errors.
var _ = the_tag_cuda_needs_CGO_ENABLED_1_and_a_C_compiler
