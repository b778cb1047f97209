//go:build !darwin && !dragonfly && !freebsd && !linux && !netbsd && !openbsd

package checkpoint

import (
	"os"
	"time"
)

// claim does nothing: without locks, a file that was written lately is in use.
func claim(*os.File) {}

// publish gives a temporary file its name. It is closed first, since Windows renames no open file.
func publish(f *os.File, path string) error {
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// removeAbandoned removes a temporary file that was not written for an hour.
func removeAbandoned(path string) {
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > time.Hour {
		os.Remove(path)
	}
}
