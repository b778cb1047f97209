//go:build !amd64 || noasm || gccgo || safe

package hostproduct

const available = false

func tile(k int64, a, b, c *float32, stride int64) {}
