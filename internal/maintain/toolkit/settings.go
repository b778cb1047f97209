package toolkit

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/cudaops/compat"
)

// Settings are the settings for cgo.
type Settings struct {
	CFlags, LDFlags []string // flags for CGO_CFLAGS and CGO_LDFLAGS
	// Stub is a folder with a stand-in for the driver, libcuda.so.1, that
	// every build links. On LD_LIBRARY_PATH it also lets a program start where
	// there is no driver.
	Stub string
}

// Prepare makes, in a folder of its own in cache, the files that a toolkit lacks: the
// headers of package compat, links named libcublas.so and libcudnn.so, and a
// stand-in for the driver, which only machines with a GPU have. cc is the C
// compiler.
//
// Go's build cache sees flags but not the contents of headers. So the folder's name is a hash of
// its contents: other headers or another toolkit have other flags, and so a new build.
func (t *Toolkit) Prepare(cache, cc string) (*Settings, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, t, cc)
	for _, name := range []string{"cuda.h", "cudnn.h", "cudnn_version.h"} {
		fmt.Fprintf(hash, "%q\n", t.header(name))
	}
	own, err := fs.Glob(compat.Headers, "include/*")
	if err != nil {
		return nil, err
	}
	for _, path := range own {
		text, err := compat.Headers.ReadFile(path)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(hash, "%s %q\n", path, text)
	}
	dir := filepath.Join(cache, fmt.Sprintf("cuda-%x", hash.Sum(nil)[:6]))
	if _, err := os.Stat(dir); err != nil {
		if err := t.make(dir, cc); err != nil {
			return nil, err
		}
	}

	s := &Settings{Stub: filepath.Join(dir, "lib")}
	s.CFlags = []string{"-O2", "-g", "-I" + filepath.Join(dir, "include")}
	for _, d := range t.Include {
		s.CFlags = append(s.CFlags, "-I"+d)
	}
	// The linker does not need the dependencies of the libraries: they are found at load time.
	s.LDFlags = []string{"-O2", "-g", "-L" + s.Stub, "-Wl,--allow-shlib-undefined"}
	for _, path := range t.Libraries { // a program finds them where they were when it was built
		if flag := "-Wl,-rpath," + filepath.Dir(path); !slices.Contains(s.LDFlags, flag) {
			s.LDFlags = append(s.LDFlags, flag)
		}
	}
	return s, nil
}

// make makes the folder elsewhere and moves it into place whole, so that two
// processes may do so at once.
func (t *Toolkit) make(dir, cc string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	if err := os.CopyFS(temp, compat.Headers); err != nil {
		return err
	}
	lib := filepath.Join(temp, "lib")
	if err := os.Mkdir(lib, 0o755); err != nil {
		return err
	}
	for _, path := range t.Libraries {
		name, _, _ := strings.Cut(filepath.Base(path), ".so")
		if err := os.Symlink(path, filepath.Join(lib, name+".so")); err != nil {
			return err
		}
	}
	if err := t.makeStub(lib, cc); err != nil {
		return err
	}
	err = os.Rename(temp, dir)
	if _, there := os.Stat(dir); there == nil {
		return nil
	}
	return err
}

// header returns the text of a header of the toolkit, none if it is not there.
func (t *Toolkit) header(name string) []byte {
	for _, dir := range t.Include {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return text
		}
	}
	return nil
}

// driverName matches the names in cuda.h and in compat's cuda.h that look like functions of the driver.
var driverName = regexp.MustCompile(`\bcu[A-Z]\w*`)

// stubText is the message of the stand-in's functions that explain an error.
var stubText = map[string]string{
	"cuGetErrorName":   "CUDA_ERROR_STUB_LIBRARY",
	"cuGetErrorString": "the libcuda.so.1 that this program loaded is not the driver but a stand-in for it",
}

// makeStub compiles a libcuda.so.1 whose functions all return CUDA_ERROR_STUB_LIBRARY, as those of
// NVIDIA's own stand-in do.
func (t *Toolkit) makeStub(lib, cc string) error {
	text, err := compat.Headers.ReadFile("include/cuda.h")
	if err != nil {
		return err
	}
	names := driverName.FindAllString(string(text)+string(t.header("cuda.h")), -1)
	slices.Sort(names)
	var source bytes.Buffer
	for _, name := range slices.Compact(names) {
		if text, special := stubText[name]; special {
			fmt.Fprintf(&source, "int %s(int code, const char **text) { *text = %q; return 0; }\n", name, text)
		} else {
			fmt.Fprintf(&source, "int %s(void) { return 34; }\n", name)
		}
	}
	args := append(strings.Fields(cc), "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1",
		"-o", filepath.Join(lib, "libcuda.so.1"), "-x", "c", "-")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = &source
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s cannot make a stand-in for libcuda.so: %w\n%s", cc, err, out)
	}
	return os.Symlink("libcuda.so.1", filepath.Join(lib, "libcuda.so"))
}

// Check compiles the toolkit's headers and links its libraries, which finds faults that cannot be seen
// in folders: a version that is too old, a missing header that another one includes, a library for another processor.
func (t *Toolkit) Check(s *Settings, cc string) error {
	const source = `
#include <cuda.h>
#include <cublas_v2.h>
#include <cudnn.h>
#if CUDA_VERSION < 11080 || CUDNN_MAJOR < 8
#error want CUDA 11.8 or later and cuDNN 8 or later
#endif
int main(void) { return 0; }
`
	args := slices.Concat(strings.Fields(cc), s.CFlags, []string{"-w", "-o", os.DevNull, "-x", "c", "-"}, s.LDFlags,
		[]string{"-lcuda", "-lcublas", "-lcudnn"})
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(source)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s cannot build with the CUDA in %s: %w\n%s", cc, t.Root, err, bytes.TrimSpace(out))
	}
	return nil
}

// Exports are the settings as lines for a shell.
func (s *Settings) Exports() (string, error) {
	cflags, err := join(s.CFlags)
	if err != nil {
		return "", err
	}
	ldflags, err := join(s.LDFlags)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("export CGO_ENABLED=1\nexport CGO_CFLAGS=%s\nexport CGO_LDFLAGS=%s\n", shellQuote(cflags), shellQuote(ldflags)), nil
}

// StubExport is a line for a shell that puts the stand-in for the driver on the
// path of libraries.
func (s *Settings) StubExport() string {
	return fmt.Sprintf("export LD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n", shellQuote(s.Stub))
}

// join writes flags as Go reads them: with spaces between, and quotes around
// those that have spaces.
func join(flags []string) (string, error) {
	quoted := make([]string, len(flags))
	for i, f := range flags {
		switch {
		case !strings.ContainsAny(f, " \t\n'\""):
			quoted[i] = f
		case !strings.Contains(f, "'"):
			quoted[i] = "'" + f + "'"
		case !strings.Contains(f, `"`):
			quoted[i] = `"` + f + `"`
		default:
			return "", fmt.Errorf("a path with both kinds of quotes cannot be put into cgo's settings: %s", f)
		}
	}
	return strings.Join(quoted, " "), nil
}

// shellQuote quotes for a POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
