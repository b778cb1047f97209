// Package checkpoint saves the state of a training in a file and loads it, so that an interrupted training continues with
// the same bits as an uninterrupted one.
//
// Files are in the safetensors format, which the Python library of that name reads; [LoadParameters] and [LoadStore] read those of
// other programs too. Each learnable is a tensor
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
	"reflect"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// Files of version 1 have no checksum; only those of version 3 have several solvers, averages or states, and only those of version 4 a scale of the loss.
const (
	version      = 2
	versionSets  = 3
	versionScale = 4
)

// The names of the metadata in a file, each encoded as JSON.
const (
	headerKey   = "stheno"
	positionKey = "position"
)

// header describes a file's tensors and the training that they come from.
type header struct {
	Version    int       `json:"version"`
	Learnables []string  `json:"learnables"` // names, in the order of Train
	Moments    int       `json:"moments"`    // number of moments of each learnable of the first solver
	BatchNorms int       `json:"batchnorms"`
	States     []string  `json:"states,omitempty"`
	Training   *training `json:"training,omitempty"` // nil in a file of SaveParameters

	owners []owner // of the learnables, by parseHeader
}

type training struct {
	Solver  string             `json:"solver"`
	Options map[string]float64 `json:"options"`
	Steps   int                `json:"steps"`
	Added   int                `json:"added,omitempty"`
	Runs    int                `json:"runs"`
	Seed    uint64             `json:"seed"`
	EMA     bool               `json:"ema,omitempty"`   // each learnable has an average
	More    []more             `json:"more,omitempty"`  // solvers after the first
	Scale   *scale             `json:"scale,omitempty"` // of cudaops.LossScaling

	Calibration string `json:"calibration,omitempty"`
}

// scale is a [cudaops.LossScale].
type scale struct {
	Scale   float64 `json:"scale"`
	Good    int     `json:"good"`
	Steps   int     `json:"steps"`
	Skipped int     `json:"skipped"`
}

// more is a further solver. Its learnables are those from First on, up to the next solver's.
type more struct {
	First   int                `json:"first"`
	Moments int                `json:"moments"`
	Solver  string             `json:"solver"`
	Options map[string]float64 `json:"options"`
}

// owner is the solver of a learnable and the number of the learnable's moments.
type owner struct{ solver, moments int }

// stateOf returns the names of the tensors of a learnable's solver state, moments first.
func (h *header) stateOf(learnable int) (names []string) {
	name := h.Learnables[learnable]
	for k := range h.owners[learnable].moments {
		names = append(names, momentName(k+1, name))
	}
	if h.Training != nil && h.Training.EMA {
		names = append(names, emaName(name))
	}
	return names
}

// momentName returns the name of a learnable's moment, counted from 1.
func momentName(k int, learnable string) string { return fmt.Sprintf("moment%d/%s", k, learnable) }

// emaName returns the name of a learnable's average.
func emaName(learnable string) string { return "ema/" + learnable }

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
// If a number of the state is NaN or infinite, Save returns an error and leaves the file unchanged. Sums of gradients may be, under
// [cudaops.LossScaling], which then skips their step.
//
// With several processes ([cudaops.Processes]), all call Save, and rank 0 writes the file.
//
// The tensors are the learnables and the nodes of [cudaops.State], named as their nodes are, "moment1/" and "moment2/" followed by
// such a name, "ema/" and a name under [cudaops.EMA], and "batchnorm0/mean", "batchnorm0/variance" and so on.
func Save(path string, vm *cudaops.VM, position any) error {
	s, err := vm.Snapshot()
	if err == nil {
		err = finite(s)
	}
	if rank, _ := vm.Process(); err == nil && rank == 0 {
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
		if !dt.IsFloat() {
			return
		}
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
		moments := l.Moments
		if s.Scale != nil && s.Added > 0 {
			moments = moments[:len(moments)-1]
		}
		for k, m := range moments {
			check(momentName(k+1, l.Name), m)
		}
		if l.EMA != nil {
			check(emaName(l.Name), l.EMA)
		}
	}
	for _, l := range s.States {
		check(l.Name, l.Value)
	}
	for i, a := range s.Averages {
		check(averageName(i, "mean"), a.Mean)
		check(averageName(i, "variance"), a.Variance)
	}
	return err
}

