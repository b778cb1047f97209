package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/calibration"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

var update = flag.Bool("update", false, "write testdata/help.txt anew")

// stheno runs a command line.
func stheno(args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = run(args, &out, &err)
	return status, out.String(), err.String()
}

// succeed runs a command line that must succeed without output on standard error.
func succeed(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	status, stdout, stderr := stheno(args...)
	if status != 0 || stderr != "" {
		t.Fatalf("stheno %s: status %d, %s", strings.Join(args, " "), status, stderr)
	}
	return stdout
}

// allCommands are the words of every command, groups included.
func allCommands(t *testing.T) (all [][]string) {
	var walk func(n *kong.Node, words []string)
	walk = func(n *kong.Node, words []string) {
		all = append(all, words)
		for _, child := range n.Children {
			walk(child, append(words[:len(words):len(words)], child.Name))
		}
	}
	k := testutil.Get[*kong.Kong](t)(kong.New(&commands{}, kong.NoDefaultHelp()))
	walk(k.Model.Node, nil)
	return all
}

// The help of each command is in testdata/help.txt: it is the same on all machines.
func TestHelp(t *testing.T) {
	t.Setenv("COLUMNS", "100")
	var all strings.Builder
	for _, words := range allCommands(t) {
		all.WriteString("$ stheno " + strings.Join(append(words[:len(words):len(words)], "-h"), " ") + "\n")
		all.WriteString(succeed(t, append(words, "-h")...) + "\n")
	}
	got, path := all.String(), filepath.Join("testdata", "help.txt")
	dir := testutil.Get[string](t)(os.Getwd())
	if strings.Contains(got, dir) {
		t.Errorf("the help names the folder %s, want nothing of this machine", dir)
	}
	if *update {
		testutil.Write(t, path, got)
	}
	if want := string(testutil.Get[[]byte](t)(os.ReadFile(path))); got != want {
		t.Errorf("the help is not that of %s: if it is as it should be, go test ./cmd/stheno -run TestHelp -update\n%s", path, got)
	}
}

