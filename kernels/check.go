package kernels

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// Check reports whether the images of a library are what its sources give: every
// source is compiled for every target, has not changed since, and its images are
// whole. Call it in a test of the library's module.
func Check(l *Library) error { return l.named(l.checkImages()) }

func (l *Library) checkImages() error {
	m, err := l.manifest()
	if err != nil {
		return err
	}
	sources, err := fs.Glob(l.files, "*.cu")
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return fmt.Errorf("no source *.cu")
	}
	for _, file := range sources {
		if err := l.checkSource(file); err != nil {
			return err
		}
	}
	for _, s := range m.Sources {
		if !slices.Contains(sources, s.Stem+".cu") {
			return fmt.Errorf("there are images of %s.cu, which is gone: compile again", s.Stem)
		}
	}
	return nil
}

// checkSource compares a source with the manifest and with its images.
func (l *Library) checkSource(file string) error {
	s, err := l.source(strings.TrimSuffix(file, ".cu"))
	if err != nil {
		return err
	}
	hash, err := manifest.SourceHash(func(name string) ([]byte, error) { return fs.ReadFile(l.files, name) }, file)
	if err != nil {
		return err
	}
	if hash != s.Hash {
		return fmt.Errorf("%s or a header that it includes has changed since it was compiled: compile it again", file)
	}
	var targets []string
	for _, i := range s.Images {
		targets = append(targets, i.Target)
		data, err := l.readImage(i.File)
		if err != nil {
			return fmt.Errorf("%s for %s: %w", file, i.Target, err)
		}
		if manifest.Sum(data) != i.Hash || len(data) != i.Bytes {
			return fmt.Errorf("images/%s is not the file that the manifest describes", i.File)
		}
	}
	if !slices.Equal(targets, manifest.Targets) {
		return fmt.Errorf("%s is compiled for %v, want %v", file, targets, manifest.Targets)
	}
	return nil
}
