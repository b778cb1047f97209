package conformance

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/jsonlines"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// The hook may be commented anew, but not changed in silence.
func TestCode(t *testing.T) {
	const text = "//go:build go1.26\n\n// Package a.\npackage a\n\nvar b = \"// c\" // d\n"
	was := string(code([]byte(text)))
	for _, same := range []string{strings.Replace(text, "Package a.", "Package a, in other words.", 1), strings.Replace(text, " // d", "", 1)} {
		if got := string(code([]byte(same))); got != was {
			t.Errorf("another comment changes the code:\n%s\n%s", got, was)
		}
	}
	for _, old := range []string{"go1.26", "// c", "package a"} {
		if got := string(code([]byte(strings.Replace(text, old, old+"x", 1)))); got == was {
			t.Errorf("another %q leaves the code as it was:\n%s", old, was)
		}
	}
}

var (
	conform = flag.Bool("conformance", false, "run the suites in .conformance, and record the results unless -run chose some of them")
	packTo  = flag.String("pack", "", "build the suites for a GPU machine into this folder, and run nothing")
	packed  = flag.Bool("packed", false, "run the suites of the working folder, which -pack made, on GPU 0, and record nothing")
	read    = flag.String("read", "", "record the results of the runs in this folder")
	device  = flag.String("device", "host", "the GPU that they ran on")
)

// Gorgonia's tests and examples and the ONNX operator tests do on Stheno what they do on the tape machine. The modules are copied out of the
// module cache into a folder that git ignores, with a hook that lets Stheno stand in for a tape machine. A few lines of examples are changed
// that would take hours, need files to be downloaded, or train on the Lisp machine.
func TestConformance(t *testing.T) {
	if !*conform && *packTo == "" && !*packed && *read == "" {
		t.Skip("takes minutes: make conformance runs it")
	}
	tree, chosen := root+".conformance", slices.Clone(suites)
	switch {
	case *packed:
		tree = "."
		for i := range chosen {
			chosen[i].env = append(slices.Clone(chosen[i].env), "STHENO_REQUIRE_GPU=1")
			chosen[i].args = slices.Concat(chosen[i].args, chosen[i].without)
		}
	case *read == "":
		makeTree(t, tree, testutil.Get[string](t)(filepath.Abs(root)))
	}
	if *packTo != "" {
		for _, s := range chosen {
			s.build(t, tree)
		}
		pack(t, tree, *packTo)
		return
	}
	r := Record{Device: *device, Date: time.Now().UTC().Format(time.DateOnly), Gorgonia: modules["gorgonia"].version, ONNX: modules["onnx-go"].version, Hook: digest(t)}
	for _, s := range chosen {
		t.Run(s.name, func(t *testing.T) {
			if *read != "" {
				tree = *read
			} else if !*packed {
				s.build(t, tree)
			}
			for _, mode := range s.modes() {
				if start := time.Now(); *read == "" {
					s.run(t, tree, mode)
					t.Logf("%s: %.1f s", mode, time.Since(start).Seconds())
				}
			}
			o := s.outcome(t, tree)
			t.Log(o)
			if err := o.faults(); err != nil {
				t.Error(err)
			}
			r.Suites = append(r.Suites, o)
		})
	}
	if !*packed && len(r.Suites) == len(suites) {
		testutil.Do(t, jsonlines.Write(filepath.Join(recordsFolder, records.Name(r.Device)), r, 2))
		_, text, _ := readPage(t)
		testutil.Write(t, page, text)
	}
}

// The page follows from the records, and they are of this hook and these modules.
func TestRecords(t *testing.T) {
	text, want, all := readPage(t)
	if want != text {
		t.Errorf("%s differs from the records in %s: run make conformance", page, recordsFolder)
	}
	if len(all) == 0 {
		t.Fatalf("no records in %s", recordsFolder)
	}
	hook := digest(t)
	for _, r := range all {
		if r.Hook != hook {
			t.Errorf("the record of %s is of hook %s, want %s: run make conformance", r.Device, r.Hook, hook)
		}
		if r.Gorgonia != modules["gorgonia"].version || r.ONNX != modules["onnx-go"].version {
			t.Errorf("the record of %s is of Gorgonia %s and onnx-go %s", r.Device, r.Gorgonia, r.ONNX)
		}
		if len(r.Suites) != len(suites) {
			t.Fatalf("the record of %s has %d suites, want %d", r.Device, len(r.Suites), len(suites))
		}
		for i, o := range r.Suites {
			if o.Name != suites[i].name || o.Tests == 0 || o.Nodes == 0 {
				t.Errorf("%s: suite %d is %+v, want %s with tests and values", r.Device, i, o, suites[i].name)
			}
			if err := o.faults(); err != nil {
				t.Errorf("%s: %v", r.Device, err)
			}
		}
	}
}

// Differences are reported: a test that fails on Stheno alone for no known reason, a value,
// an error.
func TestFaults(t *testing.T) {
	for _, o := range []Outcome{{Fail: []string{"TestNew"}}, {Apart: []string{"TestOld: A × B: 1"}}, {Errors: []string{"TestOld: no kernel"}}} {
		if o.faults() == nil {
			t.Errorf("%+v is no fault", o)
		}
	}
	if (Outcome{Host: map[string]int{"YOLO": 2}}).faults() != nil {
		t.Error("an op that is listed as one of the host's is a fault")
	}
	if (Outcome{Host: map[string]int{"YOLO": 2, "A × B": 1}}).faults() == nil {
		t.Error("a product on the host is no fault")
	}
	for name := range apart {
		if strings.HasSuffix(name, "/") {
			name += "a_case"
		}
		if err := (Outcome{Fail: []string{name}}).faults(); err != nil {
			t.Error(err)
		}
	}
}

// Of several machines the one counts whose runs take longest on the tape, and one that fails on
// either does not.
func TestTimes(t *testing.T) {
	timed := func(runs int, seconds, made float64) line {
		return line{Event: "timed", Runs: runs, Seconds: seconds, Made: made, Cores: 4}
	}
	failed := timed(1, 1, 1)
	failed.Error = "no value"
	tape := []line{timed(100, 1, 0.1), timed(10, 2, 0.2), failed, timed(50, 1, 0.3)}
	stheno := []line{timed(100, 1, 1), timed(30, 3, 2), timed(1, 9, 3)}
	got := slowest(tape, stheno)
	if want := (Times{4, 0.2, 2, 5, 10}); got == nil || *got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := slowest(tape[2:3], stheno); got != nil {
		t.Errorf("of a machine that failed: %+v, want nothing", got)
	}
	table := Record{Device: "NVIDIA T1", Suites: []Outcome{{Name: "no times"}}}.timesTable()
	if table != "" {
		t.Errorf("without times: %q", table)
	}
	table = Record{Device: "NVIDIA T1", Suites: []Outcome{{Name: "no times"}, {Name: "iris", Times: slowest(tape, stheno)}}}.timesTable()
	for _, want := range []string{"| Tape machine, 4 cores, steps/s | Stheno, NVIDIA T1, steps/s |", "| iris | 5.00 | 10.0 | 2.00 times as fast | 200 | 2000 |\n"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}
