package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// replace makes a file of the bytes that write writes, or leaves an existing one as it is: the new file is
// complete, and on the disk, before it gets the name.
func replace(path string, write func(io.Writer) error) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if info, err := os.Stat(path); err == nil {
		if err := wantFile(path, info); err != nil {
			return err
		}
	}
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	prefix, suffix := "."+name+".", ".tmp"
	if err := removeLeft(dir, prefix, suffix); err != nil {
		return err
	}
	temporary := filepath.Join(dir, fmt.Sprintf("%s%016x%s", prefix, rand.Uint64(), suffix))
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return syncFolder(dir)
}

// removeLeft removes temporary files of programs that were killed before they renamed them.
func removeLeft(dir, prefix, suffix string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if n := e.Name(); strings.HasPrefix(n, prefix) && strings.HasSuffix(n, suffix) && len(n) == len(prefix)+16+len(suffix) {
			if err := os.Remove(filepath.Join(dir, n)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// syncFolder writes the names in a folder to the disk, if the system and the folder's file system
// can do that.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
