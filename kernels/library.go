package kernels

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// common are in every program: the generator of kernels takes functions from the PTX of math.cu, and reductions of expressions are made of that of reduce.cu.
//
//go:embed images/manifest.json.lz images/math.ptx.* images/reduce.ptx.*
var common embed.FS

// sources are in the programs that call Source or Check alone: nothing else may use them, so that the linker leaves them out of all others.
//
//go:embed *.cuh attention/*.cu* basic/*.cu* codegen/*.cu* gemm/*.cu* reduce/*.cu* window/*.cu*
var sources embed.FS

// embedded holds, by target, its images and generated kernels. Build tags such as stheno_sm90 leave out those of the other targets, PTX among them.
var embedded = map[string]embed.FS{}

// testImages holds the images for tests of all targets, see [manifest.Image], none in a program with such a tag.
var testImages embed.FS

// files are the files of Stheno's own library that are in the program.
var files fs.FS = parts{}

type parts struct{}

func (parts) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, manifest.TestsEnding) {
		return testImages.Open(name)
	}
	for _, target := range manifest.Targets {
		if part, ok := embedded[target]; ok && (strings.Contains(name, "."+target+".") || name == archiveFile(target)) {
			return part.Open(name)
		}
	}
	return common.Open(name)
}

func archiveFile(target string) string { return "prebuilt/" + manifest.ArchiveFile(target) }

// Archive returns the generated kernels that many programs need, assembled beforehand for a target: the archive that the program in
// cudaops/internal/prebuilt makes. It is an error if the program has none for the target.
func Archive(target string) ([]byte, error) {
	data, err := fs.ReadFile(files, archiveFile(target))
	if err != nil {
		return nil, noTarget(target)
	}
	return data, nil
}

// noTarget is the error of a target whose images a build tag left out.
func noTarget(target string) error {
	tag := "stheno_" + strings.TrimSuffix(strings.ReplaceAll(target, "_", ""), "a")
	return fmt.Errorf("the program has no kernels for %s: build it with the tag %s, or without any tag stheno_sm", target, tag)
}

// own holds the kernels of package ops.
var own = NewLibrary("stheno", files)

// Builtin returns the library of Stheno's own kernels, without their sources: see [Source].
func Builtin() *Library { return own }

// Source returns the text of one of Stheno's CUDA sources or headers, such as "sum.cu". A program that does not call it is 0.7 MB smaller.
func Source(file string) ([]byte, error) { return withSources().Source(file) }

// withSources returns own with the sources.
func withSources() *Library { return NewLibrary(own.name, sourced{}) }

type sourced struct{}

func (sourced) Open(name string) (fs.File, error) {
	if f, err := sources.Open(name); err == nil {
		return f, nil
	}
	return files.Open(name)
}

// Library is a folder of CUDA sources, some of them in sub-folders, with their images. Other modules have
// theirs in a variable:
//
//	//go:embed images *.cu
//	var files embed.FS
//
//	var library = kernels.NewLibrary("example.com/own", files)
//
//	var swish = library.Kernel("swish", "swish_f32", swishBody[float32])
//
// It is safe for several goroutines.
type Library struct {
	name     string
	files    fs.FS // x.cu, headers, images/
	manifest func() (*manifest.Manifest, error)
	paths    func() (manifest.Files, error) // of sources and headers

	mu      sync.Mutex
	entries map[entry]bool // of the kernels made, for Check
}

// entry is an entry point of a source.
type entry struct{ stem, name string }

// NewLibrary returns the library of a folder that holds CUDA sources x.cu, the
// headers that they include in quotes, and the folder images that
//
//	go run github.com/stheno-ml/stheno/kernels/build -dir .
//
// made of them. The name, such as the package's import path, is for errors and
// reports. Files are read when they are first used: an error is returned then, and
// by [Check].
func NewLibrary(name string, files fs.FS) *Library {
	if files == nil {
		files = noFiles{}
	}
	l := &Library{name: name, files: files}
	l.manifest = sync.OnceValues(l.readManifest)
	l.paths = sync.OnceValues(func() (manifest.Files, error) { return manifest.FindFiles(l.files) })
	return l
}

// noFiles is a folder without files.
type noFiles struct{}

func (noFiles) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (l *Library) readManifest() (*manifest.Manifest, error) {
	text, err := fs.ReadFile(l.files, "images/"+manifest.File)
	if packed, none := fs.ReadFile(l.files, "images/"+manifest.PackedFile); err != nil && none == nil {
		text, err = manifest.UnpackManifest(packed)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: compile the sources first", err)
	}
	m := new(manifest.Manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("images/%s: %w", manifest.File, err)
	}
	return m, nil
}

// Manifest returns the compiler's description of the library's sources and images.
// It is shared: do not change it.
func (l *Library) Manifest() (*manifest.Manifest, error) {
	m, err := l.load()
	return m, l.named(err)
}

// errUnmade is the error of a nil or zero library.
var errUnmade = errors.New("got a library that NewLibrary did not make")

func (l *Library) load() (*manifest.Manifest, error) {
	if l == nil || l.manifest == nil {
		return nil, errUnmade
	}
	return l.manifest()
}

