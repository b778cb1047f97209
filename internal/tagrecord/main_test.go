//go:build cuda

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/results"
)

// Without a GPU nothing is recorded; with one, what happened.
func TestRecord(t *testing.T) {
	_, noDevice := cudaops.Devices()
	for program, want := range map[string]string{"true": "PASS", "false": "exit status 1"} {
		dir := t.TempDir()
		err := record(dir, program, nil)
		records, readErr := results.ReadTag(dir)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if noDevice != nil {
			if !errors.Is(err, cudaops.ErrNoDevice) || len(records) > 0 {
				t.Errorf("%s: %v and %d records, want none without a GPU", program, err, len(records))
			}
			continue
		}
		if (err == nil) != (want == "PASS") || len(records) != 1 || records[0].Run != want || !strings.HasPrefix(records[0].CU, "v") {
			t.Errorf("%s: %v, recorded %+v, want %s", program, err, records, want)
		}
	}
}
