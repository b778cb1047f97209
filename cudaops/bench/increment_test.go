package bench

import (
	"fmt"
	"os"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// Counts with atomics and with locks are exact, on the host and on a GPU. The Go bodies of the racy variants model the race: a
// warp counts as one, and as zero if another block interferes. On a GPU their results are unspecified, so the test only
// checks the memory around the counter. The variant that a race checker detects has a separate test.
func TestIncrement(t *testing.T) {
	runs := map[string]func(p *kernels.Plan, out []byte) error{
		"host": func(p *kernels.Plan, out []byte) error { return runGuarded(new(exec.HostBackend), p, nil, out) },
		"GPU":  func(p *kernels.Plan, out []byte) error { return Run(0, p, nil, out) },
	}
	for name, run := range runs {
		t.Run(name, func(t *testing.T) {
			if name == "GPU" {
				device0(t)
			}
			for _, variant := range versions.IncrementVariants() {
				for _, grid := range [][2]int{{1, 1}, {10, 16}, {3, 32}, {33, 70}, {300, 33}} {
					if testing.Short() && grid[0] > 100 || name == "GPU" && variant == "racy_shared" {
						continue
					}
					t.Run(fmt.Sprintf("%s/%dx%d", variant, grid[0], grid[1]), func(t *testing.T) {
						p := testutil.Get[*kernels.Plan](t)(versions.Increment(variant, grid[0], grid[1]))
						cell := make([]int32, 1)
						testutil.Do(t, run(p, kernels.Bytes(cell)))
						n, warps := int32(grid[0]*grid[1]), int32(grid[0]*((grid[1]+31)/32))
						least, most := n, n
						switch {
						case name == "GPU" && variant == "racy":
							least, most = 0, n
						case variant == "racy": // the cell is written at least once
							least, most = 1, warps
						case variant == "racy_shared": // one warp of a block after the other
							least, most = warps, warps
						}
						if cell[0] < least || cell[0] > most {
							t.Errorf("counted %d, want %d to %d", cell[0], least, most)
						}
						t.Logf("counted %d of %d", cell[0], n)
					})
				}
			}
		})
	}
}

// The race on shared memory, for bench/gpu-run.sh to see that the race checker finds
// it. Nothing else runs it.
func TestIncrementRacyShared(t *testing.T) {
	if os.Getenv("STHENO_PLANT_FAULT") != "1" {
		t.Skip("only with STHENO_PLANT_FAULT=1, under a race checker")
	}
	device0(t)
	p := testutil.Get[*kernels.Plan](t)(versions.Increment("racy_shared", 4, 256))
	cell := make([]int32, 1)
	testutil.Do(t, Run(0, p, nil, kernels.Bytes(cell)))
	t.Logf("counted %d of %d", cell[0], 4*256)
}

func TestIncrementErrors(t *testing.T) {
	for _, c := range []struct {
		variant         string
		blocks, threads int
	}{{"fast", 1, 1}, {"atomic", 0, 1}, {"atomic", 1, 0}, {"atomic", 1, 1025}} {
		if p, err := versions.Increment(c.variant, c.blocks, c.threads); err == nil {
			t.Errorf("%+v: got %v and no error", c, p)
		}
	}
}
