package main

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// The archive of a drawn target has the kernels of the programs and no others, as `.ci/run` checks of all targets, and devices of each target load
// them.
func TestPrebuilt(t *testing.T) {
	targets := slices.DeleteFunc(slices.Clone(manifest.Targets), func(target string) bool { return target == manifest.PTX })
	drawn := targets[testutil.Random(t).IntN(len(targets))]
	testutil.Do(t, complete(archive(t, drawn), testutil.Get[map[string]code](t)(needed(drawn))))
	g := graphs()[0]
	for _, target := range targets {
		for _, dev := range devices(target) {
			for _, p := range testutil.Get[[][]*kernels.Plan](t)(g.plans(dev))[0] {
				testutil.Do(t, p.Check(dev))
				image := p.Launches[0].Kernel.Image
				if c := testutil.Get[kernels.Code](t)(image.Code(dev.Major, dev.Minor)); c.Target != target {
					t.Errorf("%s loads %s for %s, want the kernel assembled for %s", dev.Name, image.Name(), c.Target, target)
				}
				if c := testutil.Get[kernels.Code](t)(image.Code(dev.Major, 9)); target == "sm_90a" && c.Target == target {
					t.Errorf("a later device loads %s for %s, want %s", image.Name(), c.Target, manifest.PTX)
				}
			}
		}
	}
}

// The driver compiles no kernel of perceptrons whose batch and widths nobody chose. On a device of 40 SMs it
// may: sums down 640 columns are no longer few there.
func TestDrawn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) // others may need a kernel that is not worth its bytes
	between := func(least, most float64) int { return int(least * math.Pow((most+1)/least, r.Float64())) }
	var list []graph
	for range 10 {
		c := graphspec.MLP(between(1, 4096), between(8, 1024), between(8, 1024), between(8, 1024), between(2, 32))
		for name, solver := range solvers {
			list = append(list, step(c, name, solver))
		}
	}
	for _, target := range manifest.Targets {
		if target == manifest.PTX {
			continue
		}
		a := archive(t, target)
		for _, dev := range devices(target) {
			if dev.SMs < 80 {
				continue
			}
			for _, g := range list {
				list := map[string]code{}
				testutil.Do(t, g.generated(list, dev))
				for key, c := range list {
					if testutil.Get[[]byte](t)(a.Cubin(key)) == nil {
						t.Errorf("%s: %s: the driver compiles %s, want it assembled beforehand", dev.Name, g.name, c.name)
					}
				}
			}
		}
	}
}

// archive reads the archive of a target.
func archive(t *testing.T, target string) *manifest.Archive {
	t.Helper()
	data := testutil.Get[[]byte](t)(os.ReadFile(filepath.Join("../../../kernels/prebuilt", manifest.ArchiveFile(target))))
	return testutil.Get[*manifest.Archive](t)(manifest.ReadArchive(data))
}

// fromPTX is an image of which the driver compiles the PTX.
type fromPTX struct{ kernels.Image }

func (i fromPTX) Code(major, minor int) (kernels.Code, error) {
	ptx, err := i.Image.(kernels.Generated).PTX(major)
	return kernels.Code{Text: ptx, Target: manifest.PTX, MinDriver: 12000}, err
}

// Kernels that were assembled beforehand compute the bits of those that the driver compiles.
func TestPrebuiltOnGPU(t *testing.T) {
	devices, err := cudaops.Devices()
	testutil.SkipUnless(t, "GPU", err)
	dev := devices[0].Device
	r := testutil.Random(t)
	random := make([]float32, 1<<20+3)
	for i := range random {
		if random[i] = float32(r.NormFloat64()); i%1009 == 0 {
			random[i] = []float32{0, float32(math.NaN()), float32(math.Inf(1)), float32(math.Copysign(0, -1)), 1e-40}[r.IntN(5)]
		}
	}
	kinds, seen := map[string]int{}, map[string]bool{}
	for _, g := range append(graphs(), models()...) {
		for _, p := range testutil.Get[[][]*kernels.Plan](t)(g.plans(dev))[0] {
			whole, again := p.Bytes(), *p
			again.Launches, again.Op = nil, p.Op+" from PTX"
			var keys []string // of kernels that no plan had before
			for _, l := range p.Launches {
				if g, ok := l.Kernel.Image.(kernels.Generated); ok {
					ptx := testutil.Get[[]byte](t)(g.PTX(dev.Major))
					kinds[testutil.Get[kernels.Code](t)(l.Kernel.Image.Code(dev.Major, dev.Minor)).Target]++
					kernel := *l.Kernel
					kernel.Image = fromPTX{kernel.Image}
					l.Kernel = &kernel
					if key := manifest.Key(ptx); !seen[key] {
						keys = append(keys, key)
					}
				}
				again.Launches = append(again.Launches, l)
			}
			if len(keys) == 0 || whole > 1<<28 || testing.Short() && whole > 1<<22 {
				continue
			}
			for _, key := range keys {
				seen[key] = true
			}
			var inputs [][]byte
			for k, n := range p.Inputs {
				x := make([]byte, n)
				for at := k * 4; at < len(x); at += copy(x[at:], kernels.Bytes(random)) {
				}
				inputs = append(inputs, x)
			}
			got, want := bytes.Repeat([]byte{0xff}, int(p.Out)), bytes.Repeat([]byte{0xff}, int(p.Out))
			testutil.Do(t, bench.Run(0, p, inputs, got))
			testutil.Do(t, bench.Run(0, &again, inputs, want))
			if !bytes.Equal(got, want) {
				t.Errorf("%s: %v gives other bits than its PTX", g.name, p)
			}
		}
	}
	t.Logf("launches by target: %v", kinds)
}
