package ops

import (
	"fmt"
	"slices"
)

// Version selects one of the numbered versions of an op's kernel, which lead from
// the first idea to the fast kernel: Version(1).Sum(x) is the sum by one thread.
// Its methods are the constructors of the ops that have versions, with the same
// arguments, shapes and gradients (the gradient runs the op's own kernels). The
// zero Version is the op itself. [Versions] lists them.
type Version int

// VersionDoc says what a version is.
type VersionDoc struct {
	Name string // a few words, for tables: "shared tree, one atomic per block"
	Doc  string // what it does, and what it loses or gains by it
}

// Versions returns the numbered versions of an op, such as "Sum": element n-1 is
// Version(n).
func Versions(op string) []VersionDoc {
	switch op {
	case "Add":
		return slices.Clone(addVersions)
	case "Dot":
		return slices.Clone(dotVersions)
	case "Histogram":
		return slices.Clone(histogramVersions)
	case "Iterate":
		return iterateDocs()
	case "MatMul":
		return slices.Clone(matMulVersions)
	case "Sum":
		return slices.Clone(sumVersions)
	case "WindowSum":
		return slices.Clone(windowVersions)
	}
	return nil
}

// check says what is wrong with a version of an op that has n of them.
func (v Version) check(op string, n int) error {
	if v < 0 || int(v) > n {
		return fmt.Errorf("ops: %s: got version %d, want 0 to %d", op, int(v), n)
	}
	return nil
}

// String is what a version adds to an op's name: " version 4", or nothing for
// the op itself. It tells nodes of two versions apart, which a graph would take
// for one.
func (v Version) String() string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf(" version %d", int(v))
}
