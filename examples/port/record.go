package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stheno-ml/stheno/internal/jsonlines"
	"github.com/stheno-ml/stheno/internal/maintain/records"
)

// record holds the measurements of a machine, by stage in steps per second; 0 for stages that did
// not run.
type record struct {
	GPU    string    `json:"gpu,omitempty"`
	Driver string    `json:"driver,omitempty"`
	Cores  int       `json:"cores"`
	BLAS   string    `json:"blas"` // of Stheno on the host
	Date   string    `json:"date"`
	Host   []float64 `json:"host"` // Gorgonia's machine, then Stheno's on the host
	Device []float64 `json:"device"`
}

// write writes the record to a folder, under the name of its GPU.
func (r record) write(dir string) error {
	name := "host.json"
	if r.GPU != "" {
		name = records.Name(r.GPU)
	}
	return jsonlines.Write(filepath.Join(dir, name), r, 1)
}

// update rewrites the table of a page, between <!-- port:begin --> and <!-- port:end -->.
func update(text string, list []record) (string, error) {
	var b strings.Builder
	header, rule := "| The program |", "|---|"
	for _, r := range list {
		header += fmt.Sprintf(" %d cores |", r.Cores)
		rule += "--:|"
		if r.GPU != "" {
			header += fmt.Sprintf(" %s |", r.GPU)
			rule += "--:|"
		}
	}
	fmt.Fprintf(&b, "%s\n%s\n", header, rule)
	for i, s := range stages {
		fmt.Fprintf(&b, "| %s |", s.name)
		for _, r := range list {
			fmt.Fprintf(&b, " %s |", perSecond(r.Host[i]))
			if r.GPU != "" {
				fmt.Fprintf(&b, " %s |", perSecond(r.Device[i]))
			}
		}
		fmt.Fprintln(&b)
	}
	for _, r := range list {
		fmt.Fprintf(&b, "\n%d cores, %s: Stheno's products on the host by %s.\n", r.Cores, r.Date, r.BLAS)
	}
	return records.Splice(text, "port", b.String())
}

// perSecond returns a rate in words.
func perSecond(rate float64) string {
	switch {
	case rate == 0:
		return ""
	case rate < 100:
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}

// read returns the records of a folder by the names of their files.
func read(dir string) (list []record, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		var r record
		if err := readJSON(path, &r); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// readJSON reads a record and checks that it has all stages.
func readJSON(path string, r *record) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, r); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(r.Host) != len(stages) || len(r.Device) != len(stages) {
		return fmt.Errorf("%s: got %d and %d rates, want %d for the host and the GPU", path, len(r.Host), len(r.Device), len(stages))
	}
	return nil
}
