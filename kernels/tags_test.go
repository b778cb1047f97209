package kernels

import (
	"embed"
	"errors"
	"io/fs"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// A tag leaves out the images and generated kernels of other targets, those for tests, and nothing else: not the functions of math.cu and the kernel of reduce.cu in PTX, of which kernels are generated.
func TestTags(t *testing.T) {
	list := func(tags string) []string {
		out, err := exec.Command("go", "list", "-tags", tags, "-f", `{{join .EmbedFiles "\n"}}`, ".").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	all, generated := list(""), []string{"images/" + manifest.ImageFile("math", manifest.PTX), "images/" + manifest.ImageFile("reduce", manifest.PTX)}
	for tags, want := range map[string][]string{
		"stheno_sm70": {"sm_70"}, "stheno_sm80": {"sm_80"}, "stheno_sm90": {"sm_90a"}, "stheno_sm100": {"sm_100"}, "stheno_sm120": {"sm_120"},
		"stheno_sm80,stheno_sm90": {"sm_80", "sm_90a"}, "stheno_sm90,stheno_ptx": {"sm_90a", manifest.PTX},
	} {
		got := list(tags)
		for _, file := range all {
			target := ""
			for _, other := range manifest.Targets {
				if strings.Contains(file, "."+other+".") || strings.Contains(file, "/"+other+".") {
					target = other
				}
			}
			if has := slices.Contains(got, file); has != (target == "" || slices.Contains(want, target) && !strings.HasSuffix(file, manifest.TestsEnding) || slices.Contains(generated, file)) {
				t.Errorf("with %s the program has %s: %v", tags, file, has)
			}
		}
	}
}

// Without the images for tests, their kernels are an error that says how to have them, and others are there.
func TestImagesForTestsLeftOut(t *testing.T) {
	defer func(whole embed.FS) { testImages = whole }(testImages)
	testImages = embed.FS{}
	if _, err := Builtin().Image("matmul_mma").Code(9, 0); err == nil || !strings.Contains(err.Error(), "matmul_mma for sm_90a, which tests alone launch") {
		t.Errorf("got the error %v, want one that says that tests alone launch matmul_mma on 9.0", err)
	}
	if _, err := Builtin().Image("matmul").Code(9, 0); err != nil {
		t.Error(err)
	}
}

// Without the images of a target, its kernels are an error that names the tag.
func TestTargetLeftOut(t *testing.T) {
	whole := embedded
	majors := map[string]int{"sm_90a": 9, "sm_80": 8, "sm_120": 12, manifest.PTX: 13}
	defer func() { embedded = whole }()
	for target, tag := range map[string]string{"sm_90a": "stheno_sm90", "sm_80": "stheno_sm80", "sm_120": "stheno_sm120", manifest.PTX: "stheno_ptx"} {
		embedded = maps.Clone(whole)
		delete(embedded, target)
		_, err := Builtin().Image("add").Code(majors[target], 0)
		_, archive := Archive(target)
		for _, err := range []error{err, archive} {
			if err == nil || !strings.Contains(err.Error(), tag+",") || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("without %s: got the error %v, want one that names %s", target, err, tag)
			}
		}
		for other, major := range majors {
			if _, err := Builtin().Image("add").Code(major, 0); other != target && err != nil {
				t.Errorf("without %s: %s: %v", target, other, err)
			}
		}
		for _, stem := range []string{"math", "reduce"} {
			if _, err := Builtin().PTX(stem); err != nil {
				t.Errorf("without %s: %s of generated kernels: %v", target, stem, err)
			}
		}
	}
}