// Wherever a command is wrong, the status is 2, and the error names what was got and what
// is wanted; nothing is printed for programs that read standard output.
func TestMisuse(t *testing.T) {
	t.Chdir(filepath.Join("..", "..")) // maintainers' commands run in the repository's root
	for _, c := range []struct{ args, want string }{
		{"", `stheno: expected one of "doctor", "calibrate", "bench", "record", "explain"`},
		{"doctr", `unexpected argument doctr, did you mean "doctor"?`},
		{"doctor now", "stheno doctor: unexpected argument now"},
		{"doctor --device 1", "unknown flag --device"},
		{"bench", `stheno bench: expected one of "gpu", "host", "graphs"`},
		{"bench cpu", "unexpected argument cpu"},
		{"bench gpu --no", "unknown flag --no"},
		{"bench gpu -no", "unknown flag --no"},
		{"bench gpu --run", "--run: expected"},
		{"bench gpu --run (", `--run: got "(", want a regular expression`},
		{"bench gpu --run nothing", `--run: got "nothing", which matches none of the`},
		{"bench gpu --list --run nothing", `--run: got "nothing", which matches none of the`},
		{"bench host --run nothing", `--run: got "nothing", which matches none of the`},
		{"bench graphs --run nothing", `--run: got "nothing", which matches none of the`},
		{"maintain cases reps", `<set> must be one of "ops","graphs","steps","products" but got "reps"`},
		{"maintain cases ops --run nothing", `--run: got "nothing", which matches none of the`},
		{"bench gpu --runs 0", `--runs: got "0", want a whole number from 1 on`},
		{"bench host --runs 1.5", `--runs: got "1.5", want a whole number from 1 on`},
		{"bench gpu --seed x", "--seed: expected"},
		{"bench gpu --device=-1", "--device: expected"},
		{"bench host --device 0", "unknown flag --device"},
		{"bench gpu --random 0", `--random: got "0", want a whole number from 1 on`},
		{"bench gpu --random 1 --run Nothing", `--run: got "Nothing", which matches none of the ops Add, AllGather`},
		{"bench gpu --random 1 --most 0.001", "--most: got 0.001 megabytes, want at least 0.002"},
		{"bench gpu --most 7", "got --most or --peers without --random"},
		{"bench gpu --peers go.mod", "got --most or --peers without --random"},
		{"bench gpu --random 3 --versions", "got --versions with --random"},
		{"bench gpu --list --runs 3", "--list and --runs can't be used together"},
		{"bench gpu --list --device 1", "--list and --device can't be used together"},
		{"bench gpu --list --json x", "--list and --json can't be used together"},
		{"bench gpu --list --seed 1", "got --seed with --list"},
		{"bench gpu --list --random 3 --peers go.mod", "--list and --peers can't be used together"},
		{"bench host --list --runs 3", "--list and --runs can't be used together"},
		{"bench host --list --seed 1", "got --seed with --list"},
		{"bench graphs --list --json x", "--list and --json can't be used together"},
		{"bench graphs --list --device 1", "--list and --device can't be used together"},
		{"bench steps --list --runs 3", "--list and --runs can't be used together"},
		{"bench steps --list --json x", "--list and --json can't be used together"},
		{"explain nothing", `got graph "nothing", want one of map tanh(a*b)+c; chain of 2`},
		{"explain ,", `got graph ",", want one of`},
		{"explain --summary", "got no graph, want the name of one with --pass, --summary and --host"},
		{"explain mlp --pass nothing", `--pass: got "nothing", want one of lower, prune`},
		{"explain mlp softmax", "unexpected argument softmax"},
		{"trace", `expected "<graph>"`},
		{"trace nothing", `got graph "nothing", want one of`},
		{"trace mlp --runs 0", `--runs: got "0", want a whole number from 1 on`},
		{"env --cuda", "--cuda: expected"},
		{"env now", "unexpected argument now"},
		{"maintain", `expected one of "check", "suites"`},
		{"maintain merge", `expected "<file> ..."`},
		{"maintain merge nothing.json", "no such file"},
		{"maintain suites --gpu G --all", "--gpu and --all can't be used together"},
		{"maintain cases ops --gpu G", "got --gpu without --missing"},
		{"maintain record ops", "missing flags: --json=FILE"},
		{"maintain record drawn --json x", `must be one of`},
	} {
		status, stdout, stderr := stheno(strings.Fields(c.args)...)
		if status != misuse || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("stheno %s: status %d, stdout %q, stderr %q, want status %d and %q", c.args, status, stdout, stderr, misuse, c.want)
		}
	}
}

// A correct command that cannot be carried out here has status 1.
func TestFailure(t *testing.T) {
	t.Chdir(t.TempDir())
	testutil.Write(t, "empty", "")
	cases := []struct{ args, want string }{
		{"maintain tables", "the tables are written in the repository's root"},
		{"maintain cases ops --text empty", "--text: "},
		{"maintain check --recorded nowhere", "no results in"},
	}
	if _, err := cudaops.Devices(); err != nil {
		cases = append(cases, []struct{ args, want string }{
			{"bench gpu", `"stheno bench host" times the ops on this machine's processor`},
			{"bench gpu --device 99", `"stheno bench host" times the ops on this machine's processor`},
			{"bench graphs", "graphs are timed on one"},
			{"maintain suites", "--gpu names the GPU of another machine"},
			{"maintain record ops --json x.json", "records are made on one"},
			{"calibrate -o x.json", "a calibration is of one"},
		}...)
	} else {
		cases = append(cases, struct{ args, want string }{"bench gpu --device 99", "--device: got 99, want one of the"})
	}
	for _, c := range cases {
		status, _, stderr := stheno(strings.Fields(c.args)...)
		if status != failure || !strings.Contains(stderr, c.want) {
			t.Errorf("stheno %s: status %d, stderr %q, want status %d and %q", c.args, status, stderr, failure, c.want)
		}
	}
}

// fullDisk is a disk with room for some bytes more.
type fullDisk struct{ room int }

