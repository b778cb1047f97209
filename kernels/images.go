package kernels

import (
	"embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

//go:embed images/* *.cu*
var files embed.FS

// KernelReport is what the compiler said about one kernel on one target.
type KernelReport = manifest.Kernel

var own = newLibrary(files)

// images is Stheno's own manifest. The file is part of the program and tested,
// so a broken one is a broken build.
func images() *manifest.Manifest {
	m, err := own.manifest()
	if err != nil {
		panic("stheno: embedded kernel manifest: " + err.Error())
	}
	return m
}

// Digests maps the stem of each of Stheno's sources, such as "sum" of sum.cu, to
// a digest of its compiled kernels, twelve hexadecimal digits. Two builds whose
// digests of a source are equal run the same kernels of it.
func Digests() map[string]string {
	digests := map[string]string{}
	for _, s := range images().Sources {
		digests[s.Stem] = s.Digest()
	}
	return digests
}

// Digests maps each source that the plan's launches come from to the digest of
// its compiled kernels: a stem for Stheno's own, name/stem for another library's
// (see [Register]).
func (p *Plan) Digests() (map[string]string, error) {
	digests := map[string]string{}
	for _, l := range p.Launches {
		module, _, _ := strings.Cut(l.Kernel.Module, "(") // generated code is of stem(expression)
		s, err := source(module)
		if err != nil {
			return nil, err
		}
		digests[module] = s.Digest()
	}
	return digests, nil
}

// Source is the text of a CUDA source or header, such as "sum.cu".
func Source(name string) ([]byte, error) {
	if strings.Contains(name, "/") {
		return nil, fmt.Errorf("no kernel source %q", name)
	}
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("no kernel source %q", name)
	}
	return text, nil
}

// SourceHash is the hash of source stem.cu and its headers that the images were
// made from, "" if there is no such source.
func SourceHash(stem string) string {
	s, err := source(stem)
	if err != nil {
		return ""
	}
	return s.Hash
}

// Image is the compiled source stem.cu, or that of a library for name/stem (see
// [Register]), for a device of that compute capability: the cubin of the same
// major version and the highest minor version that is not above the device's,
// else PTX, which the driver compiles. target is the choice, such as "sm_80" or
// "ptx". minDriver is the CUDA version, as 12000 for 12.0, that the driver must
// support to load it. It is an error if there is no such source or the device is
// older than 7.0.
func Image(stem string, major, minor int) (image []byte, target string, minDriver int, err error) {
	if text, minDriver, ok := generatedImage(stem); ok {
		return text, "ptx", minDriver, nil
	}
	l, stem, err := find(stem)
	if err != nil {
		return nil, "", 0, err
	}
	if _, err := l.source(stem); err != nil {
		return nil, "", 0, err
	}
	target, minDriver, err = selectTarget(major, minor)
	if err != nil {
		return nil, "", 0, err
	}
	image, err = l.image(manifest.ImageFile(stem, target))
	return image, target, minDriver, err
}

// ImageReport is what the compiler said about each kernel of stem.cu on a
// target that [Image] names, in order of name. There is nothing to say about
// PTX.
func ImageReport(stem, target string) ([]KernelReport, error) {
	s, err := source(stem)
	if err != nil {
		return nil, err
	}
	for _, i := range s.Images {
		if i.Target == target {
			return i.Kernels, nil
		}
	}
	return nil, fmt.Errorf("no kernel image of %s for %q: there are %s", stem, target, strings.Join(manifest.Targets, ", "))
}

// Entries are the names of the kernels of stem.cu, in order.
func Entries(stem string) ([]string, error) {
	s, err := source(stem)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, k := range s.Images[0].Kernels { // the same ones for every target
		names = append(names, k.Name)
	}
	return names, nil
}

func source(module string) (*manifest.Source, error) {
	l, stem, err := find(module)
	if err != nil {
		return nil, err
	}
	return l.source(stem)
}

// selectTarget chooses for a device. Cubins load on every driver of their
// compiler's major version that knows the device; PTX only on one as new as the
// compiler, CUDA 12.9.
func selectTarget(major, minor int) (target string, minDriver int, err error) {
	if major < 7 {
		return "", 0, fmt.Errorf("compute capability %d.%d is too old: the kernels need 7.0 (Volta) or newer", major, minor)
	}
	best := -1
	for _, t := range manifest.Targets {
		name, exact := strings.CutSuffix(strings.TrimPrefix(t, "sm_"), "a")
		n, err := strconv.Atoi(name)
		if err != nil || n/10 != major || n%10 > minor || n%10 < best || exact && n%10 != minor {
			continue
		}
		target, best = t, n%10
	}
	switch {
	case best < 0:
		return manifest.PTX, 12090, nil
	case major >= 10:
		return target, 12080, nil
	}
	return target, 12000, nil
}
