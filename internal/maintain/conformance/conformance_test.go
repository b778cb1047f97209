package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// The page follows from the recordsFolder, and the records are of this hook and these modules.
func TestRecords(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	want, err := withTables(string(text), filepath.Join(root, recordsFolder))
	if err != nil {
		t.Fatal(err)
	}
	if want != string(text) {
		t.Errorf("%s differs from the record %s: run make conformance", page, recordsFolder)
	}
	hook, err := digest()
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(root, recordsFolder, "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%d records in %s, %v", len(names), recordsFolder, err)
	}
	for _, name := range names {
		r, err := readRecord(name)
		if err != nil {
			t.Fatal(err)
		}
		if r.Hook != hook {
			t.Errorf("%s is of hook %s, want %s: run make conformance", name, r.Hook, hook)
		}
		if r.Gorgonia != modules["gorgonia"].version || r.ONNX != modules["onnx-go"].version {
			t.Errorf("%s is of Gorgonia %s and onnx-go %s", name, r.Gorgonia, r.ONNX)
		}
		if len(r.Suites) != len(suites) {
			t.Fatalf("%s has %d suites, want %d", name, len(r.Suites), len(suites))
		}
		for i, o := range r.Suites {
			if o.Name != suites[i].name || o.Tests == 0 || o.Nodes == 0 {
				t.Errorf("%s: suite %d is %+v, want %s with tests and values", name, i, o, suites[i].name)
			}
			if err := o.faults(); err != nil {
				t.Errorf("%s: %v", name, err)
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
