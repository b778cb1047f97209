package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestEnvSaysWhatIsMissing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the tag cuda is for Linux")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "include"), 0o777); err != nil {
		t.Fatal(err)
	}
	header := filepath.Join(dir, "include", "cuda.h")
	if err := os.WriteFile(header, []byte("#define CUDA_VERSION 12040\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	tryEnv := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		err := run(append([]string{"env"}, args...), &stdout, &stderr)
		if err == nil || stdout.Len() > 0 {
			t.Errorf("env %v: error %v, stdout %q, want an error and nothing for the shell", args, err, stdout.String())
			return ""
		}
		return err.Error() + stderr.String()
	}
	for _, want := range []string{dir + " lacks cublas_v2.h", "libcublas.so", "pip install", "nvidia-cublas-cu12==12.4"} {
		if got := tryEnv("-cuda", dir); !strings.Contains(got, want) {
			t.Errorf("an incomplete toolkit: %q, want %q in it", got, want)
		}
	}
	t.Setenv("CUDA_HOME", filepath.Join(dir, "none"))
	if got := tryEnv(); !strings.Contains(got, "none lacks cuda.h") {
		t.Errorf("a wrong CUDA_HOME: %q", got)
	}
	t.Setenv("CC", "no-such-compiler")
	if got := tryEnv(); !strings.Contains(got, "no C compiler") || !strings.Contains(got, "gcc") {
		t.Errorf("no compiler: %q", got)
	}
	t.Setenv("PATH", dir)
	if got := tryEnv(); !strings.Contains(got, "no go command") {
		t.Errorf("no go: %q", got)
	}
	if got := tryEnv("now"); !strings.Contains(got, `"now"`) {
		t.Errorf("an argument: %q", got)
	}
}

func TestOldCUIsRefused(t *testing.T) {
	for version, ok := range map[string]bool{"v0.9.4": false, "v0.9.5": false, "v0.9.6": true, "v0.10.0": true, "": true} {
		err := checkCU(version)
		if (err == nil) != ok {
			t.Errorf("%q: %v", version, err)
		}
		if err != nil && !strings.Contains(err.Error(), "go get gorgonia.org/cu@v0.9.6") {
			t.Errorf("%q: %v, want what to do", version, err)
		}
	}
}
