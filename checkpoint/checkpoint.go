// Package checkpoint saves the state of a training in a file and loads it, so that an interrupted training continues with
// the same bits as an uninterrupted one.
//
// Files are in the safetensors format, which the Python library of that name reads. Each learnable is a tensor
// with the name of its node; [Save] lists the other tensors.
//
// A file has a checksum in its metadata "stheno.sha256": the SHA-256 of the whole file, header included,
// with the 64 hexadecimal digits of the checksum itself as zeros. [Load] and [LoadParameters]
// reject a file with another checksum.
package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// version is the version of the files that Save writes. Files of version 1 have no checksum.
const version = 2

// The names of the metadata in a file, each encoded as JSON.
const (
	headerKey   = "stheno"
	positionKey = "position"
)

// header describes a file's tensors and the training that they come from.
type header struct {
	Version    int       `json:"version"`
	Learnables []string  `json:"learnables"` // names, in the order of Train
	Moments    int       `json:"moments"`    // number of moments of each learnable
	BatchNorms int       `json:"batchnorms"`
	Training   *training `json:"training,omitempty"` // nil in a file of SaveParameters
}

type training struct {
	Solver  string             `json:"solver"`
	Options map[string]float64 `json:"options"`
	Steps   int                `json:"steps"`
	Added   int                `json:"added,omitempty"`
	Runs    int                `json:"runs"`
	Seed    uint64             `json:"seed"`
}

// momentName returns the name of a learnable's moment, counted from 1.
func momentName(k int, learnable string) string { return fmt.Sprintf("moment%d/%s", k, learnable) }

// averageName returns the name of a BatchNorm's running "mean" or "variance".
func averageName(i int, what string) string { return fmt.Sprintf("batchnorm%d/%s", i, what) }

// Save writes the state of a training to a file: the result of [cudaops.VM.Snapshot] of a VM with the
// option [cudaops.Train]. position is the state of the training loop, such as epoch, step and shuffle seed: any value that
// encoding/json encodes, or nil.
//
// An existing file is replaced atomically: after a kill or a power failure, path is the complete old file or the
// complete new one. The new file has the old one's permissions. If path is a symbolic link, Save replaces the file that it
// names. If several goroutines or processes save to one path, each succeeds, and the file is that of the last one.
//
// Save first writes a temporary file in the same directory, whose name ends in .stheno-, random digits and .tmp. It removes
// temporary files of killed programs.
//
// If a number of the state is NaN or infinite, Save returns an error and leaves the file unchanged.
//
// The tensors are the learnables, named as their nodes are, "moment1/" and "moment2/" followed by
// such a name, and "batchnorm0/mean", "batchnorm0/variance" and so on.
func Save(path string, vm *cudaops.VM, position any) error {
	s, err := vm.Snapshot()
	if err == nil {
		err = finite(s)
	}
	if err == nil {
		err = save(path, s, position)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: Save: %w", err)
	}
	return nil
}

// finite returns an error that names the first number of a state that is NaN or infinite.
func finite(s *cudaops.Snapshot) (err error) {
	check := func(name string, v gorgonia.Value) {
		dt, _ := values.Dtype(v.Dtype())
		m, failed := values.Bytes(v)
		if what, at := values.NotFinite(dt, m, true, true); err == nil && failed == nil && what != "" {
			failed = fmt.Errorf("%s: element %d is %s, want finite numbers", name, at, what)
		}
		if err == nil {
			err = failed
		}
	}
	for _, l := range s.Learnables {
		check(l.Name, l.Value)
		for k, m := range l.Moments {
			check(momentName(k+1, l.Name), m)
		}
	}
	for i, a := range s.Averages {
		check(averageName(i, "mean"), a.Mean)
		check(averageName(i, "variance"), a.Variance)
	}
	return err
}

func save(path string, s *cudaops.Snapshot, position any) error {
	h := header{Version: version, BatchNorms: len(s.Averages), Training: &training{s.Solver, s.Options, s.Steps, s.Added, s.Runs, s.Seed}}
	var list tensors
	for _, l := range s.Learnables {
		h.Learnables, h.Moments = append(h.Learnables, l.Name), len(l.Moments)
		list.add(l.Name, l.Value)
		for k, m := range l.Moments {
			list.add(momentName(k+1, l.Name), m)
		}
	}
	for i, a := range s.Averages {
		list.add(averageName(i, "mean"), a.Mean)
		list.add(averageName(i, "variance"), a.Variance)
	}
	return write(path, h, position, list)
}

