// Package streamcopy copies memory past the processor's caches: whole cache lines are written to memory without being read
// first, and displace nothing in the caches. That suits memory that a device, and not the host, reads next.
package streamcopy

import "unsafe"

// least is the number of bytes from which on that pays.
const least = 256

// Copy copies as the built-in copy does, but the slices must not overlap, and Fence must be called before others read dst.
func Copy(dst, src []byte) {
	n := min(len(dst), len(src))
	if n < least {
		copy(dst, src[:n])
		return
	}
	const line = 64
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) & (line - 1))
	copy(dst[:head], src)
	lines := (n - head) &^ (line - 1)
	stream(&dst[head], &src[head], uintptr(lines))
	copy(dst[head+lines:n], src[head+lines:n])
}

// Fence makes what Copy has written visible to others before anything that is written after it.
func Fence() { fence() }
