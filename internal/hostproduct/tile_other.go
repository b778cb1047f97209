//go:build !amd64 || noasm || gccgo || safe

package hostproduct

const available = false

func tile32(k int64, a, b, c *float32, stride int64) {}

func tile64(k int64, a, b, c *float64, stride int64) {}
