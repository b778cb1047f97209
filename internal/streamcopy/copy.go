// Package streamcopy copies memory past the processor's caches: what is written goes to memory as whole lines, which are not read
// first and do not displace others. That suits memory that a device reads next, and the host does not.
package streamcopy

import "unsafe"

// least is the number of bytes from which on it is worth it.
const least = 256

// Copy copies as copy does. Fence must follow before others read dst. The slices must not overlap.
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

// Fence makes what Copy has written visible to others before what is written from now on.
func Fence() { fence() }
