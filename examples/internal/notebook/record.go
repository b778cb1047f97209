package notebook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/jsonlines"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// record is the file that -record writes and a program embeds: the GPU's figures and
// where they are from.
type record struct {
	Device  string              `json:"device"`
	Driver  string              `json:"driver"`
	CUDA    string              `json:"cuda"`
	Date    string              `json:"date"`    // YYYY-MM-DD
	Kernels records.Digests     `json:"kernels"` // [versions.Digests] of the build that measured
	Figures map[string]Measured `json:"figures"`
	// Data are the values of [Keep].
	Data map[string]json.RawMessage `json:"data,omitempty"`

	keys map[string]bool // all that were asked for
}

func newRecord(gpu *cudaops.Device) *record {
	r := &record{Figures: map[string]Measured{}, Data: map[string]json.RawMessage{}, keys: map[string]bool{}}
	if gpu != nil {
		r.Device, r.Driver, r.CUDA = gpu.Name, gpu.Driver, gpu.CUDA
		r.Date, r.Kernels = time.Now().UTC().Format(time.DateOnly), versions.Digests()
	}
	return r
}

// readRecord reads recorded.json, if there is one; {} is an empty record.
func readRecord(files fs.FS) (*record, error) {
	r := new(record)
	if files == nil {
		return r, nil
	}
	text, err := fs.ReadFile(files, "recorded.json")
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err := errors.Join(err, json.Unmarshal(text, r)); err != nil {
		return nil, fmt.Errorf("recorded figures: %w", err)
	}
	if !r.empty() && (r.Device == "" || r.Date == "" || len(r.Kernels) == 0) {
		return nil, fmt.Errorf("recorded figures: device %q, date %q and digests of %d kernels, want all three", r.Device, r.Date, len(r.Kernels))
	}
	return r, nil
}

// empty reports whether nothing was recorded yet.
func (r *record) empty() bool { return len(r.Figures) == 0 && len(r.Data) == 0 }

// has reports whether a figure or a value is recorded.
func (r *record) has(key string) bool {
	_, ok := r.Figures[key]
	return ok || r.Data[key] != nil
}

// save writes the record, a figure a line in the order of the keys.
func (r *record) save(path string) error { return jsonlines.Write(path, r, 2) }

// String names the source of the figures, and the kernels of this build that differ from those that
// were measured.
func (r *record) String() string {
	if r.empty() {
		return "Figures of a GPU are not recorded yet; they print as -."
	}
	s := fmt.Sprintf("The GPU's figures below were recorded on %s, driver %s, on %s", r.Device, r.Driver, r.Date)
	if changed := r.Kernels.Changed(versions.Digests()); len(changed) > 0 {
		s += "; this build has other kernels of " + strings.Join(changed, ", ")
	}
	return s + "."
}

// round keeps five digits: no measurement here is more accurate, and a page shows the same number
// as the record.
func round(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	if err != nil {
		return v
	}
	return r
}
