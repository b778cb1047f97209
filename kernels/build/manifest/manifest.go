// Package manifest describes the compiled kernel images, which the program in kernels/build writes and package kernels reads.
package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/fingerprint"
	"github.com/stheno-ml/stheno/internal/jsonlines"
)

// File is the manifest's name in the folder of the images.
const File = "manifest.json"

// PackedFile is the manifest packed by [PackManifest], in its place: a library that has no File reads this one, which takes an eighth of a program's bytes.
const PackedFile = File + ".lz"

// Targets are the targets of sources. The last, PTX, is for devices that no other covers. A cubin runs on later devices of its major version: that of
// sm_70 on 7.5, that of sm_80 on 8.6 and 8.9.
var Targets = []string{"sm_70", "sm_80", "sm_90a", "sm_100", "sm_120", PTX}

// PTX is the target compiled on the user's machine, by the driver.
const PTX = "ptx"

// Subset reports whether targets are some of [Targets], in their order, and PTX is among them.
func Subset(targets []string) bool { return subset(targets, Targets) && slices.Contains(targets, PTX) }

// subset reports whether targets are some of all, in their order.
func subset(targets, all []string) bool {
	return slices.Equal(targets, slices.DeleteFunc(slices.Clone(all), func(t string) bool { return !slices.Contains(targets, t) }))
}

// Manifest is the whole of manifest.json.
type Manifest struct {
	Compiler string   `json:"compiler"`
	Flags    []string `json:"flags"`
	Sources  []Source `json:"sources"`
}

// Source is one x.cu, whose stem is x.
type Source struct {
	Stem   string  `json:"stem"`
	Hash   string  `json:"hash"`   // [SourceHash]
	Images []Image `json:"images"` // in the order of Targets, those of all sources for the same targets
}

// Image is one compiled source.
type Image struct {
	Target  string   `json:"target"`
	Hash    string   `json:"hash"`              // unpacked
	Bytes   int      `json:"bytes"`             // unpacked
	Omitted bool     `json:"omitted,omitempty"` // there is no file: [StoredTargets] does not have the target
	Tests   bool     `json:"tests,omitempty"`   // [StoredTargets] has the target for tests: programs with a build tag do not contain the image
	Kernels []Kernel `json:"kernels,omitempty"` // in order of name; none for PTX
}

// Kernel is the assembler's report on one entry point. In JSON it is an array of the fields, since there are thousands.
type Kernel struct {
	Name      string
	Registers int // per thread
	Stack     int // bytes per thread, spills included
	Spill     int // bytes stored and loaded, per thread
	Shared    int // static bytes per block
}

func (k *Kernel) fields() []any { return []any{&k.Name, &k.Registers, &k.Stack, &k.Spill, &k.Shared} }

// MarshalJSON implements [json.Marshaler].
func (k Kernel) MarshalJSON() ([]byte, error) { return json.Marshal(k.fields()) }

// UnmarshalJSON implements [json.Unmarshaler].
func (k *Kernel) UnmarshalJSON(text []byte) error {
	fields := k.fields()
	return json.Unmarshal(text, &fields)
}

// ImageFile is the name of a source's image that is not for tests.
func ImageFile(stem, target string) string {
	if target == PTX {
		return stem + ".ptx.lz"
	}
	return stem + "." + target + ".cubin.lz"
}

// testsFile is the name of an image for tests.
func testsFile(stem, target string) string { return stem + "." + target + TestsEnding }

// TestsEnding ends the names of images for tests.
const TestsEnding = ".tests.lz"

// File is the name of the image of a source, which is packed.
func (i Image) File(stem string) string {
	if i.Tests {
		return testsFile(stem, i.Target)
	}
	return ImageFile(stem, i.Target)
}

// Sum is the hash that the manifest holds for an image, unpacked.
func Sum(b []byte) string {
	return fingerprint.Of(b).String()
}

// Encode returns the bytes of manifest.json, an image a line.
func Encode(m *Manifest) ([]byte, error) { return jsonlines.Marshal(m, 4) }

// Check returns an error unless the images are those of some targets, in their order, those that the source's text omits have no file, and the files of the
// others, which read returns by name, are those that the manifest describes.
func (s *Source) Check(text []byte, targets []string, read func(file string) ([]byte, error)) error {
	stored, tests, err := StoredTargets(text)
	if err != nil || !slices.EqualFunc(s.Images, targets, func(i Image, target string) bool {
		return i.Target == target && i.Omitted != slices.Contains(stored, target) && i.Tests == slices.Contains(tests, target)
	}) {
		return errors.Join(err, fmt.Errorf("%s.cu has not been compiled for %v", s.Stem, targets))
	}
	var errs []error
	for _, i := range s.Images {
		if i.Omitted {
			continue
		}
		image, err := Unpack(s.Stem, i.Target, read)
		if err == nil && (Sum(image) != i.Hash || len(image) != i.Bytes) {
			err = errors.New("is not the file that the manifest describes")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.cu for %s: %s %w", s.Stem, i.Target, i.File(s.Stem), err))
		}
	}
	return errors.Join(errs...)
}

// Digest identifies the compiled kernels of a source: twelve hexadecimal digits of a hash over the hashes of its images, omitted ones too. Comments do not count, as in
// [SourceHash], so measurements and test outcomes carry it.
func (s *Source) Digest() string {
	var all []byte
	for _, i := range s.Images {
		all = fmt.Appendln(all, i.Target, i.Hash)
	}
	return Sum(all)[:12]
}
