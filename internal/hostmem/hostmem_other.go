//go:build !linux && !windows

package hostmem

// available says that the system does not tell.
func available() (bytes int64, known bool) { return 0, false }
