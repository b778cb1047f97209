//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package checkpoint

import (
	"errors"
	"os"
	"syscall"
)

// claim locks a temporary file until it is closed or the program ends. On a file system without locks it does nothing, and
// no program removes temporary files.
func claim(f *os.File) { syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }

// publish renames a temporary file, then closes it, since closing ends the claim.
func publish(f *os.File, path string) error {
	return errors.Join(os.Rename(f.Name(), path), f.Close())
}

// removeAbandoned removes a temporary file unless a program has claimed it.
func removeAbandoned(path string) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		os.Remove(path)
	}
}
