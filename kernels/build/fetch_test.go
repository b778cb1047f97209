package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
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
	testutil.Do(t, os.WriteFile(filepath.Join(dir, "python3"), []byte("#!/bin/sh\necho \"$@\" >> "+file+"\necho a word of pip\nexit "+status+"\n"), 0o777))
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
		testutil.Do(t, fetch(toolkit, new(bytes.Buffer)))
		want := "-m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target " + toolkit + " " + strings.Join(wheels, " ") + "\n"
		if got := arguments(); got != want {
			t.Errorf("python3 got %q, want %q", got, want)
		}
	}
	put(t, filepath.Join(toolkit, "versions"), "others")
	testutil.Do(t, fetch(toolkit, new(bytes.Buffer)))
	if n := strings.Count(arguments(), "\n"); n != 2 {
		t.Errorf("python3 ran %d times, want twice: there were other versions", n)
	}
	_, m, err := (&builder{dir: "..", out: "../images", targets: manifest.Targets}).manifests()
	testutil.Do(t, err)
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

// wheelOf returns a Python package that holds one file with the package's name in it.
func wheelOf(t *testing.T, name, version, file string) []byte {
	t.Helper()
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	info := fmt.Sprintf("%s-%s.dist-info/", strings.ReplaceAll(name, "-", "_"), version)
	for _, f := range [][2]string{
		{file, name},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", ""},
	} {
		w := testutil.Get[io.Writer](t)(z.Create(f[0]))
		testutil.Get[int](t)(w.Write([]byte(f[1])))
	}
	testutil.Do(t, z.Close())
	return packed.Bytes()
}

// The command fetches the packages by pip from a registry, here a local one, into an empty
// folder, and a second time asks for nothing.
func TestFetchFromRegistry(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the compiler is fetched on Linux alone")
	}
	if out, err := exec.Command("python3", "-m", "pip", "--version").CombinedOutput(); err != nil {
		testutil.SkipUnless(t, "TOOLKIT", fmt.Errorf("no pip: %w: %s", err, out))
	}
	var asked atomic.Int32
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		for _, wheel := range wheels {
			name, version, _ := strings.Cut(wheel, "==")
			file := fmt.Sprintf("%s-%s-py3-none-any.whl", strings.ReplaceAll(name, "-", "_"), version)
			switch r.URL.Path {
			case "/simple/" + name + "/":
				w.Header().Set("Content-Type", "text/html")
				fmt.Fprintf(w, `<!DOCTYPE html><html><body><a href="/%s">%[1]s</a></body></html>`, file)
				return
			case "/" + file:
				w.Write(wheelOf(t, name, version, "nvidia/"+name))
				return
			}
		}
		http.NotFound(w, r)
	}))
	defer registry.Close()
	toolkit := filepath.Join(t.TempDir(), "toolkit")
	for turn, want := range []string{"fetching nvidia-cuda-nvrtc", toolkit + " has the compiler already"} {
		before := asked.Load()
		cmd := exec.Command(os.Args[0], "-fetch", "-toolkit", toolkit)
		cmd.Env = append(os.Environ(), "STHENO_PROGRAM=build", "HOME="+t.TempDir(), "PIP_NO_CACHE_DIR=1", "PIP_CONFIG_FILE="+os.DevNull, "PIP_FIND_LINKS=",
			"PIP_EXTRA_INDEX_URL=", "PIP_INDEX_URL="+registry.URL+"/simple", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "WARNING") {
			t.Fatalf("build -fetch: %v, %s\nwant %q and no warning", err, out, want)
		}
		if n := asked.Load() - before; (n > 0) != (turn == 0) {
			t.Errorf("turn %d asked the registry %d times, want it to ask in the first turn alone", turn, n)
		}
	}
	for _, wheel := range wheels {
		name, _, _ := strings.Cut(wheel, "==")
		if got, err := os.ReadFile(filepath.Join(toolkit, "nvidia", name)); string(got) != name {
			t.Errorf("%s: got %q, %v, want the file of the package", wheel, got, err)
		}
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
		{"-fetch -check -toolkit " + toolkit + " -j 3", "got -check with -fetch, want no other flag than -toolkit", 2},
		{"-for 1s -toolkit " + toolkit, "got -for without -check, want both", 2},
		{"-since HEAD -toolkit " + toolkit, "got -since without -check, want both", 2},
		{"-check -v -toolkit " + toolkit, "got -v with -check, which prints no kernels", 2},
		{"-j 0", "-j is 0, want at least 1", 2},
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