// Load sets a VM to the state that [Save] wrote and, unless position is nil, *position to the position passed to Save. The
// VM must have the same graph and options: see [cudaops.VM.Restore]. It may have made steps before.
//
// The note is "" if the file has a checksum. A file of an older version of Stheno without a checksum is loaded too, and the
// note says that its content is unchecked.
//
// An error names the values that do not fit, and leaves the VM and *position unchanged. It wraps [io/fs.ErrNotExist] if
// there is no file.
func Load(path string, vm *cudaops.VM, position any) (note string, err error) {
	if note, err = load(path, vm, position); err != nil {
		return "", fmt.Errorf("checkpoint: Load: %w", err)
	}
	return note, nil
}

func load(path string, vm *cudaops.VM, position any) (note string, err error) {
	info, err := os.Stat(path)
	if err == nil {
		err = wantFile(path, info)
	}
	if err != nil {
		return "", err
	}
	f, err := open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	setPosition, err := f.position(position)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	s, err := f.state()
	if err == nil {
		err = vm.Restore(s)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	setPosition()
	return f.note, nil
}

// state returns the snapshot in a file.
func (f *file) state() (*cudaops.Snapshot, error) {
	h := f.header
	if h == nil {
		return nil, errors.New("got a safetensors file without a training state, want a file of Save: use LoadParameters for parameters")
	}
	if h.Training == nil {
		return nil, errors.New("got a file of SaveParameters, want a file of Save: use LoadParameters")
	}
	t := h.Training
	s := &cudaops.Snapshot{Solver: t.Solver, Options: t.Options, Steps: t.Steps, Added: t.Added, Runs: t.Runs, Seed: t.Seed}
	for _, name := range h.Learnables {
		l := cudaops.Learnable{Name: name, Value: f.value(name)}
		for k := range h.Moments {
			l.Moments = append(l.Moments, f.value(momentName(k+1, name)))
		}
		s.Learnables = append(s.Learnables, l)
	}
	for i := range h.BatchNorms {
		s.Averages = append(s.Averages, cudaops.RunningMean{Mean: f.value(averageName(i, "mean")), Variance: f.value(averageName(i, "variance"))})
	}
	return s, f.err
}

// parseHeader returns the header of a file, or nil for a file of another program.
func parseHeader(f *safetensors.File) (*header, error) {
	text, ok := f.Metadata[headerKey]
	if !ok {
		return nil, nil
	}
	var of struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal([]byte(text), &of); err != nil {
		return nil, fmt.Errorf("metadata %q: %w", headerKey, err)
	}
	if of.Version < 1 || of.Version > version {
		return nil, fmt.Errorf("got a file of version %d, want 1 to %d, which this version of Stheno reads", of.Version, version)
	}
	h := &header{}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(h); err != nil {
		return nil, fmt.Errorf("metadata %q: %w", headerKey, err)
	}
	tensors := len(h.Learnables)*(1+h.Moments) + 2*h.BatchNorms
	if n := len(f.Tensors); h.Moments < 0 || h.BatchNorms < 0 || max(h.Moments, h.BatchNorms, len(h.Learnables)) > n || tensors != n {
		return nil, fmt.Errorf("got %d tensors, want %d learnables with %d moments each and two tensors for each of %d BatchNorms, as in the metadata",
			n, len(h.Learnables), h.Moments, h.BatchNorms)
	}
	return h, nil
}

// position decodes the position in the file and returns a function that assigns it.
func (f *file) position(to any) (set func(), err error) {
	if to == nil {
		return func() {}, nil
	}
	v := reflect.ValueOf(to)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return nil, fmt.Errorf("got a %T for the position, want a pointer", to)
	}
	text, ok := f.Metadata[positionKey]
	if !ok {
		return nil, fmt.Errorf("got a file without a position, want a position for a %T", to)
	}
	decoded := reflect.New(v.Type().Elem())
	if err := json.Unmarshal([]byte(text), decoded.Interface()); err != nil {
		return nil, fmt.Errorf("the position %.200s: %w", text, err)
	}
	return func() { v.Elem().Set(decoded.Elem()) }, nil
}
