package results

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

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
				t.Errorf("%s: %v: error %v of the allowed one, checked on %q, %v us", path, r.Key, r.Error, r.Check, r.Micros)
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
	GPU: "NVIDIA T1 (80GB)", Run: Run{Driver: "1.2", CUDA: "12.0", Date: "2026-01-02", Copy: 1000},
	Rows: []Row{
		{Key: Key{"Sum", "all of 8", "f32"}, Bytes: 900e6, Flops: 225e6, Micros: 1000, Kernels: Digests{"sum": "a", "dot": "b"}},
		{Key: Key{"MatMul", "8 | 8", "f64"}, Bytes: 1e6, Flops: 1e9, Micros: 50},
		{Key: Key{"Sum", "all of 9", "f32"}, Version: 2, Bytes: 1, Micros: 1},
		{Key: Key{"Sum", "rows", "f32"}, Bytes: 900e6, Micros: 1000, Run: &Run{Driver: "1.3", Date: "2026-02-03", Copy: 1800}},
	},
	Peers: []Peer{
		{Key{"Sum", "all of 8", "f32"}, "slow", 2000, nil},
		{Key{"Sum", "all of 8", "f32"}, "quick", 950, nil},
		{Key{"Sum", "nothing", "f32"}, "lost", 1, nil},
	},
	Suites: []Suite{{Name: "ops", Result: "PASS", Seconds: 1}, {Name: "racecheck", Result: "FAIL", Seconds: 1}, {Name: "initcheck", Result: "CUT", Seconds: 1}},
}

func TestSpeedTable(t *testing.T) {
	got := SpeedTable([]*File{sample}, []Key{{"Add", "8", "f32"}, {"Sum", "all of 8", "f32"}, {"Sum", "of none", "f64"}})
	for _, want := range []string{
		"**NVIDIA T1 (80GB)**, driver 1.2 (CUDA 12.0), 2026-01-02. Device copy: 1000 GB/s.",
		"| `Add` | 8 | float32 | not measured | | | | |\n| `Sum` | all of 8 | ",
		"| `Sum` | of none | float64 | not measured | | | | |\n| `Sum` | rows | float32 | 1.00 ms | 900 GB/s | 50 % |",
		"\nMeasured on 2026-02-03, driver 1.3: `Sum` rows float32.\n",
		"| `Sum` | all of 8 | float32 | 1.00 ms | 900 GB/s | 90 % | quick, 950 us | 95 % |\n",
		`| ` + "`MatMul`" + ` | 8 \| 8 | float64 | 50.0 us | 20.0 TFLOP/s |  |  |  |` + "\n",
		"1 of 3 suites pass; 1 ran out of time with no failure until then; failed: racecheck.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "all of 9") {
		t.Errorf("a row of a numbered version is in\n%s", got)
	}
}

