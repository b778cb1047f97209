package kernels_test

import (
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/ptxas"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	_ "github.com/stheno-ml/stheno/kernels/attention" // Check compares the kernels of all families with the images
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
	"github.com/stheno-ml/stheno/kernels/codegen"
	_ "github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/reduce"
	_ "github.com/stheno-ml/stheno/kernels/window"
)

// ownManifest returns the manifest of Stheno's own library.
func ownManifest(t *testing.T) *manifest.Manifest {
	t.Helper()
	m, err := kernels.Builtin().Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The images belong to the sources, and are small enough for every program.
func TestImages(t *testing.T) {
	if err := kernels.Check(kernels.Builtin()); err != nil {
		t.Errorf("%v: run `make images`", err)
	}
	total := 0
	m := ownManifest(t)
	for _, s := range m.Sources {
		for _, i := range s.Images {
			if info, err := fs.Stat(kernels.Files, "images/"+i.File(s.Stem)); err == nil {
				total += int(info.Size())
			}
		}
	}
	for _, target := range manifest.Targets[:len(manifest.Targets)-1] { // PTX is assembled by the driver
		total += len(testutil.Get[[]byte](t)(fs.ReadFile(kernels.Files, "images/"+manifest.DictionaryFile(target))))
		total += len(testutil.Get[[]byte](t)(kernels.Archive(target)))
	}
	if total > 8.1e6 {
		t.Errorf("the images are %.2f MB together, want at most 8.1", float64(total)/1e6)
	}

	want := testutil.Read(t, "images/"+manifest.File)
	if packed := testutil.Get[[]byte](t)(manifest.UnpackManifest(testutil.Read(t, "images/"+manifest.PackedFile))); string(packed) != string(want) {
		t.Errorf("the packed manifest is another than %s: run `make images`", manifest.File)
	}
	var read manifest.Manifest
	if err := json.Unmarshal(want, &read); err != nil {
		t.Fatal(err)
	}
	if got, err := manifest.Encode(&read); err != nil || string(got) != string(want) {
		t.Errorf("the manifest was edited by hand: run `make images` (%v)", err)
	}
	t.Logf("%d sources, %d KiB of images, %s", len(m.Sources), total>>10, m.Compiler)
}

// A source's digest follows the bytes of its images and nothing else, and a
// plan has those of the sources that it launches.
func TestDigests(t *testing.T) {
	dev := kernels.Device{Major: 8, SMs: 1, SharedOptin: 96 << 10}
	for stem, p := range map[string]*kernels.Plan{"add": basic.Add(dev, kernels.Float32, 10), "reduce": reduce.Reduce(dev, kernels.Float32, 10, testutil.Get[codegen.Reduction](t)(codegen.ParseReduction("max(a, b)")), 0)} {
		got, err := p.Digests()
		if want := kernels.Builtin().Digests()[stem]; err != nil || len(got) != 1 || got[stem] != want || len(want) != 12 {
			t.Errorf("a plan of %s has %v, %v, want the digest of its source alone, %q", stem, got, err, want)
		}
	}

	s := ownManifest(t).Sources[0]
	s.Images = slices.Clone(s.Images)
	s.Hash = "another"
	if got, want := s.Digest(), kernels.Builtin().Digests()[s.Stem]; got != want {
		t.Errorf("with another comment the digest is %s, want it as it was, %s", got, want)
	}
	s.Images[1].Hash = "another"
	if got := s.Digest(); got == kernels.Builtin().Digests()[s.Stem] {
		t.Errorf("with another image the digest is still %s", got)
	}
}

func TestSelectTarget(t *testing.T) {
	for _, c := range []struct {
		major, minor int
		target       string
		minDriver    int
	}{
		{7, 0, "sm_70", 12000}, {7, 2, "sm_70", 12000}, {7, 5, "sm_70", 12000},
		{8, 0, "sm_80", 12000}, {8, 6, "sm_80", 12000}, {8, 7, "sm_80", 12000}, {8, 9, "sm_80", 12000},
		{9, 0, "sm_90a", 12000}, {9, 1, "ptx", 12090},
		{10, 0, "sm_100", 12080}, {10, 3, "sm_100", 12080}, {11, 0, "ptx", 12090},
		{12, 0, "sm_120", 12080}, {12, 1, "sm_120", 12080}, {13, 0, "ptx", 12090},
	} {
		code, err := kernels.Builtin().Image("add").Code(c.major, c.minor)
		if err != nil || len(code.Text) == 0 || code.Target != c.target || code.MinDriver != c.minDriver {
			t.Errorf("%d.%d gives %d bytes for %s, driver %d, %v, want %s, driver %d",
				c.major, c.minor, len(code.Text), code.Target, code.MinDriver, err, c.target, c.minDriver)
		}
	}
	if _, err := kernels.Builtin().Image("add").Code(6, 1); err == nil || !strings.Contains(err.Error(), "6.1") {
		t.Errorf("an image for 6.1 gives %v", err)
	}
	if _, err := kernels.Builtin().Image("nothing").Code(8, 0); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("an image of nothing gives %v", err)
	}
	for _, name := range []string{"nothing.cu", "images/" + manifest.File, ""} {
		if _, err := kernels.Source(name); err == nil {
			t.Errorf("there is a source %q", name)
		}
	}
	if text, err := kernels.Source("add.cu"); err != nil || !strings.Contains(string(text), "add_f32") {
		t.Errorf("the source of add is %q, %v", text, err)
	}
}

