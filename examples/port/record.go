package main

import (
	"fmt"
	"path/filepath"

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
