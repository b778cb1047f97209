// Command build compiles kernels/*.cu into kernels/images with NVRTC, NVIDIA's
// compiler library: no nvcc, no gcc, no cgo. It needs Linux and a folder with
// the toolkit's wheels in it; `make images` sets that up. The same sources and
// the same compiler give the same bytes.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// flags are the options that decide the bytes, beside the architecture.
// --ptxas-options=-v only puts registers and spills into the log.
var flags = []string{"--std=c++17", "--ptxas-options=-v"}

// ptxArch is the oldest device that the PTX is for.
const ptxArch = "compute_70"

// compiler compiles one source. The log is given with an error too.
type compiler interface {
	compile(name, source string, options []string, ptx bool) (image []byte, log string, err error)
}

func main() {
	var b builder
	flag.StringVar(&b.dir, "dir", "kernels", "folder with the sources; images go to images in it")
	flag.StringVar(&b.toolkit, "toolkit", ".toolkit", "folder that the toolkit's wheels were unpacked into")
	flag.StringVar(&b.only, "only", "", "compile only the source with this stem, for development")
	flag.IntVar(&b.workers, "j", 2, "compile that many images at a time")
	check := flag.Bool("check", false, "write nothing: compare with the images there, exit 1 naming what differs")
	verbose := flag.Bool("v", false, "print registers, stack and spills of each kernel")
	flag.Parse()
	if err := b.run(*check, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "kernels/build:", err)
		os.Exit(1)
	}
}

type builder struct {
	dir, toolkit, only string
	workers            int
	known              map[string]string // hash by file, of the images to compare with
}

func (b *builder) run(check, verbose bool) error {
	images := filepath.Join(b.dir, "images")
	if check {
		old, err := b.old()
		if err != nil {
			return fmt.Errorf("%w: run `make images`", err)
		}
		b.known = map[string]string{}
		for _, s := range old.Sources {
			for _, i := range s.Images {
				b.known[i.File] = i.Hash
			}
		}
	}
	m, files, err := b.build()
	if err != nil {
		return err
	}
	if verbose {
		report(m)
	}
	if check {
		return compare(images, files)
	}
	if err := os.MkdirAll(images, 0o777); err != nil {
		return err
	}
	for name, data := range files {
		if name != manifest.File {
			data = manifest.Pack(data)
		}
		if err := os.WriteFile(filepath.Join(images, name), data, 0o666); err != nil {
			return err
		}
	}
	return b.removeOld(images, m)
}

// build compiles everything in memory: the manifest, and the files by name,
// the manifest's among them, not packed.
func (b *builder) build() (*manifest.Manifest, map[string][]byte, error) {
	stems, err := b.stems()
	if err != nil {
		return nil, nil, err
	}
	c, err := openCompiler(b.toolkit)
	if err != nil {
		return nil, nil, err
	}
	m := &manifest.Manifest{Flags: append(slices.Clone(flags), "ptx: "+ptxArch)}
	files := map[string][]byte{}
	for _, stem := range stems {
		hash, err := manifest.SourceHash(b.read, stem+".cu")
		if err != nil {
			return nil, nil, err
		}
		m.Sources = append(m.Sources, manifest.Source{Stem: stem, Hash: hash, Images: make([]manifest.Image, len(manifest.Targets))})
	}

	var mu sync.Mutex              // guards files and failures
	failures := map[string]error{} // by stem: one target's errors say it all
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(b.workers, 1))
	for _, source := range m.Sources {
		for i, target := range manifest.Targets {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				image, data, err := b.compile(c, source.Stem, target)
				// One image of all came out otherwise once in five builds, on a machine
				// short of time, and as always when compiled again.
				for again := 0; err == nil && again < 2 && b.known[image.File] != "" && image.Hash != b.known[image.File]; again++ {
					fmt.Fprintf(os.Stderr, "%s differs: compiling it again\n", image.File)
					image, data, err = b.compile(c, source.Stem, target)
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failures[source.Stem] = err
				}
				source.Images[i] = image
				files[image.File] = data
			})
		}
	}
	wg.Wait()
	if err := errors.Join(slices.Collect(maps.Values(failures))...); err != nil {
		return nil, nil, err
	}

	m.Compiler = compilerOf(files[manifest.ImageFile(stems[0], manifest.PTX)])
	if b.only != "" {
		if err := b.addOthers(m); err != nil {
			return nil, nil, err
		}
	}
	files[manifest.File], err = m.Encode()
	return m, files, err
}

// old reads the manifest of the images that there are.
func (b *builder) old() (m manifest.Manifest, err error) {
	text, err := b.read(filepath.Join("images", manifest.File))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%s: %w", manifest.File, err)
	}
	return m, nil
}

func (b *builder) read(name string) ([]byte, error) { return os.ReadFile(filepath.Join(b.dir, name)) }

func (b *builder) stems() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(b.dir, "*.cu"))
	if err != nil {
		return nil, err
	}
	var stems []string
	for _, p := range paths {
		stem := strings.TrimSuffix(filepath.Base(p), ".cu")
		if b.only == "" || b.only == stem {
			stems = append(stems, stem)
		}
	}
	if len(stems) == 0 {
		return nil, fmt.Errorf("no source %s", filepath.Join(b.dir, cmp.Or(b.only, "*")+".cu"))
	}
	return stems, nil // in order: Glob sorts
}

