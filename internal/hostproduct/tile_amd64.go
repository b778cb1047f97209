//go:build !noasm && !gccgo && !safe

package hostproduct

var available = hasAVX()

// hasAVX reports whether the processor has AVX and the system keeps its registers.
func hasAVX() bool

//go:noescape
func tile32(k int64, a, b, c *float32, stride int64)

//go:noescape
func tile64(k int64, a, b, c *float64, stride int64)
