package calibration

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

var (
	device   = kernels.Device{Name: "NVIDIA H100 80GB HBM3", Major: 9, SMs: 132}
	measured = kernels.Calibration{Memory: 3.1e12, L2: 5.5e12, FMAs: 3e13, Launch: 2.5, Load: 0.6, Barrier: 1.5}
)

// written returns the path of a file with a calibration, and its text.
func written(t *testing.T) (path string, text []byte) {
	path = filepath.Join(t.TempDir(), "folder", "file.json")
	testutil.Do(t, Write(path, device, measured))
	return path, testutil.Get[[]byte](t)(os.ReadFile(path))
}

func TestReadReturnsWhatWasWritten(t *testing.T) {
	path, _ := written(t)
	if got, err := Read(path, device); err != nil || got != measured {
		t.Errorf("got %+v, %v, want %+v", got, err, measured)
	}
	older := device
	older.Name = "H100 80GB HBM3" // drivers before 470
	if got, err := Read(path, older); err != nil || got != measured {
		t.Errorf("under another driver: got %+v, %v, want %+v", got, err, measured)
	}
}

// No damage is read as a calibration of other numbers: bytes that are changed, cut off or added.
func TestReadRejectsDamage(t *testing.T) {
	path, text := written(t)
	r := rand.New(rand.NewPCG(testutil.Seed(t), 35))
	refused := 0
	for range 2000 {
		damaged := append([]byte(nil), text...)
		switch r.IntN(3) {
		case 0:
			damaged[r.IntN(len(text))] = byte(r.IntN(256))
		case 1:
			damaged = damaged[:r.IntN(len(text))]
		case 2:
			at := r.IntN(len(text))
			damaged = append(append(append([]byte(nil), text[:at]...), byte(' '+r.IntN(95))), text[at:]...)
		}
		testutil.Do(t, os.WriteFile(path, damaged, 0o666))
		got, err := Read(path, device)
		if err == nil && got != measured {
			t.Fatalf("got %+v of %q, want %+v or an error", got, damaged, measured)
		}
		if err != nil {
			refused++
			if got != (kernels.Calibration{}) || !strings.Contains(err.Error(), path) {
				t.Fatalf("got %+v, %v, want no calibration and an error with the path %s", got, err, path)
			}
		}
	}
	if refused < 1000 {
		t.Errorf("%d of 2000 damaged files are refused, want most", refused)
	}
}

func TestFindIgnoresFilesThatDoNotFit(t *testing.T) {
	path, text := written(t)
	with := func(old, replacement string) string {
		if !strings.Contains(string(text), old) {
			t.Fatalf("the file has no %s: %s", old, text)
		}
		other := filepath.Join(t.TempDir(), "file.json")
		testutil.Do(t, os.WriteFile(other, []byte(strings.Replace(string(text), old, replacement, 1)), 0o666))
		return other
	}
	another := device
	another.SMs = 114
	for name, c := range map[string]struct {
		path string
		dev  kernels.Device
		want string // in the error; "": none
	}{
		"none":              {None, device, ""},
		"another GPU":       {path, another, "want one of h100-80gb-hbm3-sm90-114"},
		"another version":   {with(`"version": 1`, `"version": 2`), device, "got version 2"},
		"a changed number":  {with("2.5", "2.6"), device, "have changed"},
		"an impossible one": {with("2.5", "-2.5"), device, "have changed"},
		"no file":           {filepath.Join(t.TempDir(), "no"), device, "no such file"},
		"a folder":          {t.TempDir(), device, "want a regular one"},
		"nothing in it":     {with(string(text), ""), device, "unexpected end"},
	} {
		got, err := find(c.path, c.dev)
		if got != (kernels.Calibration{}) || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %+v, %v, want none and an error with %q", name, got, err, c.want)
		}
	}
	if got, err := find(path, device); err != nil || got != measured {
		t.Errorf("got %+v, %v, want %+v", got, err, measured)
	}
}

// The user's file is used if it is there; without one there is no calibration and no error.
func TestFindReadsTheUsersFile(t *testing.T) {
	t.Setenv(Variable, "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	if got, err := find("", device); err != nil || got != (kernels.Calibration{}) {
		t.Errorf("got %+v, %v, want none", got, err)
	}
	path := testutil.Get[string](t)(Path(device))
	testutil.Do(t, Write(path, device, measured))
	if got, err := find("", device); err != nil || got != measured {
		t.Errorf("got %+v, %v, want %+v", got, err, measured)
	}
	if got, err := Find(device); err != nil || got != measured {
		t.Errorf("got %+v, %v, want %+v", got, err, measured)
	}
	testutil.Do(t, os.Remove(path))
	if got, err := Find(device); err != nil || got != measured {
		t.Errorf("after the file was removed: got %+v, %v, want %+v as before", got, err, measured)
	}
}

func TestWriteRefusesNumbersOfNoGPU(t *testing.T) {
	wrong := measured
	wrong.Launch = 0
	if err := Write(filepath.Join(t.TempDir(), "file.json"), device, wrong); err == nil || !strings.Contains(err.Error(), "us of a launch") {
		t.Errorf("got %v, want an error about the launch", err)
	}
}
