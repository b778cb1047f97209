package evidence

import (
	"github.com/stheno-ml/stheno/internal/graphspec"
	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/kernels"
)

// A Timed is a case of an op that is timed in one element type.
type Timed struct {
	Spec  opspec.Spec
	Case  opspec.Case
	Dtype kernels.Dtype
}

// Key names the case in the results.
func (t Timed) Key() results.Key {
	return results.Key{Op: t.Spec.Name, Case: t.Case.Name, Dtype: t.Dtype.String()}
}

// Cases returns all timed cases in the types that they name, in the order of the ops.
func Cases() (cases []Timed) {
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			for _, dt := range c.Timed {
				cases = append(cases, Timed{s, c, dt})
			}
		}
	}
	return cases
}

// Keys returns the keys of the timed cases of ops, without numbered versions.
func Keys() (keys []results.Key) {
	for _, c := range Cases() {
		if c.Case.Version == 0 {
			keys = append(keys, c.Key())
		}
	}
	return keys
}

// A TimedGraph is a whole graph that is timed.
type TimedGraph struct{ graphspec.Case }

// Key names the graph in the results.
func (g TimedGraph) Key() results.Key {
	return results.Key{Op: g.Name, Case: g.Size, Dtype: kernels.Float32.String()}
}

// Graphs returns all timed graphs.
func Graphs() (graphs []TimedGraph) {
	for _, c := range graphspec.All() {
		graphs = append(graphs, TimedGraph{c})
	}
	return graphs
}

// GraphKeys returns the keys of [Graphs].
func GraphKeys() (keys []results.Key) {
	for _, g := range Graphs() {
		keys = append(keys, g.Key())
	}
	return keys
}

// A TimedStep is a training step that is timed.
type TimedStep struct{ graphspec.Step }

// Key names the step in the results.
func (s TimedStep) Key() results.Key {
	return results.Key{Op: s.Name, Case: s.Size, Dtype: kernels.Float32.String()}
}

// Steps are all that are timed.
func Steps() (steps []TimedStep) {
	for _, s := range graphspec.Steps() {
		steps = append(steps, TimedStep{s})
	}
	return steps
}

// StepKeys are those of [Steps].
func StepKeys() (keys []results.Key) {
	for _, s := range Steps() {
		keys = append(keys, s.Key())
	}
	return keys
}
