package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/calibration"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Of several GPUs the first of each model is measured, into a file for the model that all of its GPUs read. A file that is named is of one GPU.
func TestCalibrateSeveralGPUs(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	gpu := func(ordinal int, name string, sms int, err error) cudaops.Device {
		return cudaops.Device{Device: kernels.Device{Name: name, Major: 9, SMs: sms}, Ordinal: ordinal, Err: err}
	}
	all := []cudaops.Device{gpu(0, "old", 10, errors.New("too old")), gpu(1, "NVIDIA H100", 132, nil), gpu(2, "NVIDIA H200", 132, nil), gpu(3, "H100", 132, nil), gpu(4, "NVIDIA H100", 114, nil)}
	var measured []int
	of := func(ordinal int) (kernels.Calibration, error) {
		measured = append(measured, ordinal)
		return kernels.Calibration{Memory: 3e12, L2: 5e12, FMAs: 3e13, Launch: float64(ordinal), Load: 1, Barrier: 1}, nil
	}
	var out bytes.Buffer
	c := &console{out: &out, err: &out}
	testutil.Do(t, calibrate{}.measure(c, firstOfEachModel(all), of))
	if got := measured; len(got) != 3 || got[0] != 1 || got[1] != 2 || got[2] != 4 {
		t.Errorf("got measurements of the devices %v, want 1, 2 and 4", got)
	}
	for i, want := range map[int]float64{1: 1, 2: 2, 3: 1, 4: 4} {
		path := testutil.Get[string](t)(calibration.Path(all[i].Device))
		if got := testutil.Get[kernels.Calibration](t)(calibration.Read(path, all[i].Device)); got.Launch != want {
			t.Errorf("device %d has a launch of %v us, want %v", i, got.Launch, want)
		}
		if !strings.Contains(out.String(), path) {
			t.Errorf("got no line for %s in\n%s", path, &out)
		}
	}
	named := filepath.Join(t.TempDir(), "x.json")
	if err := (calibrate{Out: named}).measure(c, firstOfEachModel(all), of); err == nil || !strings.Contains(err.Error(), "GPUs of 3 models") {
		t.Errorf("one file for three models: got %v, want an error that counts them", err)
	}
	if _, err := os.Stat(named); err == nil {
		t.Errorf("one file for three models was written")
	}
	testutil.Do(t, calibrate{Out: named}.measure(c, firstOfEachModel(all[3:4]), of))
	if got := testutil.Get[kernels.Calibration](t)(calibration.Read(named, all[3].Device)); got.Launch != 3 {
		t.Errorf("device 3 alone has a launch of %v us, want 3", got.Launch)
	}
	failed := errors.New("out of memory")
	if err := (calibrate{}).measure(c, firstOfEachModel(all), func(int) (kernels.Calibration, error) { return kernels.Calibration{}, failed }); !errors.Is(err, failed) || !strings.Contains(err.Error(), "device 1") {
		t.Errorf("got %v, want %v of device 1", err, failed)
	}
}