func (b *builder) compile(c compiler, stem, target string) (manifest.Image, []byte, error) {
	image := manifest.Image{Target: target, File: manifest.ImageFile(stem, target)}
	source, err := b.read(stem + ".cu")
	if err != nil {
		return image, nil, err
	}
	arch := target
	if target == manifest.PTX {
		arch = ptxArch
	}
	options := append([]string{"--gpu-architecture=" + arch, "-I" + b.dir}, flags...)
	for _, part := range []string{"cuda_runtime", "cuda_nvcc", "cuda_cccl"} {
		options = append(options, "-I"+filepath.Join(b.toolkit, "nvidia", part, "include"))
	}
	data, log, err := c.compile(stem+".cu", string(source), options, target == manifest.PTX)
	if err != nil {
		return image, nil, fmt.Errorf("%s for %s: %w\n%s", stem+".cu", target, err, log)
	}
	var warnings string
	image.Kernels, warnings = parseLog(log)
	if warnings != "" {
		fmt.Fprintf(os.Stderr, "%s.cu for %s:\n%s", stem, target, warnings)
	}
	image.Hash, image.Bytes = manifest.Sum(data), len(data)
	return image, data, nil
}

var (
	entryLine  = regexp.MustCompile(`Compiling entry function '([^']+)'`)
	stackLine  = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	usedLine   = regexp.MustCompile(`Used (\d+) registers`)
	sharedPart = regexp.MustCompile(`(\d+) bytes smem`)
)

// expected are lines that every build has: the assembler's report, and NVRTC's
// word on sm_70, whose support is why this compiler is used.
var expected = regexp.MustCompile(`^(ptxas info|nvrtc: warning: Architectures prior to|\s*$)`)

// parseLog reads what the assembler says about each kernel. The rest of the
// log is warnings.
func parseLog(log string) (kernels []manifest.Kernel, warnings string) {
	var k manifest.Kernel
	number := func(s string) int { n, _ := strconv.Atoi(s); return n } // digits by the pattern
	for line := range strings.Lines(log) {
		if m := entryLine.FindStringSubmatch(line); m != nil {
			k = manifest.Kernel{Name: m[1]}
		} else if m := stackLine.FindStringSubmatch(line); m != nil {
			k.Stack, k.Spill = number(m[1]), number(m[2])+number(m[3])
		} else if m := usedLine.FindStringSubmatch(line); m != nil {
			k.Registers = number(m[1])
			if m := sharedPart.FindStringSubmatch(line); m != nil {
				k.Shared = number(m[1])
			}
			kernels = append(kernels, k)
		} else if !expected.MatchString(line) {
			warnings += line
		}
	}
	slices.SortFunc(kernels, func(a, b manifest.Kernel) int { return strings.Compare(a.Name, b.Name) })
	return kernels, warnings
}

var toolsLine = regexp.MustCompile(`Cuda compilation tools, release [\d.]+, V([\d.]+)`)

// compilerOf reads the compiler's full version out of a PTX file, since
// NVRTC's own call leaves the last part out.
func compilerOf(ptx []byte) string {
	if m := toolsLine.FindSubmatch(ptx); m != nil {
		return "NVRTC " + string(m[1])
	}
	return "NVRTC, version unknown"
}

// addOthers takes over the sources that were not compiled this time from the
// manifest that is there.
func (b *builder) addOthers(m *manifest.Manifest) error {
	old, err := b.old()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, s := range old.Sources {
		if s.Stem != b.only {
			m.Sources = append(m.Sources, s)
		}
	}
	slices.SortFunc(m.Sources, func(a, b manifest.Source) int { return strings.Compare(a.Stem, b.Stem) })
	return nil
}

// compare names each file in the folder that is not as it was just built. It
// compares images unpacked, since another Go may pack them in another way.
func compare(images string, files map[string][]byte) error {
	var wrong []string
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(images, name))
		if err == nil && name != manifest.File {
			got, err = manifest.Unpack(got)
		}
		if errors.Is(err, fs.ErrNotExist) {
			wrong = append(wrong, name+" is missing")
		} else if err != nil {
			wrong = append(wrong, name+": "+err.Error())
		} else if !bytes.Equal(got, want) {
			wrong = append(wrong, name+" differs")
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("%s is not what the sources give, run `make images`:\n  %s", images, strings.Join(wrong, "\n  "))
	}
	fmt.Printf("%d files in %s are what the sources give\n", len(files), images)
	return nil
}

// removeOld deletes what the manifest does not name, such as the images of a
// source that is gone.
func (b *builder) removeOld(images string, m *manifest.Manifest) error {
	keep := map[string]bool{manifest.File: true}
	for _, s := range m.Sources {
		for _, i := range s.Images {
			keep[i.File] = true
		}
	}
	entries, err := os.ReadDir(images)
	for _, e := range entries {
		if !keep[e.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(images, e.Name())))
		}
	}
	return err
}

func report(m *manifest.Manifest) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "kernel\ttarget\tregisters\tstack\tspill\tshared\t")
	for _, s := range m.Sources {
		for _, i := range s.Images {
			for _, k := range i.Kernels {
				fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t\n", k.Name, i.Target, k.Registers, k.Stack, k.Spill, k.Shared)
			}
		}
	}
	w.Flush()
}
