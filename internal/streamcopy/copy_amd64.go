package streamcopy

// stream copies n bytes, a positive multiple of 64, to an address that is one.
//
//go:noescape
func stream(dst, src *byte, n uintptr)

func fence()
