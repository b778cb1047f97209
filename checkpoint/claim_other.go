//go:build !darwin && !dragonfly && !freebsd && !linux && !netbsd && !openbsd

package checkpoint

import (
	"os"
	"time"
)

// claim does nothing: without locks, a recently written file counts as in use.
func claim(*os.File) {}

// publish closes a temporary file, then renames it, since Windows cannot rename an open file.
func publish(f *os.File, path string) error {
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// removeAbandoned removes a temporary file that was last written more than an hour ago.
func removeAbandoned(path string) {
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > time.Hour {
		os.Remove(path)
	}
}
