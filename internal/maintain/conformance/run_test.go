package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// build compiles a suite, without cgo, as Stheno's users do.
func (s suite) build(tree string) error {
	binary, err := filepath.Abs(s.binary(tree))
	if err != nil {
		return err
	}
	args := []string{"build"}
	if s.test != "" {
		args = []string{"test", "-c", "-vet=off"}
	}
	args = append(args, "-tags", "native", "-trimpath", "-ldflags=-s -w", "-o", binary, ".") // native: the BLAS of Go
	cmd := exec.Command("go", args...)
	cmd.Dir = s.folder(tree)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v in %s: %w\n%s", cmd, s.dir, err, out)
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
	if err := s.makeWeights(tree); err != nil {
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
	args := s.args
	if s.test != "" {
		args = append([]string{"-test.v"}, args...)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = s.folder(tree)
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
