package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page is what the records say, and the records are of this hook and these modules.
func TestRecords(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	want, err := withTables(string(text), filepath.Join(root, records))
	if err != nil {
		t.Fatal(err)
	}
	if want != string(text) {
		t.Errorf("%s is not what %s says: run make conformance", page, records)
	}
	hook, err := digest()
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(root, records, "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%d records in %s, %v", len(names), records, err)
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
	for name := range apart {
		if strings.HasSuffix(name, "/") {
			name += "a_case"
		}
		if err := (Outcome{Fail: []string{name}}).faults(); err != nil {
			t.Error(err)
		}
	}
}
