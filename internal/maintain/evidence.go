package maintain

import (
	"errors"
	"fmt"
	"os"
	"slices"
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

// Measured reports whether a file has a time of a case with the kernels in the tree.
func Measured(f *records.File, key records.Key, tree records.Digests) bool {
	r, ok := f.Time(key)
	return ok && len(r.Kernels.Changed(tree)) == 0 && (len(r.Kernels) > 0 || !compiled(key.Op))
}

// compiled reports whether an op launches kernels of sources. Generated ones are recorded by the functions of math.cu in them, and
// may have none.
func compiled(op string) bool {
	byOp, err := launched()
	for source := range byOp[op] {
		if !strings.HasPrefix(source, "math/") {
			return true
		}
	}
	return err != nil
}

// Check compares the results of GPUs with the tree. The error stale names the suites that ran on some GPU, but never to the end with the
// kernels of the tree. The error missing names the suites not run and the cases not timed on any GPU with these kernels. Tables name the
// kernels that changed after a result; a release needs results for all kernels.
func Check(files []*records.File) (stale, missing error) {
	tree, err := Tree()
	if err != nil {
		return err, nil
	}
	suites, err := Suites()
	if err != nil {
		return err, nil
	}
	var old, none []error
	var ran []records.Record
	for _, f := range files {
		ran = append(ran, f.Of(records.Suite)...)
	}
	for _, s := range suites {
		switch s.State(ran) {
		case Stale:
			old = append(old, fmt.Errorf("%s ran with other kernels than %v, or not to its end", s.Suite(), s.Kernels))
		case Unmeasured:
			none = append(none, fmt.Errorf("%s did not run with %v", s.Suite(), s.Kernels))
		}
	}
	for _, key := range Keys(records.Ops) {
		if !slices.ContainsFunc(files, func(f *records.File) bool { return Measured(f, key, tree) }) {
			none = append(none, fmt.Errorf("%v was not timed with these kernels", key))
		}
	}
	return again(old), again(none)
}

// again joins errors into one that names the command that fixes them, nil for none.
func again(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("run bench/gpu-run.sh on a GPU, which makes the missing runs:\n%w", errors.Join(errs...))
}
