package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

const root = "../.."

// No kernel changes without a run on a GPU.
func TestMeasuredWithTheseKernels(t *testing.T) {
	if err := Stale(filepath.Join(root, "bench/results"), kernels.Digest()); err != nil {
		t.Error(err)
	}
}

func TestReadmeSpeedTable(t *testing.T) {
	files, err := ReadDir(filepath.Join(root, "bench/results"))
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckReadme(filepath.Join(root, "README.md"), files); err != nil {
		t.Error(err)
	}
}

// Every file names the GPU that it is of, every result in it was right, no
// suite failed for reasons that are not known, and every peer belongs to a row.
func TestRecordedResults(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "bench/results/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		f, err := Read(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := filepath.Base(path); got != Name(f.GPU) {
			t.Errorf("%s is of a %s: want the name %s", got, f.GPU, Name(f.GPU))
		}
		if len(f.Rows) == 0 || len(f.Suites) == 0 || !(f.Copy > 0) {
			t.Errorf("%s: %d rows, %d suites, device copy %v GB/s: want some of each", path, len(f.Rows), len(f.Suites), f.Copy)
		}
		for _, r := range f.Rows {
			if !(r.Error <= 1) || r.Check == "" || !(r.Micros > 0) {
				t.Errorf("%s: %v: error %v of what is allowed, checked on %q, %v us", path, r.Key, r.Error, r.Check, r.Micros)
			}
		}
		for _, s := range f.Suites {
			if s.Result != "PASS" && s.Result != "CUT" && s.Known == "" {
				t.Errorf("%s: %s failed: %s", path, s.Name, s.Note)
			}
		}
		for _, p := range f.Unmatched() {
			t.Errorf("%s: peer %s times %v, which is no row", path, p.By, p.Key)
		}
	}
}

var sample = &File{
	GPU: "NVIDIA T1 (80GB)", Driver: "1.2", CUDA: "12.0", Date: "2026-01-02", Digest: "abc", Copy: 1000,
	Rows: []Row{
		{Key: Key{"Sum", "all of 8", "f32"}, Bytes: 900e6, Flops: 225e6, Micros: 1000},
		{Key: Key{"MatMul", "8 | 8", "f64"}, Bytes: 1e6, Flops: 1e9, Micros: 50},
	},
	Peers: []Peer{
		{Key{"Sum", "all of 8", "f32"}, "slow", 2000},
		{Key{"Sum", "all of 8", "f32"}, "quick", 950},
		{Key{"Sum", "nothing", "f32"}, "lost", 1},
	},
	Suites: []Suite{{Name: "ops", Result: "PASS", Seconds: 1}, {Name: "racecheck", Result: "FAIL", Seconds: 1}, {Name: "initcheck", Result: "CUT", Seconds: 1}},
}

func TestSpeedTable(t *testing.T) {
	got := SpeedTable([]*File{sample})
	for _, want := range []string{
		"**NVIDIA T1 (80GB)**, driver 1.2 (CUDA 12.0), 2026-01-02, kernels `abc`. Device copy: 1000 GB/s.",
		"| `Sum` | all of 8 | float32 | 1.00 ms | 900 GB/s | 90 % | quick, 950 us | 95 % |\n",
		`| ` + "`MatMul`" + ` | 8 \| 8 | float64 | 50.0 us | 20.0 TFLOP/s |  |  |  |` + "\n",
		"1 of 3 suites pass; 1 ran out of time with no failure until then; failed: racecheck.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestUpdateReadme(t *testing.T) {
	const readme = "a\n<!-- speed:begin -->\nold\n<!-- speed:end -->\nb\n"
	got, err := UpdateReadme(readme, nil)
	want := "a\n<!-- speed:begin -->\n" + SpeedTable(nil) + "<!-- speed:end -->\nb\n"
	if err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	path := filepath.Join(t.TempDir(), "README.md")
	for _, c := range []struct {
		text, want string
	}{{got, ""}, {readme, "stale"}, {strings.Replace(got, "<!-- speed:end -->", "", 1), "speed:end"}, {"", "speed:begin"}} {
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		err := CheckReadme(path, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("CheckReadme of %q: %v, want %q in it", c.text, err, c.want)
		}
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, Name(sample.GPU))
	if filepath.Base(path) != "nvidia-t1-80gb.json" {
		t.Errorf("name %s", path)
	}
	if err := sample.Write(path); err != nil {
		t.Fatal(err)
	}
	files, err := ReadDir(dir)
	if err != nil || len(files) != 1 || SpeedTable(files) != SpeedTable([]*File{sample}) {
		t.Errorf("read back %v, %v", files, err)
	}
	if lost := sample.Unmatched(); len(lost) != 1 || lost[0].By != "lost" {
		t.Errorf("unmatched %v", lost)
	}
	if err := Stale(dir, "abc"); err != nil {
		t.Errorf("fresh: %v", err)
	}
	if err := Stale(dir, "abd"); err == nil || !strings.Contains(err.Error(), "nvidia-t1-80gb.json") {
		t.Errorf("stale: %v", err)
	}
}

func TestReadSuites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "suites")
	for _, c := range []struct {
		text string
		n    int // suites; -1 is an error
	}{{"ops\tPASS\t1.5\t3 passed\nmemcheck\tFAIL\t2\t\n", 2}, {"ops\tPASS\t1.5\n", -1}, {"ops\tPASS\tx\t\n", -1}} {
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := ReadSuites(path)
		if (err != nil) != (c.n < 0) || err == nil && len(got) != c.n {
			t.Errorf("%q: %v, %v", c.text, got, err)
		}
		if err == nil && got[0] != (Suite{"ops", "PASS", 1.5, "3 passed", ""}) {
			t.Errorf("%q: %v", c.text, got[0])
		}
	}
}

func TestReadPeers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers.json")
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{`[{"op":"Sum","case":"x","dtype":"f32","by":"PyTorch","median_us":2.5}]`, true},
		{`[{"op":"Sum","case":"x","dtype":"f32","by":"PyTorch","median_us":0}]`, false},
		{`[{"op":"Sum","kase":"x"}]`, false},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadPeers(path); (err == nil) != c.ok || c.ok && got[0] != (Peer{Key{"Sum", "x", "f32"}, "PyTorch", 2.5}) {
			t.Errorf("%s: %v, %v", c.text, got, err)
		}
	}
}