func (d *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	if d.room -= n; n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// fillDisk runs a command line that would succeed, on disks that are full from the first byte on and
// after three quarters of the output.
func fillDisk(t *testing.T, args ...string) {
	t.Helper()
	status, out, stderr := stheno(args...)
	if status != 0 || out == "" {
		t.Fatalf("stheno %s: status %d, %q, %s, want output", strings.Join(args, " "), status, out, stderr)
	}
	for _, room := range []int{0, len(out) * 3 / 4} { // times in the output differ in length
		var said bytes.Buffer
		if status := run(args, &fullDisk{room}, &said); status != failure || !strings.Contains(said.String(), syscall.ENOSPC.Error()) {
			t.Errorf("stheno %s, room for %d of %d bytes: status %d, stderr %q, want status %d and %q",
				strings.Join(args, " "), room, len(out), status, &said, failure, syscall.ENOSPC)
		}
	}
}

// A full disk is an error of every command that prints.
func TestFullDisk(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	fillDisk(t, "--version")
	for _, words := range allCommands(t) {
		fillDisk(t, append(words, "-h")...)
	}
	for _, args := range []string{
		"doctor",
		"bench gpu --list --run ^Sum/",
		"bench host --runs 1 --run ^MatMul/128.x.128/f32",
		"bench graphs --list",
		"bench steps --list",
		"explain",
		"explain mlp --host",
		"explain mlp --host --pass lower",
		"explain mlp --host --summary",
		"trace mlp --host --runs 1 --out " + os.DevNull,
		"maintain suites --all",
		"maintain cases ops --run ^Add/",
		"maintain cases graphs",
		"maintain cases steps",
	} {
		if gorgonia.CUDA && strings.HasPrefix(args, "bench host") {
			continue
		}
		fillDisk(t, strings.Fields(args)...)
	}
}

func TestVersion(t *testing.T) {
	if got := succeed(t, "--version"); !strings.HasPrefix(got, "stheno ") {
		t.Errorf("got %q, want the program's name and its version", got)
	}
}

func TestDoctorAlwaysConcludes(t *testing.T) {
	out := succeed(t, "doctor")
	for _, want := range []string{"go ", "kernels ", "so "} {
		if !strings.Contains("\n"+out, "\n"+want) {
			t.Errorf("no line %q in\n%s", want, out)
		}
	}
}

// runDoctor runs the doctor in another process, since the driver and the library for products are
// looked for once, and checks that it fails and says what is wanted.
func runDoctor(t *testing.T, environment []string, want ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestDoctorProgram$")
	cmd.Env = slices.Concat(os.Environ(), []string{"STHENO_PROGRAM=doctor"}, environment)
	out, err := cmd.CombinedOutput()
	for _, want := range want {
		if !strings.Contains(string(out), want) || cmd.ProcessState.ExitCode() != failure {
			t.Errorf("got %v and %s, want status %d and %q", err, out, failure, want)
		}
	}
}

// TestDoctorProgram is the program that runDoctor starts.
func TestDoctorProgram(t *testing.T) {
	if os.Getenv("STHENO_PROGRAM") == "doctor" {
		os.Exit(run([]string{"doctor"}, os.Stdout, os.Stderr))
	}
}

// Where there is no GPU and the library that STHENO_BLAS names cannot be used, no graph runs, and
// the doctor says so.
func TestDoctorWithoutProducts(t *testing.T) {
	runDoctor(t, []string{"STHENO_BLAS=atlas", "CUDA_VISIBLE_DEVICES="},
		"\nso         no graph runs\n", "hostblas: got STHENO_BLAS=atlas, want gonum")
}

// brokenDriver is the source of a driver with an H100 that makes no context, or loads no module.
const brokenDriver = `
#include <stdlib.h>
#include <string.h>
int cuInit(int flags) { return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuGetErrorName(int code, const char **text) { *text = "BROKEN"; return 0; }
int cuGetErrorString(int code, const char **text) { *text = "broken for a test"; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *device, int i) { *device = i; return 0; }
int cuDeviceGetName(char *name, int n, int device) { strncpy(name, "NVIDIA H100", n); return 0; }
int cuDeviceTotalMem_v2(size_t *n, int device) { *n = 80ul << 30; return 0; }
int cuDeviceGetAttribute(int *v, int attribute, int device) {
	*v = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : attribute == 1 ? 1024 : 48 << 10;
	return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = context; return CONTEXT; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuStreamCreate(void **stream, int flags) { *stream = stream; return 0; }
int cuStreamDestroy_v2(void *stream) { return 0; }
int cuStreamSynchronize(void *stream) { return 0; }
int cuMemGetInfo_v2(size_t *unused, size_t *all) { *unused = *all = 80ul << 30; return 0; }
int cuMemAlloc_v2(size_t *p, size_t n) { *p = 1 << 20; return 0; }
int cuMemFree_v2(size_t p) { return 0; }
int cuMemHostAlloc(void **p, size_t n, int flags) { *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096); return 0; }
int cuMemFreeHost(void *p) { free(p); return 0; }
int cuModuleLoadDataEx(void **module, const void *image, int n, int *options, void **values) { return MODULE; }
`

// A GPU that answers but makes no context, or loads no module, is a failure that the doctor reports:
// it does not say that graphs run on the GPU.
func TestDoctorWithBrokenDriver(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("no C compiler for Linux")
	}
	h100 := kernels.Device{Name: "NVIDIA H100", Major: 9, SMs: 132}
	measured := kernels.Calibration{Memory: 3e12, L2: 5e12, FMAs: 3e13, Launch: 3, Load: 1, Barrier: 1}
	folder := t.TempDir()
	good, damaged := filepath.Join(folder, "good"), filepath.Join(folder, "damaged")
	testutil.Do(t, calibration.Write(good, h100, measured))
	testutil.Do(t, os.WriteFile(damaged, testutil.Get[[]byte](t)(os.ReadFile(good))[1:], 0o666))
	for _, c := range []struct{ define, call, calibration, says string }{
		{"-DCONTEXT=2 -DMODULE=0", "cuDevicePrimaryCtxRetain", good, "\ncalibrated device 0 by calibration " + measured.Name()},
		{"-DCONTEXT=0 -DMODULE=209", "cuModuleLoadDataEx", damaged, "\nmissing    device 0: calibration ignored: " + damaged},
	} {
		dir := t.TempDir()
		make := exec.Command(cc, append(strings.Fields(c.define), "-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.1"), "-x", "c", "-")...)
		make.Stdin = strings.NewReader(brokenDriver)
		if out, err := make.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		runDoctor(t, []string{"LD_LIBRARY_PATH=" + dir, calibration.Variable + "=" + c.calibration}, c.says,
			"\nmissing    device 0: ", "\nso         stheno.NewVM returns this error", "stheno doctor: device 0: ", c.call+": broken for a test")
	}
}

