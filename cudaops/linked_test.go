package cudaops_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// TestLinked checks that a program links nothing of options that it does not name.
func TestLinked(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "linked")
	if out, err := exec.Command("go", "build", "-o", file, "./testdata/linked").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	symbols := testutil.Get[[]byte](t)(exec.Command("go", "tool", "nm", file).Output())
	const module = "github.com/stheno-ml/stheno/cudaops"
	for name, linked := range map[string]bool{
		".(*VM).RunAll":                            true,
		"/internal/lower.(*lowerer).node":          true,
		".(*VM).Restore":                           false,
		".(*trainer).fit":                          false,
		".newTrainer":                              false,
		"/internal/lower.(*lowerer).startTraining": false,
		"/internal/lower.(*lowerer).update":        false,
		"/internal/passes.mixed":                   false,
		".(*VM).onRanks":                           false,
		"/internal/exec.JoinGPUs":                  false,
		"/internal/nccl.Load":                      false,
		"/internal/world.Join":                     false,
		"/internal/program.(*Program).Print":       false,
	} {
		if got := bytes.Contains(symbols, []byte(" "+module+name+"\n")); got != linked {
			t.Errorf("%s: got %t, want linked %t", name, got, linked)
		}
	}
}
