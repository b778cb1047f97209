package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/maintain/toolkit"
)

// env prints settings for a build with the tag cuda.
type env struct {
	Cuda string `placeholder:"FOLDER" type:"path" help:"Take the CUDA toolkit in this folder instead of looking for one."`
	Stub bool   `help:"Also let programs start where there is no driver: put a stand-in for it on LD_LIBRARY_PATH."`
}

func (env) Help() string {
	return `For a shell to evaluate:

  eval "$(stheno env)"

On standard error it reports the parts that it found, or those that are missing and how to get them. It looks in $CUDA_HOME
or $CUDA_PATH if set, else in wheels under .cuda, then in /usr/local/cuda*, /opt/cuda and /usr, then
in $VIRTUAL_ENV and $CONDA_PREFIX; for cuDNN also in $CUDNN_HOME. Only builds with Gorgonia's tag cuda
need this: Stheno's own machine, stheno.NewVM, uses the GPU without.`
}

// Run looks for a toolkit and prints the settings for it.
func (e env) Run(c *console) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("Stheno builds Gorgonia's tag cuda on Linux, this is %s; without the tag, stheno.NewVM runs on the GPU here too", runtime.GOOS)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("no folder to keep headers and links in: %w", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	tools, err := findTools(dir)
	if err != nil {
		return err
	}
	roots := toolkit.Roots(os.Getenv, dir)
	if e.Cuda != "" {
		roots = []string{e.Cuda}
	}
	t, settings, err := prepare(roots, toolkit.DNNRoots(os.Getenv), filepath.Join(cache, "stheno"), tools.CC)
	if err != nil {
		return err
	}
	_, noDevice := cudaops.Devices()
	return printEnv(c, t, settings, tools, noDevice, e.Stub)
}

// printEnv prints the settings and the toolkit that they are for. noDevice is why this machine has
// no GPU, nil if it has one.
func printEnv(c *console, t *toolkit.Toolkit, settings *toolkit.Settings, tools *tools, noDevice error, stub bool) error {
	exports, err := settings.Exports()
	if err != nil {
		return err
	}
	fmt.Fprintf(c.err, "stheno env: CUDA %s in %s, cuDNN %s, %s, gorgonia.org/cu %s\n", t.CUDA, t.Root, cmp.Or(t.CUDNN, "of unknown version"), tools.CC, tools.CU)
	if noDevice != nil && !stub {
		fmt.Fprintf(c.err, "stheno env: %v\nstheno env: programs build here; to start them without a driver (graphs run on the host): eval \"$(stheno env --stub)\"\n", noDevice)
	}
	if noDevice == nil && stub {
		fmt.Fprintln(c.err, "stheno env: --stub hides this machine's GPU from the programs of this shell")
	}
	fmt.Fprint(c.out, exports)
	if stub {
		fmt.Fprint(c.out, settings.StubExport())
	}
	return nil
}

// prepare finds a usable toolkit and makes its settings. The error names what is missing and how to
// get it.
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

// tools are the programs that a build needs beside CUDA.
type tools struct {
	CC string // the C compiler
	CU module // gorgonia.org/cu in the module of the working folder
}

// module is the output of 'go list -m -json' for a module; it is empty if there is none.
type module struct {
	Version string
	Replace *struct{ Path, Version string } // Version is "" for a folder
}

func (m module) String() string {
	switch {
	case m.Replace != nil && m.Replace.Version == "":
		return fmt.Sprintf("replaced by the folder %s, want %s or later there", m.Replace.Path, oldestCU)
	case m.Replace != nil:
		return m.Replace.Version
	}
	return cmp.Or(m.Version, "of unknown version")
}

// findTools asks the go command. It returns all mistakes at once.
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
	// A module may not use cu, or there may be no module: then the version is unknown.
	if out, err := goCommand(dir, "list", "-m", "-json", "gorgonia.org/cu"); err == nil {
		if err := json.Unmarshal(out, &t.CU); err != nil {
			return nil, fmt.Errorf("go list -m: %w", err)
		}
	}
	wrong = append(wrong, checkCU(t.CU))
	return t, errors.Join(wrong...)
}

// checkCU refuses a gorgonia.org/cu that is too old. The version in a folder that replaces it is
// unknown.
func checkCU(m module) error {
	version := m.Version
	if m.Replace != nil {
		version = m.Replace.Version
	}
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
