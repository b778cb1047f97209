package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/internal/maintain/toolkit"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// A builder compiles the sources in dir into images in out.
type builder struct {
	dir, headers, out, toolkit, only string
	targets                          []string // of manifest.Targets
	all                              bool
	workers                          int
	log                              io.Writer // for warnings and progress
	compile                          func(name, target string, source []byte) (image []byte, log string, err error)
}

// build brings the images up to date: it compiles the sources that changed since the manifest was written, or all of them if the compiler or its
// flags did, and keeps the images of the others.
func (b *builder) build(verbose bool) error {
	start := time.Now()
	m, old, err := b.manifests()
	if err != nil {
		return err
	}
	if m.Compiler, err = b.version(); err != nil {
		return err
	}
	if b.only != "" { // the others stay as they are
		m.Sources = slices.DeleteFunc(m.Sources, func(s manifest.Source) bool { return s.Stem != b.only && find(old, s.Stem) == nil })
	}
	same := old.Compiler == m.Compiler && slices.Equal(old.Flags, m.Flags)
	var jobs []*job
	for i := range m.Sources {
		s, before := &m.Sources[i], find(old, m.Sources[i].Stem)
		switch {
		case before != nil && b.only != "" && s.Stem != b.only:
			*s = *before
		case before != nil && same && !b.all && before.Hash == s.Hash && b.whole(before) == nil:
			s.Images = before.Images
		default:
			jobs = append(jobs, b.jobsOf(s)...)
		}
	}
	err = b.each(jobs, func(j *job) (err error) {
		j.source.Images[j.index], j.data, err = b.image(j.source.Stem, j.target)
		return err
	})
	if err != nil {
		return err
	}
	jobs = slices.DeleteFunc(jobs, func(j *job) bool { return j.source.Images[j.index].Omitted })
	for _, j := range jobs {
		if file := manifest.DictionaryFile(j.target); j.source.Stem == manifest.Dictionary && j.target != manifest.PTX && b.packs() {
			if _, none := b.readImage(file); none != nil {
				err = errors.Join(err, b.write(file, manifest.PackDictionary(j.data)))
			}
		}
	}
	if err != nil {
		return err
	}
	err = b.each(jobs, func(j *job) error {
		packed, err := manifest.Pack(j.target, j.data, b.readImage)
		if err != nil {
			return err
		}
		return b.write(j.source.Images[j.index].File(j.source.Stem), packed)
	})
	if err != nil {
		return err
	}
	if verbose {
		report(m)
	}
	text, err := manifest.Encode(m)
	if err != nil {
		return err
	}
	if err := b.write(manifest.File, text); err != nil {
		return err
	}
	if b.packs() {
		if err := b.write(manifest.PackedFile, manifest.PackManifest(text)); err != nil {
			return err
		}
	}
	fmt.Fprintf(b.log, "%s: compiled and stored %d of %d images in %.1f s\n", b.out, len(jobs), len(m.Sources)*len(b.targets), time.Since(start).Seconds())
	return b.removeOld(m)
}

// manifests returns a manifest of the sources as they are, without their images, and the manifest of the existing images, empty if there is none.
func (b *builder) manifests() (now, old *manifest.Manifest, err error) {
	files, err := manifest.FindFiles(os.DirFS(b.dir))
	if err != nil {
		return nil, nil, err
	}
	now = &manifest.Manifest{Flags: append(slices.Clone(flags), "ptx: "+ptxArch)}
	for _, stem := range files.Stems() {
		hash, err := manifest.SourceHash(b.read, stem+".cu")
		if err != nil {
			return nil, nil, err
		}
		now.Sources = append(now.Sources, manifest.Source{Stem: stem, Hash: hash, Images: make([]manifest.Image, len(b.targets))})
	}
	if len(now.Sources) == 0 || b.only != "" && find(now, b.only) == nil {
		return nil, nil, fmt.Errorf("no source %s", filepath.Join(b.dir, cmp.Or(b.only, "*")+".cu"))
	}
	old = new(manifest.Manifest)
	text, err := os.ReadFile(filepath.Join(b.out, manifest.File))
	if errors.Is(err, fs.ErrNotExist) {
		return now, old, nil
	}
	if err == nil {
		err = json.Unmarshal(text, old)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Join(b.out, manifest.File), err)
	}
	return now, old, nil
}

// folders returns the folder of the sources, and that of other headers.
func (b *builder) folders() []string {
	if b.headers == "" {
		return []string{b.dir}
	}
	return []string{b.dir, b.headers}
}

// read returns a source or header by its base name.
func (b *builder) read(name string) (text []byte, err error) {
	for _, dir := range b.folders() {
		files, failed := manifest.FindFiles(os.DirFS(dir))
		if failed != nil {
			return nil, failed
		}
		if text, err = files.Read(os.DirFS(dir), name); !errors.Is(err, fs.ErrNotExist) {
			return text, err
		}
	}
	return text, err
}

func (b *builder) write(name string, data []byte) error {
	if err := os.MkdirAll(b.out, 0o777); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.out, name), data, 0o666)
}

// find returns a manifest's entry for a source, nil if there is none.
func find(m *manifest.Manifest, stem string) *manifest.Source {
	i := slices.IndexFunc(m.Sources, func(s manifest.Source) bool { return s.Stem == stem })
	if i < 0 {
		return nil
	}
	return &m.Sources[i]
}

// whole returns an error unless every target's image of a source is there and matches the manifest.
func (b *builder) whole(s *manifest.Source) error {
	text, err := b.read(s.Stem + ".cu")
	if err != nil {
		return err
	}
	return s.Check(text, b.targets, b.readImage)
}

// readImage reads a file of the folder of images.
func (b *builder) readImage(file string) ([]byte, error) {
	return os.ReadFile(filepath.Join(b.out, file))
}

// A job is the compilation of one source for one target.
type job struct {
	source *manifest.Source
	target string
	index  int    // of the target
	data   []byte // the image, once it is compiled
}

// jobsOf returns the jobs for all images of a source.
func (b *builder) jobsOf(s *manifest.Source) (jobs []*job) {
	for i, target := range b.targets {
		jobs = append(jobs, &job{source: s, target: target, index: i})
	}
	return jobs
}

// each runs the jobs, b.workers at a time. It returns one error for each source, since those of its other targets are the same.
func (b *builder) each(jobs []*job, do func(*job) error) error {
	errs := toolkit.Each(jobs, b.workers, do)
	failed := map[string]bool{}
	for i, j := range jobs {
		if errs[i] != nil && failed[j.source.Stem] {
			errs[i] = nil
		} else if errs[i] != nil {
			failed[j.source.Stem] = true
		}
	}
	return errors.Join(errs...)
}

// packs reports whether the folder of the images has a packed manifest.
func (b *builder) packs() bool {
	_, err := os.Stat(filepath.Join(b.out, manifest.PackedFile))
	return err == nil
}

// removeOld deletes the files that the manifest does not name, such as the images of a source that is gone.
func (b *builder) removeOld(m *manifest.Manifest) error {
	keep := map[string]bool{manifest.File: true, manifest.PackedFile: true}
	for _, target := range b.targets {
		keep[manifest.DictionaryFile(target)] = true
	}
	for _, s := range m.Sources {
		for _, i := range s.Images {
			keep[i.File(s.Stem)] = !i.Omitted
		}
	}
	entries, err := os.ReadDir(b.out)
	for _, e := range entries {
		if !keep[e.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(b.out, e.Name())))
		}
	}
	return err
}
