package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// replace atomically replaces a file by the bytes that write writes. The new file is complete and synced to disk before it is
// renamed.
func replace(path string, write func(io.Writer) error) error {
	path, err := followLinks(path)
	if err != nil {
		return err
	}
	old, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		old = nil
	case err != nil:
		return err
	default:
		if err := wantFile(path, old); err != nil {
			return err
		}
	}
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	removeLeft(dir, name)
	f, err := newTemporary(dir, name, old)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err := publish(f, path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(dir)
}

// followLinks resolves symbolic links in a path; the file need not exist.
func followLinks(path string) (string, error) {
	for range 40 { // Linux's limit
		to, err := os.Readlink(path)
		if err != nil { // no link
			return path, nil
		}
		if !filepath.IsAbs(to) {
			dir, _ := filepath.Split(path)
			to = dir + to // filepath.Join would resolve x/.. where x is a link
		}
		path = to
	}
	return "", fmt.Errorf("%s: got more than 40 symbolic links, want a file", path)
}

// temporaryName returns the name of a temporary file for the file of a name.
func temporaryName(name, digits string) string { return "." + name + ".stheno-" + digits + ".tmp" }

// newTemporary makes a temporary file with the permissions of an old file, which may be nil, and claims it, so that no other
// program removes it.
func newTemporary(dir, name string, old fs.FileInfo) (*os.File, error) {
	mode := fs.FileMode(0o666)
	if old != nil {
		mode = old.Mode().Perm()
	}
	for {
		path := filepath.Join(dir, temporaryName(name, fmt.Sprintf("%016x", rand.Uint64())))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return nil, err
		}
		claim(f)
		info, err := f.Stat()
		if err == nil && old != nil && info.Mode().Perm() != mode { // the umask removed some
			err = f.Chmod(mode)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(path))
		}
		if now, err := os.Stat(path); err == nil && os.SameFile(info, now) {
			return f, nil
		}
		f.Close() // another program removed it before it was claimed
	}
}

// removeLeft removes temporary files of killed programs. It ignores errors.
func removeLeft(dir, name string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	before, after, _ := strings.Cut(temporaryName(name, "*"), "*")
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), before)
		digits, ends := strings.CutSuffix(digits, after)
		if _, err := strconv.ParseUint(digits, 16, 64); ok && ends && err == nil && len(digits) == 16 && e.Type().IsRegular() {
			removeAbandoned(filepath.Join(dir, e.Name()))
		}
	}
}

// syncFolder syncs a directory to disk if the file system supports it.
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