// Every bench lists its cases, and a pattern chooses among them.
func TestList(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"bench gpu --run ^Sum/all.*30", "Sum/all 2^30/f32\n"},
		{"bench gpu --versions --run ^Sum/all.2.28.version.7", "Sum/all 2^28 version 7/f32\n"},
		{"bench gpu -run ^Sum/all.*30", "Sum/all 2^30/f32\n"},
		{"bench host --run ^Mean/.*f64", "Mean/all 2^22/f64\n"},
		{"bench graphs --run ^softmax/.*128/", "softmax/16384x128/f32\n"},
	} {
		if got := succeed(t, append(strings.Fields(c.args), "--list")...); got != c.want {
			t.Errorf("stheno %s --list: got %q, want %q", c.args, got, c.want)
		}
	}
	if got := succeed(t, "bench", "gpu", "--list"); strings.Contains(got, "version") {
		t.Errorf("numbered versions were not wanted:\n%s", got)
	}
}

// A bench on the host prints a line for each case.
func TestBenchOnHost(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"bench host --runs 1 --seed 7 --run ^MatMul/128", `(?s)best of 1 runs, seed 7\nproducts: Stheno's by .*; Gorgonia's by gonum\n.*\nMatMul/128 x 128/f32 +\S+ [um]s +\S+ [um]s +[0-9.]+ times as fast\n.*f64`},
	} {
		if gorgonia.CUDA {
			if status, _, stderr := stheno(strings.Fields(c.args)...); status != failure || !strings.Contains(stderr, "without the tag cuda") {
				t.Errorf("with the tag cuda: status %d, %s, want an error that says to build without", status, stderr)
			}
			continue
		}
		if got := succeed(t, strings.Fields(c.args)...); !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("stheno %s: want %s, got\n%s", c.args, c.want, got)
		}
	}
}

