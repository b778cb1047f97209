package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/maintain/toolkit"
	"github.com/stheno-ml/stheno/internal/test/testutil"
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
		status, stdout, stderr := stheno(append([]string{"env"}, args...)...)
		if status == 0 || stdout != "" {
			t.Errorf("env %v: status %d, stdout %q, want an error and nothing for the shell", args, status, stdout)
			return ""
		}
		return stderr
	}
	for _, want := range []string{dir + " lacks cublas_v2.h", "libcublas.so", "pip install", "nvidia-cublas=="} {
		if got := tryEnv("--cuda", dir); !strings.Contains(got, want) {
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
	if got := tryEnv("now"); !strings.Contains(got, "unexpected argument now") {
		t.Errorf("an argument: %q", got)
	}
}

// smallToolkit makes a toolkit that has as much as 'stheno env' asks for.
func smallToolkit(t *testing.T, cc string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "it's CUDA") // for the quotes
	for name, text := range map[string]string{
		"cuda.h":          "#define CUDA_VERSION 12040\ntypedef enum { CUDA_SUCCESS } CUresult;\nCUresult cuInit(unsigned int flags);\n",
		"cublas_v2.h":     "",
		"cudnn.h":         "#include \"cudnn_version.h\"\n",
		"cudnn_version.h": "#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 9\n#define CUDNN_PATCHLEVEL 7\n",
	} {
		testutil.Write(t, filepath.Join(dir, "include", name), text)
	}
	if err := os.Mkdir(filepath.Join(dir, "lib64"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libcublas.so", "libcudnn.so"} {
		cmd := exec.Command(cc, "-shared", "-o", filepath.Join(dir, "lib64", name), "-x", "c", os.DevNull)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return dir
}

// The output, evaluated by a shell, sets the variables, with a device and without, with
// --stub and without.
func TestEnvSettings(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the tag cuda is for Linux")
	}
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no C compiler")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("CC", cc)
	t.Setenv("CUDNN_HOME", "")
	t.Setenv("CUDNN_PATH", "")
	t.Setenv("LD_LIBRARY_PATH", "/mine")
	dir := smallToolkit(t, cc)

	evaluate := func(exports string) (cgo, cflags, ldflags, path string) {
		t.Helper()
		out, err := exec.Command("sh", "-c", exports+`printf '%s\n' "$CGO_ENABLED" "$CGO_CFLAGS" "$CGO_LDFLAGS" "$LD_LIBRARY_PATH"`).CombinedOutput()
		lines := strings.Split(string(out), "\n")
		if err != nil || len(lines) != 5 {
			t.Fatalf("%v\n%s", err, out)
		}
		return lines[0], lines[1], lines[2], lines[3]
	}
	check := func(stdout string, stub bool) {
		t.Helper()
		cgo, cflags, ldflags, path := evaluate(stdout)
		at := strings.Index(cflags, "-I"+cache)
		if cgo != "1" || at < 0 || at > strings.Index(cflags, dir) || !strings.Contains(ldflags, "-L"+cache) {
			t.Errorf("CGO_ENABLED=%s\nCGO_CFLAGS=%s\nCGO_LDFLAGS=%s\nwant Stheno's headers, in %s, before those of %s", cgo, cflags, ldflags, cache, dir)
		}
		if got := strings.HasPrefix(path, cache); got != stub || !strings.HasSuffix(path, "/mine") {
			t.Errorf("--stub %v: LD_LIBRARY_PATH=%s", stub, path)
		}
	}

	status, stdout, stderr := stheno("env", "--cuda", dir)
	if status != 0 {
		t.Fatal(stderr)
	}
	check(stdout, false)
	want := "stheno env: CUDA in " + dir + ", cuDNN in " + filepath.Join(dir, "lib64") + "\n"
	if !strings.HasPrefix(stderr, want) {
		t.Errorf("it says %q, want %q first", stderr, want)
	}
	fillDisk(t, "env", "--cuda", dir)

	settings := &toolkit.Settings{CFlags: []string{"-I" + cache, "-I" + dir}, LDFlags: []string{"-L" + cache}, Stub: cache}
	const build, hides = "programs build here", "--stub hides this machine's GPU"
	for _, c := range []struct {
		noDevice    error
		stub        bool
		says, quiet string
	}{
		{nil, false, "CUDA in /here", "stheno env: " + cudaops.ErrNoDevice.Error()},
		{nil, true, hides, build},
		{cudaops.ErrNoDevice, false, build, hides},
		{cudaops.ErrNoDevice, true, "CUDA in /here", build},
	} {
		var stdout, stderr bytes.Buffer
		if err := printEnv(&console{&stdout, &stderr}, &toolkit.Toolkit{Root: "/here", Libraries: []string{"a", "b"}}, settings, c.noDevice, c.stub); err != nil {
			t.Fatal(err)
		}
		check(stdout.String(), c.stub)
		if got := stderr.String(); !strings.Contains(got, c.says) || strings.Contains(got, c.quiet) {
			t.Errorf("no device: %v, --stub: %v: it says %q, want %q in it and not %q", c.noDevice, c.stub, got, c.says, c.quiet)
		}
	}
}
