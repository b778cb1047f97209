package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// field returns a string of a JSON object.
func field(text []byte, name string) (string, error) {
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return "", err
	}
	s, ok := object[name].(string)
	if !ok {
		return "", fmt.Errorf("no %s in %s", name, text)
	}
	return s, nil
}

// build compiles a suite, without cgo, as Stheno's users do.
func (s suite) build(tree string, flags ...string) error {
	binary, err := filepath.Abs(s.binary(tree))
	if err != nil {
		return err
	}
	args := append([]string{"test", "-c", "-vet=off", "-tags", "native"}, flags...) // native: the BLAS of Go
	args = append(args, "-trimpath", "-ldflags=-s -w", "-o", binary, ".")
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(tree, filepath.FromSlash(s.built()))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v in %s: %w\n%s", cmd, s.built(), err, out)
	}
	return nil
}

// environment returns the environment of a run: the settings for the random numbers that the tests
// were written with, and the variables that the hook reads.
func (s suite) environment(mode, log string) []string {
	if mode == "tape" {
		mode = ""
	}
	return append([]string{"GODEBUG=randautoseed=0,randseednop=0", "STHENO_CONFORMANCE=" + mode, "STHENO_CONFORMANCE_LOG=" + log}, s.env...)
}

// limit is how long a run may take.
const limit = 10 * time.Minute

// run runs a suite in a mode.
func (s suite) run(tree, mode string) error {
	printed, record, exit := s.log(tree, mode, "log"), s.log(tree, mode, "jsonl"), s.log(tree, mode, "exit")
	if err := os.MkdirAll(filepath.Dir(printed), 0o777); err != nil {
		return err
	}
	if err := os.Remove(record); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	out, err := os.Create(printed)
	if err != nil {
		return err
	}
	defer out.Close()
	binary, err := filepath.Abs(s.binary(tree))
	if err != nil {
		return err
	}
	if record, err = filepath.Abs(record); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, s.arguments()...)
	cmd.Dir = filepath.Join(tree, filepath.FromSlash(s.dir))
	cmd.Env = append(os.Environ(), s.environment(mode, record)...)
	cmd.Stdout, cmd.Stderr = out, out
	status := 0
	if err := cmd.Run(); err != nil {
		failed := new(exec.ExitError)
		if !errors.As(err, &failed) {
			return fmt.Errorf("%v: %w", cmd, err)
		}
		status = failed.ExitCode()
	}
	return os.WriteFile(exit, []byte(strconv.Itoa(status)+"\n"), 0o666)
}

// modes are how it is run, one after the other.
func (s suite) modes() []string {
	if !s.timed {
		return modes
	}
	return slices.Concat(modes, timedModes)
}

// arguments are those of the binary.
func (s suite) arguments() []string {
	if s.test {
		return append([]string{"-test.v"}, s.args...)
	}
	return append([]string{path.Base(s.dir)}, s.args...)
}