// Programs are shown pass by pass, or those that are wanted, or in numbers.
func TestExplain(t *testing.T) {
	names := strings.Split(strings.TrimSpace(succeed(t, "explain")), "\n")
	if len(names) < 10 || names[0] != "map tanh(a*b)+c/2^28" {
		t.Errorf("got names %q, want those of all graphs", names)
	}
	for _, g := range graphspec.All() {
		sized, err := findGraph(graphName(g))
		named, wrong := findGraph(g.Name)
		if err != nil || wrong != nil || graphName(sized) != graphName(g) || named.Name != g.Name {
			t.Errorf("%s is found as %s and as %s, %v, %v, want itself", graphName(g), graphName(sized), graphName(named), err, wrong)
		}
	}
	all := succeed(t, "explain", "softmax", "--host")
	for _, want := range []string{"softmax/16384x128 on host backend\n\n== lower\n", "\n== fuse\n", "\n== place\n", "rowmax(x0)"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	two := succeed(t, "explain", "Softmax 16384X128", "--host", "--pass", "lower", "--pass", "fuse")
	if got := regexp.MustCompile(`(?m)^== .*`).FindAllString(two, -1); strings.Join(got, " ") != "== lower == fuse" {
		t.Errorf("got passes %q, want lower and fuse", got)
	}
	for section := range strings.SplitSeq(two, "== ") {
		if !strings.Contains(all, strings.TrimSpace(section)) {
			t.Errorf("%q is not part of what is shown without --pass", section)
		}
	}
	short := succeed(t, "explain", "mlp", "--host", "--summary")
	if !regexp.MustCompile(`(?m)^MLP 784-512-512-10, gradient/batch 128 on host backend\n\npass +instructions.*\nlower +\d+ .*(\n\w.*)+\nplace +\d+ `).MatchString(short) {
		t.Errorf("got %s, want a line for each pass", short)
	}
}

// A trace is a file for a viewer.
func TestTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.json")
	out := succeed(t, "trace", "mlp", "--host", "--runs", "2", "--out", path)
	if !regexp.MustCompile(`^MLP 784-512-512-10, gradient/batch 128: 2 runs of \d+ steps, the last of \S+s, on host backend\nwrote .*trace.json, .*perfetto`).MatchString(out) {
		t.Errorf("got %q", out)
	}
	if text := string(testutil.Get[[]byte](t)(os.ReadFile(path))); !json.Valid([]byte(text)) || !strings.Contains(text, `"run 2"`) || !strings.Contains(text, `"ph":"X"`) {
		t.Errorf("%s has no events", path)
	}
	if status, _, stderr := stheno("trace", "chain of 2", "--host", "--out", t.TempDir()); status != failure || !strings.Contains(stderr, "is a directory") {
		t.Errorf("a folder: status %d, %s, want an error", status, stderr)
	}
}

// Columns are aligned for cells of any width. A failed case prints its error instead of its cells.
func TestRows(t *testing.T) {
	var out bytes.Buffer
	r := newRows(&console{&out, &out}, 3, column{"case", 6}, column{"time", 7}, column{"of", 2})
	r.begin("one")
	r.add("one", "1.00 µs", "")
	r.add("longer", "12.0 ms", "7")
	err := r.fail(fakeCase{key: records.Key{Op: "bad", Case: "1"}}, os.ErrInvalid)
	r.end()
	const want = "case       time  of\none     1.00 µs\nlonger  12.0 ms   7\nbad/1/  failed: invalid argument\n"
	if err == nil || err.Error() != "bad/1/: invalid argument" {
		t.Errorf("got %v, want the error with the case's name", err)
	}
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// The bar shows how far a bench is and the current case, and goes away for a row.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	r := newRows(&console{new(bytes.Buffer), &out}, 4, column{"case", 6})
	r.begin("no terminal")
	if r.add(""); out.Len() > 0 {
		t.Errorf("got %q in a file, want no bar", &out)
	}
	r.startBar(4)
	r.begin("Sum/all")
	r.add("Sum/all")
	r.begin("Sum/rows")
	r.end()
	for _, want := range []string{"0 / 4 [", "1 / 4 [", "Sum/all", "Sum/rows", "\r\x1b[K"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
}
