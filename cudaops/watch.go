package cudaops

import (
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// watch says what no op of a graph may give.
type watch struct{ nan, inf bool }

// check returns an error that names the first node, in the order of the graph, whose
// value has what is watched for.
func (w watch) check(g *lower.Graph, out []gorgonia.Value) error {
	for _, n := range g.Watched {
		what, at, err := w.find(out[n.Index])
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Node.Name(), err)
		}
		if what != "" {
			return fmt.Errorf("%s in the value of node %s, element %d, made by %s", what, n.Node.Name(), at, madeBy(g.Program, n.Node))
		}
	}
	return nil
}

// find returns what it found in a value, "" if it has no such elements, and at which
// of them, counted in row-major order.
func (w watch) find(v gorgonia.Value) (what string, at int, err error) {
	dt, ok := values.Dtype(v.Dtype())
	if !ok || !dt.IsFloat() {
		return "", 0, nil
	}
	m, err := values.Bytes(v)
	if err != nil {
		return "", 0, err
	}
	if dt == kernels.Float32 {
		what, at = first(w, kernels.Elements[float32](m))
	} else {
		what, at = first(w, kernels.Elements[float64](m))
	}
	return what, at, nil
}

func first[T float32 | float64](w watch, elements []T) (what string, at int) {
	for i, x := range elements {
		switch {
		case w.nan && x != x:
			return "NaN", i
		case w.inf && math.IsInf(float64(x), 0):
			return "Inf", i
		}
	}
	return "", 0
}

// madeBy names the step that computes a node.
func madeBy(p *program.Program, n *gorgonia.Node) string {
	step := 0
	for _, in := range p.Instrs {
		if !isStep(in) {
			continue
		}
		step++
		if slices.Contains(in.Nodes, n) {
			return fmt.Sprintf("step %d, %v", step, in.Op)
		}
	}
	return "no step: it is a view of another value"
}

// log writes what the last run did to the logger, if there is one.
func (vm *VM) log() {
	if vm.config.logger == nil {
		return
	}
	r := vm.report()
	for i, s := range r.Steps {
		vm.config.logger.Printf("step %d of %d: %s on %s: %s, %v", i+1, len(r.Steps), covered(s.Nodes), s.Where, s.Op, s.Time)
	}
	vm.config.logger.Printf("run %d on %s: %d steps, %s copied in, %s out, %v", r.Runs, r.Device, len(r.Steps), size(r.In()), size(r.Out()), r.Time)
}
