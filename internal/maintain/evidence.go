package maintain

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/stheno-ml/stheno/internal/maintain/records"
)

// This file and suites.go list the runs on a GPU that the kernels in the tree need: the timed cases of ops
// and, for every op, its kernels' tests, plain and under each sanitizer. All of it follows from the
// ops' specs. Cases and suites of sources that have changed must run again; those without a record have not been measured.

// Read reads the records of a set from a folder such as bench/results, to be compared with the tree.
func Read(folder, set string) ([]*records.File, error) {
	files, err := records.ReadSet(os.DirFS(folder), set)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	tree, err := Tree()
	for _, f := range files {
		f.Tree = tree
	}
	return files, err
}

// Recorded reads the records of a set on a GPU from a folder; an empty file if there are none.
func Recorded(folder, set, gpu string) (*records.File, error) {
	f, err := records.Read(records.Path(folder, set, gpu))
	if errors.Is(err, os.ErrNotExist) {
		return &records.File{Set: set, GPU: gpu, Runs: []records.Run{{}}}, nil
	}
	return f, err
}

// RowState compares the kernels that a case was measured with, according to a file, with those in the tree.
func RowState(f *records.File, key records.Key, tree records.Digests) State {
	r, ok := f.Time(key)
	switch {
	case !ok:
		return Unmeasured
	case len(r.Kernels) == 0 || len(r.Kernels.Changed(tree)) > 0:
		return Stale
	}
	return Current
}

// Check compares a GPU's results with the tree. stale is an error that names the records of other
// kernels than those in the tree; unmeasured one that names the cases and suites without a record.
func Check(f *records.File) (stale, unmeasured error) {
	tree, err := Tree()
	if err != nil {
		return err, nil
	}
	suites, err := Suites()
	if err != nil {
		return err, nil
	}
	var old, none []error
	for _, r := range f.Of(records.Time) {
		if RowState(f, r.Key, tree) == Stale {
			old = append(old, fmt.Errorf("%v was timed with other kernels of %s.cu", r.Key, strings.Join(r.Kernels.Changed(tree), ".cu, ")))
		}
	}
	for _, key := range Keys(f.Set) {
		if RowState(f, key, tree) == Unmeasured {
			none = append(none, fmt.Errorf("%v was not timed", key))
		}
	}
	for _, s := range suites {
		switch s.State(f.Of(records.Suite)) {
		case Stale:
			old = append(old, fmt.Errorf("%s ran with other kernels than %v, or not to its end", s.Name(), s.Kernels))
		case Unmeasured:
			none = append(none, fmt.Errorf("%s did not run with %v", s.Name(), s.Kernels))
		}
	}
	return again(f, old), again(f, none)
}

// again joins errors into one that names the command that fixes them, nil for none.
func again(f *records.File, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s: run bench/gpu-run.sh on that GPU, which makes the missing runs:\n%w", records.Path("bench/results", f.Set, f.GPU), errors.Join(errs...))
}
