package kernels

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// A library is a folder of CUDA sources with their images: Stheno's own, and
// those of other modules.
type library struct {
	files    fs.FS // x.cu, headers, images/
	manifest func() (*manifest.Manifest, error)
}

func newLibrary(files fs.FS) *library {
	return &library{files, sync.OnceValues(func() (*manifest.Manifest, error) {
		text, err := fs.ReadFile(files, "images/"+manifest.File)
		if err != nil {
			return nil, fmt.Errorf("%w: compile the sources first", err)
		}
		m := new(manifest.Manifest)
		if err := json.Unmarshal(text, m); err != nil {
			return nil, fmt.Errorf("images/%s: %w", manifest.File, err)
		}
		return m, nil
	})}
}

var libraries = struct {
	sync.Mutex
	named map[string]*library
	twice map[string]bool
}{named: map[string]*library{}, twice: map[string]bool{}}

// Register adds the kernels of another module: files holds CUDA sources x.cu,
// the headers that they include in quotes, and the folder images that
//
//	go run github.com/stheno-ml/stheno/kernels/build -dir .
//
// made of them. The [Kernel] of a function in x.cu has the Module name/x. The
// name, such as the import path of the package, must be of no other library.
//
//	//go:embed images *.cu
//	var files embed.FS
//
//	func init() { kernels.Register("example.com/own", files) }
//
// Nothing is read before a kernel is first used; what is wrong is said there,
// and by [Check].
func Register(name string, files fs.FS) {
	libraries.Lock()
	defer libraries.Unlock()
	libraries.twice[name] = libraries.named[name] != nil
	libraries.named[name] = newLibrary(files)
}

// find gives the library of a module and the stem of its source. A name without
// a slash is Stheno's own.
func find(module string) (l *library, stem string, err error) {
	i := strings.LastIndex(module, "/")
	if i < 0 {
		return own, module, nil
	}
	name, stem := module[:i], module[i+1:]
	l, err = findLibrary(name)
	return l, stem, err
}

func findLibrary(name string) (*library, error) {
	libraries.Lock()
	defer libraries.Unlock()
	switch l := libraries.named[name]; {
	case l == nil:
		return nil, fmt.Errorf("no kernels are registered as %q", name)
	case libraries.twice[name]:
		return nil, fmt.Errorf("kernels are registered as %q twice, want another name for each library", name)
	default:
		return l, nil
	}
}

// source finds what the manifest says about a source.
func (l *library) source(stem string) (*manifest.Source, error) {
	m, err := l.manifest()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(m.Sources, func(s manifest.Source) bool { return s.Stem == stem })
	if i < 0 {
		return nil, fmt.Errorf("no kernel images of %q", stem)
	}
	return &m.Sources[i], nil
}

func (l *library) image(file string) ([]byte, error) {
	packed, err := fs.ReadFile(l.files, "images/"+file)
	if err != nil {
		return nil, err
	}
	return manifest.Unpack(packed)
}

// Check says whether the images of a registered library are what its sources
// give: every source is compiled for every target, has not changed since, and
// its images are whole. It belongs into a test of the library's module.
func Check(name string) error {
	l, err := findLibrary(name)
	if err != nil {
		return err
	}
	m, err := l.manifest()
	if err != nil {
		return fmt.Errorf("kernels %s: %w", name, err)
	}
	paths, err := fs.Glob(l.files, "*.cu")
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("kernels %s: no source *.cu", name)
	}
	for _, p := range paths {
		stem := strings.TrimSuffix(path.Base(p), ".cu")
		s, err := l.source(stem)
		if err != nil {
			return fmt.Errorf("kernels %s: %w", name, err)
		}
		hash, err := manifest.SourceHash(func(file string) ([]byte, error) { return fs.ReadFile(l.files, file) }, p)
		if err != nil {
			return fmt.Errorf("kernels %s: %w", name, err)
		}
		if hash != s.Hash {
			return fmt.Errorf("kernels %s: %s or a header that it includes has changed since it was compiled: compile it again", name, p)
		}
		var targets []string
		for _, i := range s.Images {
			targets = append(targets, i.Target)
			data, err := l.image(i.File)
			if err != nil {
				return fmt.Errorf("kernels %s: %s for %s: %w", name, p, i.Target, err)
			}
			if manifest.Sum(data) != i.Hash {
				return fmt.Errorf("kernels %s: images/%s is not the file that the manifest describes", name, i.File)
			}
		}
		if !slices.Equal(targets, manifest.Targets) {
			return fmt.Errorf("kernels %s: %s is compiled for %v, want %v", name, p, targets, manifest.Targets)
		}
	}
	for _, s := range m.Sources {
		if !slices.Contains(paths, s.Stem+".cu") {
			return fmt.Errorf("kernels %s: there are images of %s.cu, which is gone: compile again", name, s.Stem)
		}
	}
	return nil
}