// PTX in place of an omitted image loads on the drivers that images load on.
func TestPTXOfOmittedImages(t *testing.T) {
	for _, s := range ownManifest(t).Sources {
		if stored := slices.DeleteFunc(slices.Clone(s.Images), func(i manifest.Image) bool { return i.Omitted }); len(stored) > 1 {
			continue // no plan launches it where it has no image
		}
		for major, want := range map[int]int{7: 12000, 9: 12000, 12: 12080, 13: 12090} {
			code, err := kernels.Builtin().Image(s.Stem).Code(major, 0)
			if err != nil || code.Target != manifest.PTX || code.MinDriver != want {
				t.Errorf("%s on %d.0: got code for %s, driver %d, %v, want PTX, driver %d", s.Stem, major, code.Target, code.MinDriver, err, want)
			}
			if major == 9 {
				ptxas.Assemble(t, s.Stem, code.Text, "sm_90")
			}
		}
	}
}

// spills is the max spilled bytes, stores and loads, by source. 192 of the 240 registers of a consumer warpgroup's thread are accumulators.
// Those kernels keep the values that they need across tiles in local memory. They keep at most three values there from one group of
// 4 to 16 K steps of 32 to the next group.
// Strips of eight rows on sm_80 keep some addresses there, too. So do draws, the adjoint of Pick in float64, and the scatter to long rows,
// which was measured with its spills. Attention keeps what rows have in common there, for two blocks a multiprocessor.
// On 9.0 it keeps addresses and masks there, and was measured so. In gradients of float32 rows of 128 it keeps up to 51 of 255 registers there.
// Direct convolutions spill up to 40 bytes on sm_80, tiles of mma.sync up to 64 on sm_90a, for two blocks an SM. Histograms, of two blocks a multiprocessor, spill 24 on sm_100.
// Convolutions by filters in TF32 keep an address there that the loop does not read. Half steps of Iterate in float64 on 9.0 keep two numbers, for five.
var spills = map[string]int{"attention": 156, "attention_any": 72, "attention_double": 308, "attention_few": 40, "attention_backward": 72, "attention_hopper_backward": 932, "attention_mma": 104, "attention_mma_wide": 404, "attention_wgmma_float": 588, "conv": 40, "iterate": 16, "conv_hopper": 8, "conv_mma": 64, "histogram": 24,
	"matmul_hopper": 340, "matmul_strip": 8, "categorical": 32, "pick": 40, "scatter_rows": 524}

func TestNoSpills(t *testing.T) {
	for _, s := range ownManifest(t).Sources {
		for _, i := range s.Images {
			for _, k := range i.Kernels {
				if k.Spill > spills[s.Stem] && i.Target != "sm_70" {
					t.Errorf("%s on %s spills %d bytes (%d registers, %d bytes of stack)", k.Name, i.Target, k.Spill, k.Registers, k.Stack)
				}
			}
			if i.Target != manifest.PTX && len(i.Kernels) == 0 {
				t.Errorf("%s on %s: no kernels", s.Stem, i.Target)
			}
		}
	}
}
