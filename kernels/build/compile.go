package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// flags are the options that decide the bytes, beside the architecture. --ptxas-options=-v only puts registers and spills into the log.
var flags = []string{"--std=c++17", "--ptxas-options=-v"}

// ptxArch is the oldest device that the PTX is for.
const ptxArch = "compute_70"

// compiler compiles one source. The log is given with an error too.
type compiler interface {
	compile(name, source string, options []string, ptx bool) (image []byte, log string, err error)
}

// startCompiler compiles a source for a target in a process of its own, this program once more: when several threads of one process used NVRTC, an
// image sometimes came out with other bytes. The log is returned with an error too.
func (b *builder) startCompiler(name, target string, source []byte) (image []byte, log string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	var out, said bytes.Buffer
	c := exec.Command(self, "-toolkit", b.toolkit, "-dir", b.dir, "-headers", b.headers, "compile", name, target)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(source), &out, &said
	if err := c.Run(); err != nil {
		return nil, said.String(), fmt.Errorf("%s for %s: %w", name, target, err)
	}
	return out.Bytes(), said.String(), nil
}

// compileInput is that process: it compiles standard input for a target and writes the image to standard output, the log to standard error.
func (b *builder) compileInput(name, target string) error {
	source, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	c, err := openCompiler(b.toolkit)
	if err != nil {
		return err
	}
	arch := target
	if target == manifest.PTX {
		arch = ptxArch
	}
	options := append([]string{"--gpu-architecture=" + arch}, flags...)
	for _, dir := range b.folders() {
		files, err := manifest.FindFiles(os.DirFS(dir))
		if err != nil {
			return err
		}
		for _, folder := range files.Folders() {
			options = append(options, "-I"+filepath.Join(dir, folder))
		}
	}
	for _, part := range []string{"cuda_runtime", "cuda_nvcc", "cuda_cccl"} {
		options = append(options, "-I"+filepath.Join(b.toolkit, "nvidia", part, "include"))
	}
	image, log, err := c.compile(name, string(source), options, target == manifest.PTX)
	fmt.Fprintln(os.Stderr, log)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(image)
	return err
}

// version asks for the compiler's version, which stands in the PTX of even an empty source.
func (b *builder) version() (string, error) {
	ptx, log, err := b.compile("empty.cu", manifest.PTX, nil)
	if err != nil {
		return "", errors.Join(err, errors.New(strings.TrimSpace(log)))
	}
	return compilerOf(ptx), nil
}

// image compiles a source for a target and describes the image.
func (b *builder) image(stem, target string) (manifest.Image, []byte, error) {
	image := manifest.Image{Target: target}
	source, err := b.read(stem + ".cu")
	if err != nil {
		return image, nil, err
	}
	data, log, err := b.compile(stem+".cu", target, source)
	if err != nil {
		return image, nil, fmt.Errorf("%w\n%s", err, log)
	}
	var warnings string
	image.Kernels, warnings = parseLog(log)
	if warnings != "" {
		fmt.Fprintf(b.log, "%s.cu for %s:\n%s", stem, target, warnings)
	}
	image.Hash, image.Bytes = manifest.Sum(data), len(data)
	stored, tests, err := manifest.StoredTargets(source)
	image.Omitted, image.Tests = !slices.Contains(stored, target), slices.Contains(tests, target)
	return image, data, err
}
