// Package hostmem says whether the host has memory to give. Go cannot: a process that asks
// for more than there is ends, by its own runtime or by the system.
package hostmem

import (
	"fmt"
	"runtime/debug"
)

const (
	// Most is more than any process can address.
	Most = 1 << 47
	// little is what is not worth asking the system for.
	little = 64 << 20
)

// Check returns an error if there are no such many bytes, as far as the system tells.
func Check(bytes int64) error {
	if bytes < 0 || bytes > Most {
		return fmt.Errorf("got %d bytes of host memory, want 0 to %d", bytes, int64(Most))
	}
	if bytes < little {
		return nil
	}
	free, known := available()
	if known && bytes > free { // what Go has not collected yet is in use for the system
		debug.FreeOSMemory()
		free, known = available()
	}
	if known && bytes > free {
		return fmt.Errorf("got %d bytes (%.1f GiB) of host memory, want at most %d (%.1f GiB), which are available",
			bytes, float64(bytes)/(1<<30), free, float64(free)/(1<<30))
	}
	return nil
}
