// Package calibration keeps what `stheno calibrate` measured, in a file for each user and kind of GPU.
package calibration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/kernels"
)

// version is the version of the format. Files of others are not read: their numbers may mean something else.
const version = 1

// Variable is the environment variable with the file to use instead of that of the user, or [None].
const (
	Variable = "STHENO_CALIBRATION"
	None     = "none"
)

type file struct {
	Version int    `json:"version"`
	GPU     string `json:"gpu"`   // [ID]
	Model   string `json:"model"` // as the driver names it
	Date    string `json:"date"`
	Name    string `json:"name"` // of Measured
	// Measured are bytes and multiply-adds a second, and us.
	Measured kernels.Calibration `json:"measured"`
}

// ID names the kind of a GPU: its model, compute capability and SMs. Newer drivers put the vendor before the model.
func ID(dev kernels.Device) string {
	plain := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}
	return fmt.Sprintf("%s-sm%d%d-%d", strings.Map(plain, strings.TrimPrefix(dev.Name, "NVIDIA ")), dev.Major, dev.Minor, dev.SMs)
}

// Path returns the user's file for a device.
func Path(dev kernels.Device) (string, error) {
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep calibrations in: %w", err)
	}
	return filepath.Join(folder, "stheno", "calibration", ID(dev)+".json"), nil
}

// Write replaces a file by one with the calibration of a device.
func Write(path string, dev kernels.Device, c kernels.Calibration) (err error) {
	if err := c.Check(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(file{version, ID(dev), dev.Name, time.Now().UTC().Format(time.DateOnly), c.Name(), c}, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".calibration-*") // readers see the old file or the new one
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Read returns the calibration of a device in a file. The error has the path.
func Read(path string, dev kernels.Device) (kernels.Calibration, error) {
	c, err := read(path, dev)
	if err != nil {
		if failed := (*fs.PathError)(nil); !errors.As(err, &failed) {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return kernels.Calibration{}, err
	}
	return c, nil
}

func read(path string, dev kernels.Device) (c kernels.Calibration, err error) {
	const most = 1 << 16
	info, err := os.Stat(path)
	if err != nil {
		return c, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return c, fmt.Errorf("got a file of mode %v and %d bytes, want a regular one of %d bytes at most", info.Mode(), info.Size(), most)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return c, err
	}
	switch want := ID(dev); {
	case f.Version != version:
		return c, fmt.Errorf("got version %d of the format, want %d: run stheno calibrate again", f.Version, version)
	case f.GPU != want:
		return c, fmt.Errorf("got a calibration of %s, want one of %s", f.GPU, want)
	case f.Name != f.Measured.Name():
		return c, fmt.Errorf("got numbers named %s, want %s: they have changed since they were measured", f.Measured.Name(), f.Name)
	}
	return f.Measured, f.Measured.Check()
}

var found sync.Map // by ID, functions that return what Find returns

// Find returns the calibration to use for a device, the zero value without one, and why a file is not used. In a process it always returns the same.
func Find(dev kernels.Device) (kernels.Calibration, error) {
	once, _ := found.LoadOrStore(ID(dev), sync.OnceValues(func() (kernels.Calibration, error) { return find(os.Getenv(Variable), dev) }))
	return once.(func() (kernels.Calibration, error))()
}

// find is Find for a value of the variable.
func find(path string, dev kernels.Device) (c kernels.Calibration, err error) {
	if path == None {
		return c, nil
	}
	own := path == ""
	if own {
		if path, err = Path(dev); err != nil {
			return c, nil // nothing can have been kept
		}
	}
	c, err = Read(path, dev)
	if own && errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return c, err
}
