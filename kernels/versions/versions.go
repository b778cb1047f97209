// Package versions has the numbered versions of Stheno's kernels: the steps from the first idea to the kernel that an op runs, and kernels that show
// what goes wrong without an atomic or a barrier. They are there to teach and to be measured; package kernels does not need them.
//
// A version has the operands of the op's kernel and returns a plan, so that the two can be compared on any device. Versions count from 1; the
// comments of versions whose last bit depends on the order of atomics mention it.
package versions

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

//go:embed images/* *.cu*
var files embed.FS

var library = kernels.NewLibrary("stheno/versions", folder{files})

// Library returns the library of the versions' sources and images.
func Library() *kernels.Library { return library }

// Digests returns those of the versions and of all other sources of Stheno.
func Digests() map[string]string {
	all := kernels.Builtin().Digests()
	maps.Copy(all, library.Digests())
	return all
}

// folder is this folder with the headers of package kernels.
type folder struct{ embed.FS }

// ReadFile implements fs.ReadFileFS.
func (f folder) ReadFile(name string) ([]byte, error) {
	text, err := f.FS.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && path.Ext(name) == ".cuh" {
		return kernels.Source(name)
	}
	return text, err
}

// check returns an error unless v is 1 to most.
func check(op string, v, most int) error {
	if v < 1 || v > most {
		return fmt.Errorf("versions: %s: got version %d, want 1 to %d", op, v, most)
	}
	return nil
}

var in0, in1, out = kernels.Ref{Operand: 0}, kernels.Ref{Operand: 1}, kernels.Ref{Operand: kernels.Out}

// appendPlan appends the launches of a plan with other operands: its output is at to, its inputs at from.
func appendPlan(p, part *kernels.Plan, to kernels.Ref, from ...kernels.Ref) {
	scratch := p.Workspace(part.Scratch)
	move := func(r kernels.Ref) kernels.Ref {
		base := scratch
		switch {
		case r.Operand == kernels.Out:
			base = to
		case r.Operand >= 0:
			base = from[r.Operand]
		}
		base.Offset += r.Offset
		return base
	}
	for _, l := range part.Launches {
		l.Args = slices.Clone(l.Args)
		for i, a := range l.Args {
			switch a := a.(type) {
			case kernels.Ref:
				l.Args[i] = move(a)
			case kernels.TensorMap:
				a.Ref = move(a.Ref)
				l.Args[i] = a
			}
		}
		p.Launches = append(p.Launches, l)
	}
}