func save(path string, s *cudaops.Snapshot, position any) error {
	if len(s.Solvers) == 0 {
		return errors.New("got a VM without Train: put its states into a Store, for SaveStore")
	}
	t := &training{Solver: s.Solvers[0].Kind, Options: s.Solvers[0].Options, Steps: s.Steps, Added: s.Added, Runs: s.Runs, Seed: s.Seed, Scale: (*scale)(s.Scale), Calibration: s.Calibration}
	h := header{Version: version, Moments: len(s.Learnables[0].Moments), BatchNorms: len(s.Averages), Training: t}
	var list tensors
	for i, l := range s.Learnables {
		if of := l.Solver; of > len(t.More) {
			t.More = append(t.More, more{i, len(l.Moments), s.Solvers[of].Kind, s.Solvers[of].Options})
		}
		h.Learnables = append(h.Learnables, l.Name)
		list.add(l.Name, l.Value)
		for k, m := range l.Moments {
			list.add(momentName(k+1, l.Name), m)
		}
		if t.EMA = l.EMA != nil; t.EMA {
			list.add(emaName(l.Name), l.EMA)
		}
	}
	for _, l := range s.States {
		h.States = append(h.States, l.Name)
		list.add(l.Name, l.Value)
	}
	if len(t.More) > 0 || t.EMA || len(h.States) > 0 {
		h.Version = versionSets
	}
	if t.Scale != nil {
		h.Version = versionScale
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
// Of several processes all call Load, and all get the content of the file of rank 0.
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
	f, err := openFor(vm, path)
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
	s := &cudaops.Snapshot{Steps: t.Steps, Added: t.Added, Runs: t.Runs, Seed: t.Seed, Scale: (*cudaops.LossScale)(t.Scale), Calibration: t.Calibration, Solvers: []cudaops.SolverState{{Kind: t.Solver, Options: t.Options}}}
	for _, m := range t.More {
		s.Solvers = append(s.Solvers, cudaops.SolverState{Kind: m.Solver, Options: m.Options})
	}
	for i, name := range h.Learnables {
		l := cudaops.Learnable{Name: name, Value: f.value(name)}
		for _, of := range h.stateOf(i) {
			l.Moments = append(l.Moments, f.value(of))
		}
		own := h.owners[i]
		if l.Solver = own.solver; t.EMA {
			l.Moments, l.EMA = l.Moments[:own.moments], l.Moments[own.moments]
		}
		s.Learnables = append(s.Learnables, l)
	}
	for _, name := range h.States {
		s.States = append(s.States, cudaops.Learnable{Name: name, Value: f.value(name)})
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
	if of.Version < 1 || of.Version > versionScale {
		return nil, fmt.Errorf("got a file of version %d, want 1 to %d, which this version of Stheno reads", of.Version, versionScale)
	}
	h := &header{}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(h); err != nil {
		return nil, fmt.Errorf("metadata %q: %w", headerKey, err)
	}
	if !h.assign(len(f.Tensors)) {
		return nil, fmt.Errorf("got %d tensors, want those of %d learnables, of the solver state that the metadata describes, %d states and %d BatchNorms",
			len(f.Tensors), len(h.Learnables), len(h.States), h.BatchNorms)
	}
	return h, nil
}

// assign sets the owners, and reports whether the header describes so many tensors.
func (h *header) assign(tensors int) bool {
	var ends []int
	owners := []owner{{0, h.Moments}}
	each := 1 // tensors of a learnable without moments
	if t := h.Training; t != nil {
		for i, m := range t.More {
			ends = append(ends, m.First)
			owners = append(owners, owner{i + 1, m.Moments})
		}
		if t.EMA {
			each++
		}
	}
	left := tensors - 2*h.BatchNorms - len(h.States)
	for i, end := range append(ends, len(h.Learnables)) {
		own := owners[i]
		if end < len(h.owners) || end > len(h.Learnables) || own.moments < 0 || own.moments > tensors || h.BatchNorms < 0 || h.BatchNorms > tensors {
			return false
		}
		for len(h.owners) < end {
			h.owners = append(h.owners, own)
			left -= each + own.moments
		}
	}
	return left == 0
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
