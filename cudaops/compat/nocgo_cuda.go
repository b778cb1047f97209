//go:build cuda && !cgo

package compat

// Without cgo, gorgonia.org/cu cannot be built. The undefined name here puts the reason among the
// compiler's errors.
var _ = the_tag_cuda_needs_CGO_ENABLED_1_and_a_C_compiler
