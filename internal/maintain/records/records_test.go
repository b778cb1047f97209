package records

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Every file names the GPU that it is of, every result in it was right, no
// suite failed for reasons that are not known, and every peer belongs to a case.
func TestRecordedResults(t *testing.T) {
	const folder = "../../../bench/results"
	for _, set := range []string{Ops, Graphs, Steps, Products, Drawn} {
		files := testutil.Get[[]*File](t)(ReadSet(os.DirFS(folder), set))
		if len(files) == 0 {
			t.Errorf("no files of %s", set)
		}
		for _, f := range files {
			path := Path(folder, set, f.GPU)
			if read, err := Read(path); err != nil || f.Set != set || !reflect.DeepEqual(read, f) {
				t.Errorf("the file of %s on a %s is not %s: %v", f.Set, f.GPU, path, err)
			}
			again := filepath.Join(t.TempDir(), "again.json")
			testutil.Do(t, f.Write(again))
			if got, want := testutil.Get[[]byte](t)(os.ReadFile(again)), testutil.Get[[]byte](t)(os.ReadFile(path)); string(got) != string(want) {
				t.Errorf("%s is not as File.Write writes it", path)
			}
			if len(f.Records) == 0 || len(f.Of(Time)) > 0 && !(f.Head().Copy > 0) || (len(f.Of(Suite)) > 0) != (set == Ops) {
				t.Errorf("%s: %d records, %d suites, device copy %v GB/s", path, len(f.Records), len(f.Of(Suite)), f.Head().Copy)
			}
			for _, r := range f.Of(Time) {
				if !(r.Values["error"] <= 1) || r.Note == "" || !(r.Us > 0) {
					t.Errorf("%s: %v: error %v of the allowed one, checked on %q, %v us", path, r.Key, r.Values["error"], r.Note, r.Us)
				}
			}
			for _, s := range f.Of(Suite) {
				if s.Result != "PASS" && s.Result != "CUT" && s.Known == "" {
					t.Errorf("%s: %s failed: %s", path, s.Suite(), s.Note)
				}
			}
			for _, p := range f.Unmatched() {
				t.Errorf("%s: peer %s times %v, which is no case of the file", path, p.By, p.Key)
			}
		}
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := Path(dir, sample.Set, sample.GPU)
	if path != filepath.Join(dir, "ops", "nvidia-t1-80gb.json") {
		t.Errorf("path %s", path)
	}
	testutil.Do(t, sample.Write(path))
	files, err := ReadSet(os.DirFS(dir), Ops)
	if err != nil || len(files) != 1 || !reflect.DeepEqual(files[0], sample) {
		t.Errorf("read back %v, %v", files, err)
	}
	if lost := sample.Unmatched(); len(lost) != 1 || lost[0].By != "lost" {
		t.Errorf("unmatched %v", lost)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"set": "ops"`, `"set": ""`, "want all three"}, {`"gpu":`, `"gqu":`, "gqu"}, {`"run": 1`, `"run": 2`, "in run 2, want an op and one of 2 runs"}, {`"op": "MatMul"`, `"op": ""`, "want an op"},
	} {
		text := string(testutil.Get[[]byte](t)(os.ReadFile(path)))
		bad := filepath.Join(dir, "bad.json")
		testutil.Write(t, bad, strings.Replace(text, c.old, c.new, 1))
		if _, err := Read(bad); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %s: %v, want %q in the error", c.new, err, c.want)
		}
	}
}

func TestSuiteNamed(t *testing.T) {
	for name, want := range map[string]string{
		"memcheck Sum": "memcheck [Sum] 1/1", "test Add|Dot": "test [Add Dot] 1/1", "racecheck MatMul 2/4": "racecheck [MatMul] 2/4",
		"kernels": " [kernels] 1/1", "memcheck finds a fault": "memcheck [finds a fault] 1/1", "examples/port": " [examples/port] 1/1",
	} {
		s := SuiteNamed(name)
		part, parts := s.Part()
		if got := fmt.Sprintf("%s %v %d/%d", s.By, s.Targets(), part, parts); got != want || s.Suite() != name {
			t.Errorf("%q is %s, want %s, and named %q", name, got, want, s.Suite())
		}
	}
}

func timeOf(name string, us float64) Record {
	return Record{Kind: Time, Key: Key{"Op", name, "f32"}, Us: us}
}

func peerOf(name, by string, us float64) Record {
	return Record{Kind: Peer, Key: Key{"Op", name, "f32"}, By: by, Us: us}
}

// A later run replaces the outcomes of all that it ran; the rest stays. Each record keeps its run. A run
// of everything leaves nothing of the one before.
func TestMerge(t *testing.T) {
	suite := func(name string) Record {
		s := SuiteNamed(name)
		s.Result, s.Kernels = "PASS", Digests{"x": "1"}
		return s
	}
	part := Record{Kind: Part, Key: Key{"Op", "b", "f32"}, By: "map", Us: 1}
	file := func(date string, list ...Record) *File {
		return &File{Set: Ops, GPU: "G", Runs: []Run{{Date: date}}, Records: list}
	}
	old := func() *File {
		return file("1", timeOf("a", 1), timeOf("b", 2), part, peerOf("a", "P", 1), peerOf("b", "P", 1), peerOf("b", "Q", 1),
			suite("memcheck A|B"), suite("memcheck C 1/2"), suite("memcheck C 2/2"), SuiteNamed("go"))
	}
	f := old()
	later := file("2", timeOf("b", 3), peerOf("b", "P", 2), suite("memcheck A 1/2"), suite("memcheck A 2/2"), suite("memcheck C 1/3"))
	testutil.Do(t, f.Merge(later))
	var got []string
	for _, r := range f.Records {
		name := fmt.Sprintf("%s %s", r.Kind, r.Case)
		if r.Kind == Suite {
			name = r.Suite()
		}
		got = append(got, name+" of "+f.RunOf(r).Date)
	}
	// A is complete and leaves A|B; of C there are two parts of three still to come.
	want := []string{"time a of 1", "peer a of 1", "memcheck B of 1", "memcheck C 1/2 of 1", "memcheck C 2/2 of 1", "go of 1",
		"time b of 2", "peer b of 2", "memcheck A 1/2 of 2", "memcheck A 2/2 of 2", "memcheck C 1/3 of 2"}
	if !slices.Equal(got, want) || f.Head().Date != "1" {
		t.Errorf("got %q, headed by %s, want %q", got, f.Head().Date, want)
	}
	testutil.Do(t, f.Merge(file("1", timeOf("a", 4)))) // the run is there
	if a, _ := f.Time(Key{"Op", "a", "f32"}); a.Us != 4 || a.Run != 0 || len(f.Runs) != 2 {
		t.Errorf("got %+v and %d runs, want the later time in the first of two", a, len(f.Runs))
	}

	all := old()
	all.Runs[0].Date = "3"
	if f = old(); f.Merge(all) != nil || !reflect.DeepEqual(f, all) {
		t.Errorf("merged with a run of everything: %+v, want that run", f)
	}
	// Peers of cases that are all timed again stay until they are timed again themselves.
	f = file("1", timeOf("a", 2), peerOf("a", "P", 3))
	testutil.Do(t, f.Merge(file("2", timeOf("a", 1))))
	if a, _ := f.Time(Key{"Op", "a", "f32"}); a.Us != 1 || f.RunOf(a).Date != "2" || len(f.Of(Peer)) != 1 || f.Head().Date != "1" {
		t.Errorf("got %+v, want the later time and the earlier peer", f)
	}
	// Drawn cases replace those of another draw, which are other cases.
	drawn := file("2", timeOf("c", 1))
	drawn.Runs[0].Seed = 2
	if f = old(); f.Merge(drawn) != nil || !reflect.DeepEqual(f, drawn) {
		t.Errorf("got %+v, want the later draw alone", f)
	}
	other, graphs := file("1"), file("1")
	other.GPU, graphs.Set = "H", Graphs
	if old().Merge(other) == nil || old().Merge(graphs) == nil {
		t.Error("results of two GPUs or of two sets were merged")
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
		testutil.Write(t, path, c.text)
		got, err := ReadSuites(path)
		if (err != nil) != (c.n < 0) || err == nil && len(got) != c.n {
			t.Errorf("%q: %v, %v", c.text, got, err)
		}
		want := Record{Kind: Suite, Key: Key{Op: "ops"}, Result: "PASS", Values: map[string]float64{"seconds": 1.5}, Note: "3 passed", Kernels: Digests{"sum": "a", "dot": "b"}}
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
		{`[{"kind":"peer","op":"Op","case":"x","dtype":"f32","by":"PyTorch","us":2.5}]`, true},
		{`[{"kind":"peer","op":"Op","case":"x","dtype":"f32","by":"PyTorch","us":0}]`, false},
		{`[{"kind":"time","op":"Op","case":"x","dtype":"f32","by":"PyTorch","us":2.5}]`, false},
		{`[{"kind":"peer","op":"Op","kase":"x"}]`, false},
	} {
		testutil.Write(t, path, c.text)
		if got, err := ReadPeers(path); (err == nil) != c.ok || c.ok && !reflect.DeepEqual(got[0], peerOf("x", "PyTorch", 2.5)) {
			t.Errorf("%s: %v, %v", c.text, got, err)
		}
	}
}
