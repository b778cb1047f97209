package kernels

import (
	"encoding/json"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// stems are the sources in the folder, whatever the manifest says.
func stems(t *testing.T) []string {
	paths, err := fs.Glob(files, "*.cu")
	if err != nil || len(paths) == 0 {
		t.Fatalf("sources %v, %v", paths, err)
	}
	for i, p := range paths {
		paths[i] = strings.TrimSuffix(p, ".cu")
	}
	return paths
}

func TestImagesFresh(t *testing.T) {
	stems := stems(t)
	for _, stem := range stems {
		hash, err := manifest.SourceHash(Source, stem+".cu")
		if err != nil {
			t.Errorf("%s.cu: %v", stem, err)
		} else if SourceHash(stem) == "" {
			t.Errorf("%s.cu has not been compiled: run `make images`", stem)
		} else if hash != SourceHash(stem) {
			t.Errorf("%s.cu or a header that it includes has changed since it was compiled: run `make images`", stem)
		}
	}
	for _, s := range images().Sources {
		if !slices.Contains(stems, s.Stem) {
			t.Errorf("there are images of %s.cu, which is gone: run `make images`", s.Stem)
		}
	}
}

func TestImagesWhole(t *testing.T) {
	total := 0
	for _, s := range images().Sources {
		var targets []string
		for _, i := range s.Images {
			targets = append(targets, i.Target)
			data, err := own.image(i.File)
			if err != nil {
				t.Errorf("%s for %s: %v: run `make images`", s.Stem, i.Target, err)
			} else if manifest.Sum(data) != i.Hash || len(data) != i.Bytes {
				t.Errorf("images/%s is not the file that the manifest describes: run `make images`", i.File)
			}
			if info, err := fs.Stat(files, "images/"+i.File); err == nil {
				total += int(info.Size())
			}
		}
		if !slices.Equal(targets, manifest.Targets) {
			t.Errorf("%s.cu is compiled for %v, want %v: run `make images`", s.Stem, targets, manifest.Targets)
		}
	}
	if total > 10<<20 {
		t.Errorf("the images are %.1f MiB together, want at most 10", float64(total)/(1<<20))
	}

	want, err := files.ReadFile("images/" + manifest.File)
	if err != nil {
		t.Fatal(err)
	}
	var m manifest.Manifest
	if err := json.Unmarshal(want, &m); err != nil {
		t.Fatal(err)
	}
	if got, err := m.Encode(); err != nil || string(got) != string(want) {
		t.Errorf("the manifest was edited by hand: run `make images` (%v)", err)
	}
	t.Logf("%d sources, %d KiB of images, %s", len(m.Sources), total>>10, m.Compiler)
}

// A source's digest follows the bytes of its images and nothing else, and a
// plan has those of the sources that it launches.
func TestDigests(t *testing.T) {
	dev := Device{Major: 8, SMs: 1, SharedOptin: 96 << 10}
	r, err := ParseReduction("max(a, b)")
	if err != nil {
		t.Fatal(err)
	}
	generated, err := Reduce(dev, Float32, 10, r, math.Inf(-1))
	if err != nil {
		t.Fatal(err)
	}
	for stem, p := range map[string]*Plan{"add": Add(dev, Float32, 10), "reduce": generated} {
		got, err := p.Digests()
		if want := Digests()[stem]; err != nil || len(got) != 1 || got[stem] != want || len(want) != 12 {
			t.Errorf("a plan of %s has %v, %v, want the digest of its source alone, %q", stem, got, err, want)
		}
	}

	s := images().Sources[0]
	s.Images = slices.Clone(s.Images)
	s.Hash = "another"
	if got, want := s.Digest(), Digests()[s.Stem]; got != want {
		t.Errorf("with another comment the digest is %s, want it as it was, %s", got, want)
	}
	s.Images[1].Hash = "another"
	if got := s.Digest(); got == Digests()[s.Stem] {
		t.Errorf("with another image the digest is still %s", got)
	}
}

func TestSelectTarget(t *testing.T) {
	for _, c := range []struct {
		major, minor int
		target       string
		minDriver    int
	}{
		{7, 0, "sm_70", 12000}, {7, 2, "sm_70", 12000}, {7, 5, "sm_75", 12000},
		{8, 0, "sm_80", 12000}, {8, 6, "sm_86", 12000}, {8, 7, "sm_86", 12000}, {8, 9, "sm_89", 12000},
		{9, 0, "sm_90a", 12000}, {9, 1, "ptx", 12090},
		{10, 0, "sm_100", 12080}, {10, 3, "sm_100", 12080}, {11, 0, "ptx", 12090},
		{12, 0, "sm_120", 12080}, {12, 1, "sm_120", 12080}, {13, 0, "ptx", 12090},
	} {
		image, target, minDriver, err := Image(images().Sources[0].Stem, c.major, c.minor)
		if err != nil || len(image) == 0 || target != c.target || minDriver != c.minDriver {
			t.Errorf("%d.%d gives %d bytes for %s, driver %d, %v, want %s, driver %d",
				c.major, c.minor, len(image), target, minDriver, err, c.target, c.minDriver)
		}
	}
	if _, _, _, err := Image(images().Sources[0].Stem, 6, 1); err == nil || !strings.Contains(err.Error(), "6.1") {
		t.Errorf("an image for 6.1 gives %v", err)
	}
	if _, _, _, err := Image("nothing", 8, 0); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("an image of nothing gives %v", err)
	}
	for _, name := range []string{"nothing.cu", "images/" + manifest.File, ""} {
		if _, err := Source(name); err == nil {
			t.Errorf("there is a source %q", name)
		}
	}
	if _, err := ImageReport(images().Sources[0].Stem, "sm_1"); err == nil {
		t.Error("there is a report for sm_1")
	}
}

func TestNoSpills(t *testing.T) {
	for _, s := range images().Sources {
		for _, target := range manifest.Targets {
			report, err := ImageReport(s.Stem, target)
			if err != nil {
				t.Error(err)
			}
			for _, k := range report {
				if k.Spill > 0 && target != "sm_70" && target != "sm_75" {
					t.Errorf("%s on %s spills %d bytes (%d registers, %d bytes of stack)", k.Name, target, k.Spill, k.Registers, k.Stack)
				}
			}
			if target != manifest.PTX && len(report) == 0 {
				t.Errorf("%s on %s: no kernels", s.Stem, target)
			}
		}
	}
}
