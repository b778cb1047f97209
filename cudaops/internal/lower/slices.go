package lower

import (
	"slices"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// slicing is a slice that the graph was lowered with; gorgonia.UnsafeLet can change that of
// its op.
type slicing struct {
	op               interface{ IsSlice() tensor.Slice }
	start, end, step int
}

// noteSlice takes note of the slice of an op that has one.
func (l *lowerer) noteSlice(op gorgonia.Op) {
	if _, _, ok := internal.Slice(op); !ok {
		return
	}
	s := slicing{op: op.(interface{ IsSlice() tensor.Slice })}
	s.start, s.end, s.step = s.now()
	l.graph.slices = append(l.graph.slices, s)
}

func (s slicing) now() (start, end, step int) {
	if now := s.op.IsSlice(); now != nil {
		return now.Start(), now.End(), now.Step()
	}
	return 0, 0, 0
}

// changed reports whether the op has another slice now.
func (s slicing) changed() bool {
	start, end, step := s.now()
	return start != s.start || end != s.end || step != s.step
}

// Stale reports whether an op has another slice, or another mode, than it was lowered with, so
// that the graph must be lowered again.
func (g *Graph) Stale() bool {
	return slices.ContainsFunc(g.slices, slicing.changed) || slices.ContainsFunc(g.modes, mode.changed)
}
