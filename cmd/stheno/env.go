package main

import (
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
	cc, err := compiler(dir)
	if err != nil {
		return err
	}
	roots := toolkit.Roots(os.Getenv, dir)
	if e.Cuda != "" {
		roots = []string{e.Cuda}
	}
	t, err := toolkit.Find(roots, toolkit.DNNRoots(os.Getenv))
	if err != nil {
		return fmt.Errorf("%w\n%s", err, toolkit.Advice())
	}
	settings, err := t.Prepare(filepath.Join(cache, "stheno"), cc)
	if err == nil {
		err = t.Check(settings, cc)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, toolkit.Advice())
	}
	_, noDevice := cudaops.Devices()
	return printEnv(c, t, settings, noDevice, e.Stub)
}

// printEnv prints the settings and the toolkit that they are for. noDevice is why this machine has
// no GPU, nil if it has one.
func printEnv(c *console, t *toolkit.Toolkit, settings *toolkit.Settings, noDevice error, stub bool) error {
	exports, err := settings.Exports()
	if err != nil {
		return err
	}
	fmt.Fprintf(c.err, "stheno env: CUDA in %s, cuDNN in %s\n", t.Root, filepath.Dir(t.Libraries[1]))
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

// compiler asks the go command, in a folder, for the C compiler of cgo.
func compiler(dir string) (string, error) {
	cmd := exec.Command("go", "env", "CC")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("no go command that a build can use: %w", err)
	}
	cc := strings.TrimSpace(string(out))
	name, _, _ := strings.Cut(cc, " ")
	if _, err := exec.LookPath(name); err != nil {
		return "", fmt.Errorf("no C compiler, which cgo needs: install gcc, or set CC (it is %q): %w", cc, err)
	}
	return cc, nil
}
