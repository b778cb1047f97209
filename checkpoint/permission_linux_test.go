package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A file that may not be read, and a folder that may not be written, are errors that name them. Root
// may do both, so this thread is somebody else for the time.
func TestNoPermission(t *testing.T) {
	m := newModel(t, tensor.Float32, 1, 5)
	vm := m.machine(t, cudaops.OnHost(), G.NewAdamSolver())
	dir := t.TempDir()
	path := filepath.Join(dir, "run")
	testutil.Do(t, Save(path, vm, nil))
	testutil.Do(t, os.Chmod(path, 0))
	testutil.Do(t, os.Chmod(dir, 0o555))
	defer os.Chmod(dir, 0o777)
	if os.Geteuid() == 0 {
		for above := filepath.Dir(dir); strings.Contains(above, "TestNoPermission"); above = filepath.Dir(above) {
			testutil.Do(t, os.Chmod(above, 0o755)) // so that nobody gets there
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if _, _, no := syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0); no != 0 {
			t.Skip(no)
		}
		defer syscall.RawSyscall(syscall.SYS_SETFSUID, 0, 0, 0)
	}
	_, load := Load(path, vm, nil)
	_, parameters := LoadParameters(path, m.learnables)
	for what, err := range map[string]error{
		"Load": load, "Save": Save(path, vm, nil),
		"LoadParameters": parameters, "SaveParameters": SaveParameters(path, m.learnables...),
	} {
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got the error %v, want one of permission that names the path", what, err)
		}
	}
}