func TestUpdateReadme(t *testing.T) {
	const readme = "a\n<!-- speed:begin -->\nold\n<!-- speed:end -->\nb\n"
	got, err := UpdateReadme(readme, nil, nil)
	want := "a\n<!-- speed:begin -->\n" + SpeedTable(nil, nil) + "<!-- speed:end -->\nb\n"
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
		err := CheckPage(path, UpdateReadme, nil, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("CheckPage of %q: %v, want %q in it", c.text, err, c.want)
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
	if err != nil || len(files) != 1 || !reflect.DeepEqual(files[0], sample) {
		t.Errorf("read back %v, %v", files, err)
	}
	if lost := sample.Unmatched(); len(lost) != 1 || lost[0].By != "lost" {
		t.Errorf("unmatched %v", lost)
	}
}

func TestSuiteOf(t *testing.T) {
	for name, want := range map[string]string{
		"memcheck Sum": "memcheck [Sum] 1/1", "test Add|Dot": "test [Add Dot] 1/1", "racecheck MatMul 2/4": "racecheck [MatMul] 2/4",
		"kernels": "kernels [] 1/1", "memcheck finds a fault": "memcheck [finds] 1/1",
	} {
		tool, targets, part, parts := Suite{Name: name}.Of()
		if got := fmt.Sprintf("%s %v %d/%d", tool, targets, part, parts); got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
}

// A later run replaces the outcomes of all that it ran and marks them as its own; the rest stays. A run
// of everything leaves nothing of the one before.
func TestMerge(t *testing.T) {
	row := func(name string, us float64) Row { return Row{Key: Key{"Op", name, "f32"}, Micros: us} }
	suite := func(name string) Suite { return Suite{Name: name, Result: "PASS", Kernels: Digests{"x": "1"}} }
	old := func() *File {
		return &File{GPU: "G", Run: Run{Date: "1"}, Rows: []Row{row("a", 1), row("b", 2)},
			Peers:  []Peer{{Key{"Op", "a", "f32"}, "P", 1, nil}, {Key{"Op", "b", "f32"}, "P", 1, nil}},
			Suites: []Suite{suite("memcheck A|B"), suite("memcheck C 1/2"), suite("memcheck C 2/2"), {Name: "go", Result: "PASS"}}}
	}
	f := old()
	later := &File{GPU: "G", Run: Run{Date: "2"}, Rows: []Row{row("b", 3)}, Peers: []Peer{{Key{"Op", "b", "f32"}, "P", 2, nil}},
		Suites: []Suite{suite("memcheck A 1/2"), suite("memcheck A 2/2"), suite("memcheck C 1/3")}}
	if err := f.Merge(later); err != nil {
		t.Fatal(err)
	}
	if b, _ := f.Row(Key{"Op", "b", "f32"}); len(f.Rows) != 2 || f.Date != "1" || b.Micros != 3 || b.Run == nil || b.Run.Date != "2" || f.Rows[0].Run != nil {
		t.Errorf("rows %+v of %s", f.Rows, f.Date)
	}
	if len(f.Peers) != 2 || f.Peers[1].Micros != 2 || f.Peers[1].Run == nil || f.Peers[0].Run != nil {
		t.Errorf("peers %+v", f.Peers)
	}
	var names []string
	for _, s := range f.Suites {
		names = append(names, s.Name)
	}
	// A is complete and leaves A|B; of C there are two parts of three still to come.
	want := []string{"memcheck B", "memcheck C 1/2", "memcheck C 2/2", "go", "memcheck A 1/2", "memcheck A 2/2", "memcheck C 1/3"}
	if !slices.Equal(names, want) || f.Suites[4].Run == nil || f.Suites[0].Run != nil {
		t.Errorf("suites %q, want %q", names, want)
	}

	all := old()
	all.Run.Date = "3"
	if f = old(); f.Merge(all) != nil || !reflect.DeepEqual(f, all) {
		t.Errorf("merged with a run of everything: %+v, want that run", f)
	}
	if err := f.Merge(&File{GPU: "H"}); err == nil {
		t.Error("results of two GPUs were merged")
	}
}

func TestReadSuites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "suites")
	for _, c := range []struct {
		text string
		n    int // suites; -1 is an error
	}{
		{"ops\tPASS\t1.5\t3 passed\tsum=a,dot=b\nmemcheck\tFAIL\t2\t\t\n", 2},
		{"ops\tFAIL\t1\t1 failed\t\nops\tPASS\t1.5\t3 passed\tsum=a,dot=b\n", 1}, // the last outcome counts
		{"ops\tPASS\t1.5\t\n", -1}, {"ops\tPASS\tx\t\t\n", -1}, {"ops\tPASS\t1\t\tsum\n", -1},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := ReadSuites(path)
		if (err != nil) != (c.n < 0) || err == nil && len(got) != c.n {
			t.Errorf("%q: %v, %v", c.text, got, err)
		}
		want := Suite{Name: "ops", Result: "PASS", Seconds: 1.5, Note: "3 passed", Kernels: Digests{"sum": "a", "dot": "b"}}
		if err == nil && (!reflect.DeepEqual(got[0], want) || got[0].Kernels.String() != "dot=b,sum=a") {
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
		if got, err := ReadPeers(path); (err == nil) != c.ok || c.ok && got[0] != (Peer{Key{"Sum", "x", "f32"}, "PyTorch", 2.5, nil}) {
			t.Errorf("%s: %v, %v", c.text, got, err)
		}
	}
}

// Peers of rows that are all timed again stay until they are timed again themselves.
func TestMergeKeepsPeers(t *testing.T) {
	key := Key{"Sum", "all", "f32"}
	f := &File{GPU: "a", Run: Run{Date: "2026-01-01"}, Rows: []Row{{Key: key, Micros: 2}}, Peers: []Peer{{Key: key, By: "another library", Micros: 3}}}
	if err := f.Merge(&File{GPU: "a", Run: Run{Date: "2026-01-02"}, Rows: []Row{{Key: key, Micros: 1}}}); err != nil {
		t.Fatal(err)
	}
	if row, _ := f.Row(key); row.Micros != 1 || row.Run == nil || row.Run.Date != "2026-01-02" || len(f.Peers) != 1 || f.Date != "2026-01-01" {
		t.Errorf("got %+v, want the later row and the earlier peer", f)
	}
}

// Drawn cases replace those of another draw, which are other cases.
func TestMergeDrawn(t *testing.T) {
	f := &File{GPU: "G", Seed: 1, Rows: []Row{{Key: Key{"Sum", "7", "f32"}, Micros: 2}}}
	if err := f.Merge(&File{GPU: "G", Seed: 2, Rows: []Row{{Key: Key{"Sum", "8", "f32"}, Micros: 1}}}); err != nil {
		t.Fatal(err)
	}
	if len(f.Rows) != 1 || f.Rows[0].Case != "8" || f.Seed != 2 {
		t.Errorf("got %+v, want the later draw alone", f)
	}
}

// A table has the date of most of its rows, and names the others'.
func TestRuns(t *testing.T) {
	row := func(name string, run *Run) Row { return Row{Key: Key{"Sum", name, "f32"}, Micros: 1, Run: run} }
	later := &Run{Driver: "2", Date: "2026-01-03", Copy: 7}
	f := &File{Run: Run{Driver: "1", Date: "2026-01-02"}, Rows: []Row{row("a", nil), row("b", later), row("c", &Run{Driver: "2", Date: "2026-01-03"})}}
	if usual, others := f.runs(f.keys(nil)); usual.Date != later.Date || others != "\nMeasured on 2026-01-02, driver 1: `Sum` a float32.\n" {
		t.Errorf("one row of the file's run, two of another: got %v and %q", usual, others)
	}
	f.Rows = append(f.Rows, row("d", nil))
	if usual, others := f.runs(f.keys(nil)); usual.Date != f.Date || others != "\nMeasured on 2026-01-03, driver 2: `Sum` b float32, `Sum` c float32.\n" {
		t.Errorf("two rows of each: got %v and %q", usual, others)
	}
}

// Tables say which kernels have changed since their rows ran, where the file is compared with a tree.
func TestSince(t *testing.T) {
	key := Key{"Sum", "2^20", "f32"}
	f := &File{Rows: []Row{{Key: key, Kernels: Digests{"sum": "a", "dot": "b"}}, {Key: Key{"Add", "2^20", "f32"}, Kernels: Digests{"sum": "a"}}}}
	for name, test := range map[string]struct {
		tree Digests
		want string
	}{
		"not compared":      {nil, ""},
		"the same kernels":  {Digests{"sum": "a", "dot": "b", "add": "c"}, ""},
		"another of them":   {Digests{"sum": "a", "dot": "c"}, "Since then these kernels have changed: `dot`.\n\n"},
		"all, and one gone": {Digests{"sum": "b"}, "Since then these kernels have changed: `dot`, `sum`.\n\n"},
	} {
		if f.Tree = test.tree; f.Since() != test.want {
			t.Errorf("%s: got %q, want %q", name, f.Since(), test.want)
		}
		for table, text := range map[string]string{"steps": f.stepTable([]Key{key}), "graphs": f.graphTable("Graph", []Key{key}), "precision": f.precisionTable(nil), "accuracy": f.accuracyTables()} {
			if got := strings.Contains(text, "Since then"); got != (test.want != "") || !strings.Contains(text, test.want) {
				t.Errorf("%s: the table of %s says\n%s\nwant %q in it", name, table, text, test.want)
			}
		}
	}
}
