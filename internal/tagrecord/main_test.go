//go:build cuda

package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/kernels"
)

// Without a GPU nothing is recorded; with one, the outcomes of the suites, which here
// are too few.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	suites := filepath.Join(dir, "suites.tsv")
	for file, text := range map[string]string{
		suites:                        "stheno-module\tPASS\t1.0\t\ntag ops\tPASS\t2.0\t1 passed\n",
		filepath.Join(dir, "ops.log"): "--- PASS: TestX (0.01s)\nPASS\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := record(dir, suites)
	records, readErr := results.ReadTag(dir)
	if readErr != nil {
		t.Fatal(readErr)
	}
	if _, noDevice := cudaops.Devices(); noDevice != nil {
		if !errors.Is(err, cudaops.ErrNoDevice) || len(records) > 0 {
			t.Errorf("%v and %d records, want none without a GPU", err, len(records))
		}
		return
	}
	if err != nil || len(records) != 1 || !reflect.DeepEqual(records[0], r) {
		t.Fatalf("%v, recorded %+v, want %+v", err, records, r)
	}
	if !strings.Contains(r.Run, "cudaops: not run") || strings.Contains(r.Run, "ops: no test passed") ||
		len(r.Suites) != 1 || r.Suites[0].Name != "ops" || len(r.Kernels) < len(kernels.Digests()) || !strings.HasPrefix(r.CU, "v") {
		t.Errorf("recorded %+v", r)
	}
}

func TestOpsOf(t *testing.T) {
	for _, test := range results.TagTests {
		got := opsOf(test)
		for op, want := range map[string]bool{"Add": true, "Iterate": true, "Reduce": true, "Histogram": !test.Gradients && !test.Floats} {
			if slices.Contains(got, op) != want {
				t.Errorf("%s is for %v: %s among them: want %v", test.Name, got, op, want)
			}
		}
	}
}