// read returns a file.
func (l *Library) read(name string) ([]byte, error) {
	if l == nil || l.files == nil {
		return nil, errUnmade
	}
	return fs.ReadFile(l.files, name)
}

// readSource returns a source or header by its base name.
func (l *Library) readSource(name string) ([]byte, error) {
	if l == nil || l.paths == nil {
		return nil, errUnmade
	}
	paths, err := l.paths()
	if err != nil {
		return nil, err
	}
	return paths.Read(l.files, name)
}

// title returns the library's name for messages.
func (l *Library) title() string {
	if l == nil {
		return "<nil>"
	}
	return l.name
}

// named puts the library's name before an error.
func (l *Library) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kernels of %s: %w", l.title(), err)
}

// Kernel returns the kernel of the entry point of stem.cu with a Go body of the
// same arguments. [Check] reports an entry point that does not exist.
func (l *Library) Kernel(stem, name string, body func(Call)) *Kernel {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.entries == nil {
			l.entries = map[entry]bool{}
		}
		l.entries[entry{stem, name}] = true
	}
	return &Kernel{l.Image(stem), name, body}
}

// Pair returns, by type, the kernels of the entry points name_f32 and name_f64 of stem.cu.
func (l *Library) Pair(stem, name string, f32, f64 func(Call)) [2]*Kernel {
	return [2]*Kernel{Float32: l.Kernel(stem, name+"_f32", f32), Float64: l.Kernel(stem, name+"_f64", f64)}
}

// Image returns the compiled source stem.cu. If there is none, the
// image's Code returns an error.
func (l *Library) Image(stem string) Image { return compiled{l, stem} }

// Source returns the text of a CUDA source or header of the library's folder, such as "swish.cu".
func (l *Library) Source(file string) ([]byte, error) {
	if ext := path.Ext(file); ext != ".cu" && ext != ".cuh" {
		return nil, l.named(fmt.Errorf("got source %q, want a name that ends in .cu or .cuh", file))
	}
	text, err := l.readSource(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no source %q", file)
	}
	if err != nil {
		return nil, l.named(err)
	}
	return text, nil
}

// Entries returns the names of the entry points of stem.cu, in order.
func (l *Library) Entries(stem string) ([]string, error) {
	s, err := l.source(stem)
	if err == nil && len(s.Images) == 0 {
		err = noImages(stem)
	}
	if err != nil {
		return nil, l.named(err)
	}
	var names []string
	for _, k := range s.Images[0].Kernels { // the same ones for every target
		names = append(names, k.Name)
	}
	return names, nil
}

// source returns the manifest's entry of a source.
func (l *Library) source(stem string) (*manifest.Source, error) {
	m, err := l.load()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(m.Sources, func(s manifest.Source) bool { return s.Stem == stem })
	if i < 0 {
		return nil, noImages(stem)
	}
	return &m.Sources[i], nil
}

func noImages(stem string) error {
	return fmt.Errorf("no images of %q, compile the sources first", stem)
}

// PTX returns the PTX of the source stem.cu.
func (l *Library) PTX(stem string) ([]byte, error) {
	text, err := l.readImage(stem, manifest.PTX)
	return text, l.named(err)
}

var ptxVersion = regexp.MustCompile(`(?m)^\.version .*$`)

// olderPTX returns the PTX of a source for drivers from CUDA 11.4 on: for devices of 7.0 the compiler uses nothing newer than its version.
func olderPTX(text []byte) []byte { return ptxVersion.ReplaceAll(text, []byte(".version 7.4")) }

// readImage returns a source's image for a target.
func (l *Library) readImage(stem, target string) ([]byte, error) {
	return manifest.Unpack(stem, target, l.readPacked)
}

// readPacked returns a file of the folder of images.
func (l *Library) readPacked(file string) ([]byte, error) { return l.read("images/" + file) }

// compiled is the image of a library's source.
type compiled struct {
	library *Library
	stem    string
}

func (c compiled) Name() string { return c.library.title() + "/" + c.stem }

func (c compiled) Code(major, minor int) (Code, error) {
	code, err := c.code(major, minor)
	return code, c.library.named(err)
}

func (c compiled) code(major, minor int) (Code, error) {
	s, err := c.library.source(c.stem)
	if err != nil {
		return Code{}, err
	}
	var targets, omitted []string
	for _, image := range s.Images {
		if image.Omitted {
			omitted = append(omitted, image.Target)
		} else {
			targets = append(targets, image.Target)
		}
	}
	target, minDriver, err := targetOf(targets, major, minor)
	if err != nil {
		return Code{}, err
	}
	text, err := c.library.readImage(c.stem, target)
	if errors.Is(err, fs.ErrNotExist) {
		if _, ok := embedded[target]; c.library == own && !ok {
			return Code{}, noTarget(target)
		} else if c.library == own {
			return Code{}, fmt.Errorf("the program has no kernels of %s for %s, which tests alone launch there: build it without any tag stheno_sm", c.stem, target)
		}
		err = fmt.Errorf("%w: %w", noImages(c.stem), err)
	}
	if whole, least, _ := Target(major, minor); err == nil && slices.Contains(omitted, whole) {
		text, minDriver = olderPTX(text), least
	}
	return Code{text, target, minDriver}, err
}
