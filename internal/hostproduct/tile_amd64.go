//go:build !noasm && !gccgo && !safe

package hostproduct

import "golang.org/x/sys/cpu"

var available = cpu.X86.HasAVX

//go:noescape
func tile32(k int64, a, b, c *float32, stride int64)

//go:noescape
func tile64(k int64, a, b, c *float64, stride int64)
