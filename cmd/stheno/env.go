package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/toolkit"
)

const envUsage = `usage: eval "$(stheno env [flags])"

Prints the settings with which cgo builds Gorgonia's tag cuda, for a shell, and
on standard error what it found, or what is missing and how to get it. It looks
in $CUDA_HOME or $CUDA_PATH if set, else in wheels under .cuda, then in
/usr/local/cuda*, /opt/cuda and /usr; for cuDNN also in $CUDNN_HOME.

`

// envCommand prints settings for a build with the tag cuda.
func envCommand(args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("env", flag.ContinueOnError)
	root := f.String("cuda", "", "take the CUDA in this `folder`, instead of looking for one")
	stub := f.Bool("stub", false, "also let programs start where there is no driver: puts a stand-in for it on LD_LIBRARY_PATH")
	f.Usage = func() {
		fmt.Fprint(stderr, envUsage)
		f.PrintDefaults()
	}
	if err := parse(f, args, stderr); err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return fmt.Errorf("env: Stheno builds Gorgonia's tag cuda on Linux, this is %s; without the tag, stheno.NewVM runs on the GPU here too", runtime.GOOS)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("env: no folder to keep headers and links in: %w", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	tools, err := findTools(dir)
	if err != nil {
		return fmt.Errorf("env: %w", err)
	}
	roots := toolkit.Roots(os.Getenv, dir)
	if *root != "" {
		roots = []string{*root}
	}
	t, settings, err := prepare(roots, toolkit.DNNRoots(os.Getenv), filepath.Join(cache, "stheno"), tools.CC)
	if err != nil {
		return fmt.Errorf("env: %w", err)
	}
	exports, err := settings.Exports()
	if err != nil {
		return fmt.Errorf("env: %w", err)
	}
	fmt.Fprintf(stderr, "stheno env: CUDA %s in %s, cuDNN %s, %s, gorgonia.org/cu %s\n", t.CUDA, t.Root, cmp.Or(t.CUDNN, "of unknown version"), tools.CC, cmp.Or(tools.CU, "of unknown version"))
	_, noDevice := cudaops.Devices()
	if noDevice != nil && !*stub {
		fmt.Fprintf(stderr, "stheno env: %v\nstheno env: programs build here; to start them without a driver (graphs run on the host): eval \"$(stheno env -stub)\"\n", noDevice)
	}
	fmt.Fprint(stdout, exports)
	if *stub {
		if noDevice == nil {
			fmt.Fprintln(stderr, "stheno env: -stub hides this machine's GPU from the programs of this shell")
		}
		fmt.Fprint(stdout, settings.StubExport())
	}
	return nil
}

// prepare finds a toolkit that can build, and makes its settings. The error
// says what is missing and how to get it.
func prepare(roots, dnnRoots []string, cache, cc string) (*toolkit.Toolkit, *toolkit.Settings, error) {
	t, err := toolkit.Find(roots, dnnRoots)
	var settings *toolkit.Settings
	if err == nil {
		if settings, err = t.Prepare(cache, cc); err == nil {
			err = t.Check(settings, cc)
		}
	}
	var missing *toolkit.Missing
	if errors.As(err, &missing) {
		err = fmt.Errorf("%w\n%s", err, missing.Advice())
	}
	return t, settings, err
}

// tools are what a build needs beside CUDA.
type tools struct {
	CC string // the C compiler
	CU string // the version of gorgonia.org/cu in the module of the working folder, "" if there is none
}

// findTools asks the go command. All that is wrong comes back at once.
func findTools(dir string) (*tools, error) {
	out, err := goCommand(dir, "env", "-json", "CC")
	if err != nil {
		return nil, err
	}
	t := new(tools)
	if err := json.Unmarshal(out, t); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	var wrong []error
	if words := strings.Fields(t.CC); len(words) == 0 {
		wrong = append(wrong, errors.New("no C compiler, which cgo needs: install gcc"))
	} else if _, err := exec.LookPath(words[0]); err != nil {
		wrong = append(wrong, fmt.Errorf("no C compiler, which cgo needs: install gcc, or set CC (it is %q): %w", t.CC, err))
	}
	// A module may not use cu, or there may be no module: then nothing is known.
	if out, err := goCommand(dir, "list", "-m", "-f", "{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}", "gorgonia.org/cu"); err == nil {
		t.CU = string(bytes.TrimSpace(out))
	}
	wrong = append(wrong, checkCU(t.CU))
	return t, errors.Join(wrong...)
}

// checkCU refuses a gorgonia.org/cu that is too old; "" is one of unknown
// version.
func checkCU(version string) error {
	if version == "" || toolkit.CompareVersions(version, oldestCU) >= 0 {
		return nil
	}
	return fmt.Errorf("gorgonia.org/cu %s is too old, want %s or later: go get gorgonia.org/cu@%s, with no replace of it in go.mod", version, oldestCU, oldestCU)
}

// oldestCU is the gorgonia.org/cu that the headers of package compat are made
// for. Before v0.9.5 it launches 2-D blocks with a wrong z and does not build
// on CUDA 12.
const oldestCU = "v0.9.6"

func goCommand(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("no go command, which a build needs: %w", err)
	}
	return out, nil
}
