//go:build !linux && !windows

package hostmem

// available returns that the memory is unknown: the system does not report it.
func available() (bytes int64, known bool) { return 0, false }
