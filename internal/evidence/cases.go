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
func (g TimedGraph) Key() results.Key { return programKey(g.Case) }

// programKey names a program in the results.
func programKey(c graphspec.Case) results.Key {
	return results.Key{Op: c.Name, Case: c.Size, Dtype: kernels.Float32.String()}
}

// Graphs returns all timed graphs.
func Graphs() (graphs []TimedGraph) {
	for _, c := range graphspec.All() {
		graphs = append(graphs, TimedGraph{c})
	}
	return graphs
}

// GraphKeys returns the keys of [Graphs].
func GraphKeys() []results.Key { return keysOf(Graphs()) }

// keysOf returns the keys of timed cases.
func keysOf[T interface{ Key() results.Key }](timed []T) (keys []results.Key) {
	for _, t := range timed {
		keys = append(keys, t.Key())
	}
	return keys
}

// A TimedStep is a training step that is timed.
type TimedStep struct{ graphspec.Step }

// Key names the step in the results.
func (s TimedStep) Key() results.Key { return programKey(s.Case) }

// Steps returns all timed training steps.
func Steps() (steps []TimedStep) {
	for _, s := range graphspec.Steps() {
		steps = append(steps, TimedStep{s})
	}
	return steps
}

// StepKeys returns the keys of [Steps].
func StepKeys() []results.Key { return keysOf(Steps()) }
