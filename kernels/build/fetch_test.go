package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// fakePython puts a python3 that writes its arguments to a file, and exits with a status,
// alone on the PATH.
func fakePython(t *testing.T, status string) (arguments func() string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the compiler is fetched on Linux alone")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "arguments")
	must.Do(t, os.WriteFile(filepath.Join(dir, "python3"), []byte("#!/bin/sh\necho \"$@\" >> "+file+"\necho a word of pip\nexit "+status+"\n"), 0o777))
	t.Setenv("PATH", dir)
	return func() string {
		text, _ := os.ReadFile(file) // there is none before the first run
		return string(text)
	}
}

// The compiler is fetched once, by pip, in the versions of the images.
func TestFetch(t *testing.T) {
	arguments := fakePython(t, "0")
	toolkit := t.TempDir()
	for range 2 {
		must.Do(t, fetch(toolkit, new(bytes.Buffer)))
		want := "-m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target " + toolkit + " " + strings.Join(wheels, " ") + "\n"
		if got := arguments(); got != want {
			t.Errorf("python3 got %q, want %q", got, want)
		}
	}
	put(t, filepath.Join(toolkit, "versions"), "others")
	must.Do(t, fetch(toolkit, new(bytes.Buffer)))
	if n := strings.Count(arguments(), "\n"); n != 2 {
		t.Errorf("python3 ran %d times, want twice: there were other versions", n)
	}
	_, m, err := (&builder{dir: "..", out: "../images"}).manifests()
	must.Do(t, err)
	if want := "nvidia-cuda-nvrtc-cu12==" + strings.TrimPrefix(m.Compiler, "NVRTC "); wheels[0] != want {
		t.Errorf("the wheel %s is fetched, want %s, which compiled the images", wheels[0], want)
	}
}

// The error of a failed fetch names the remedy, and the next fetch tries again.
func TestFetchFails(t *testing.T) {
	arguments := fakePython(t, "3")
	toolkit := t.TempDir()
	for range 2 {
		var log bytes.Buffer
		if err := fetch(toolkit, &log); err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(log.String(), "a word of pip") {
			t.Errorf("got error %v and log %q, want the status and what pip said", err, &log)
		}
	}
	if n := strings.Count(arguments(), "\n"); n != 2 {
		t.Errorf("python3 ran %d times, want twice", n)
	}
	t.Setenv("PATH", t.TempDir())
	if err := fetch(toolkit, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "there is no python3 to fetch them: install python3 and pip") {
		t.Errorf("without python3: got error %v", err)
	}
}

// The command explains how to get the compiler, and refuses flags that it would ignore.
func TestCommand(t *testing.T) {
	toolkit := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		args, want string
		status     int
	}{
		{"-dir .. -toolkit " + toolkit + " compile add.cu " + manifest.PTX, "build -fetch -toolkit " + toolkit + "` puts it there", 1},
		{"-fetch -check -toolkit " + toolkit + " -j 3", "got -fetch with -check, -j, want no other flag than -toolkit", 2},
		{"-for 1s -toolkit " + toolkit, "got -for without -check, want both", 2},
		{"-since HEAD -toolkit " + toolkit, "got -since without -check, want both", 2},
		{"-check -v -toolkit " + toolkit, "got -v with -check, which prints no kernels", 2},
		{"-fetch here", `got arguments ["here"], want flags alone`, 2},
	} {
		if runtime.GOOS != "linux" && c.status == 1 {
			c.want = errSystem.Error()
		}
		cmd := exec.Command(os.Args[0], strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), "STHENO_PROGRAM=build")
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), c.want) || cmd.ProcessState.ExitCode() != c.status {
			t.Errorf("build %s: %v, %s\nwant status %d and %q", c.args, err, out, c.status, c.want)
		}
	}
}
