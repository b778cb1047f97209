//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package checkpoint

import (
	"errors"
	"os"
	"syscall"
)

// claim locks a temporary file until it is closed. The lock of a program that is killed ends. On a file system
// without locks nobody removes the file.
func claim(f *os.File) { syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }

// publish gives a temporary file its name. It is closed last, since it is claimed until then.
func publish(f *os.File, path string) error {
	return errors.Join(os.Rename(f.Name(), path), f.Close())
}

// removeAbandoned removes a temporary file that no program has claimed.
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
