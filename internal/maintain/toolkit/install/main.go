// Command install installs CUDA and cuDNN for Gorgonia's tag cuda, as wheels, into .cuda: the first of toolkit.Releases. Run it in
// the root of the repository.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stheno-ml/stheno/internal/command"
	"github.com/stheno-ml/stheno/internal/maintain/toolkit"
)

func main() {
	command.Flags("install")
	command.Exit("install", install(toolkit.Releases[0]))
}

// install installs the wheels of a release into its folder, unless they are there.
func install(r toolkit.Release) error {
	dir := filepath.Join(".cuda", r.Name())
	stamp, want := filepath.Join(dir, "wheels.txt"), strings.Join(r.Wheels, "\n")+"\n"
	if got, err := os.ReadFile(stamp); err == nil && string(got) == want {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	args := r.Install(dir)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return os.WriteFile(stamp, []byte(want), 0o666)
}
