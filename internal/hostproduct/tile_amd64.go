//go:build !noasm && !gccgo && !safe

package hostproduct

import "golang.org/x/sys/cpu"

var available = cpu.X86.HasAVX

// tile adds the product of packed rows of A and columns of B, of k > 0 terms, to tileRows x tileCols elements of C, whose rows are stride bytes apart.
//
//go:noescape
func tile(k int64, a, b, c *float32, stride int64)
