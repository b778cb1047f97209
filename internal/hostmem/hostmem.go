// Package hostmem checks whether the host has enough memory. Go cannot handle a failed allocation:
// a process that asks for more than there is ends, by its own runtime or by the system.
package hostmem

import (
	"fmt"
	"runtime/debug"
)

const (
	// Most is more than any process can address.
	Most = 1 << 47
	// little is too small to be worth asking the system.
	little = 64 << 20
)

// Check returns an error if that many bytes are not available, as far as the system reports it.
func Check(bytes int64) error {
	if bytes < 0 || bytes > Most {
		return fmt.Errorf("got %d bytes of host memory, want 0 to %d", bytes, int64(Most))
	}
	if bytes < little {
		return nil
	}
	free, known := available()
	if known && bytes > free { // memory that Go has not collected yet counts as used
		debug.FreeOSMemory()
		free, known = available()
	}
	if known && bytes > free {
		return fmt.Errorf("got %d bytes (%.1f GiB) of host memory, want at most %d (%.1f GiB), which are available",
			bytes, float64(bytes)/(1<<30), free, float64(free)/(1<<30))
	}
	return nil
}
