// Package evidence lists the runs on a GPU that the kernels in the tree need: the timed cases
// and, for every op, its kernels' tests, plain and under each sanitizer. All of it follows from the
// ops' specs. It compares the list with the records: cases and suites of sources that have changed must
// run again; those without a record have not been measured.
package evidence

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/internal/results"
)

// Read reads the results of all GPUs from a folder, to be compared with the tree.
func Read(dir string) ([]*results.File, error) {
	files, err := results.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	tree, err := Tree()
	for _, f := range files {
		f.Tree = tree
	}
	return files, err
}

// Recorded reads the results of a GPU from a folder, an empty file if there are
// none.
func Recorded(dir, gpu string) (*results.File, error) {
	files, err := results.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.GPU == gpu {
			return f, nil
		}
	}
	return &results.File{GPU: gpu}, nil
}

// RowState compares the kernels that a case was timed with, according to a file,
// with those in the tree.
func RowState(f *results.File, key results.Key, tree results.Digests) State {
	row, ok := f.Row(key)
	switch {
	case !ok:
		return Unmeasured
	case len(row.Kernels) == 0 || len(row.Kernels.Changed(tree)) > 0:
		return Stale
	}
	return Current
}

// Check compares a GPU's results with the tree. stale is an error that names the records of other
// kernels than those in the tree; unmeasured one that names the cases and suites without a record.
func Check(f *results.File) (stale, unmeasured error) {
	tree, err := Tree()
	if err != nil {
		return err, nil
	}
	suites, err := Suites()
	if err != nil {
		return err, nil
	}
	var old, none []error
	for _, r := range f.Rows {
		if RowState(f, r.Key, tree) == Stale {
			old = append(old, fmt.Errorf("%v was timed with other kernels of %s.cu", r.Key, strings.Join(r.Kernels.Changed(tree), ".cu, ")))
		}
	}
	for _, key := range Keys() {
		if RowState(f, key, tree) == Unmeasured {
			none = append(none, fmt.Errorf("%v was not timed", key))
		}
	}
	for _, s := range suites {
		switch s.State(f.Suites) {
		case Stale:
			old = append(old, fmt.Errorf("%s ran with other kernels than %v, or not to its end", s.Name(), s.Kernels))
		case Unmeasured:
			none = append(none, fmt.Errorf("%s did not run with %v", s.Name(), s.Kernels))
		}
	}
	return again(f, old), again(f, none)
}

// again joins errors into one that names the command that fixes them, nil for none.
func again(f *results.File, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("bench/results/%s: run bench/gpu-run.sh on that GPU, which makes the missing runs:\n%w", results.Name(f.GPU), errors.Join(errs...))
}
