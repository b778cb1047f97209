package cudaops

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// watch holds which numbers the ops of a graph must not return.
type watch struct{ nan, inf bool }

// NotFinite is the error of a run that [WatchNaN] or [WatchInf] has ended.
type NotFinite struct {
	What    string         // "NaN" or "Inf"
	Node    *gorgonia.Node // the first that has it, in the order of the graph, or a learnable that has it after the step
	Element int            // the first of them, counted in row-major order
	By      string         // its origin: a step of the run, as in [Report.Steps], or the solver's step
	Run     int            // counted from 1, those before a state that was set included; under [Train], the step of the solver
	Input   *gorgonia.Node // the first input or learnable among those of Node that has one too, nil for none
	trained bool
}

// Error returns all of it in one line.
func (e *NotFinite) Error() string {
	var b strings.Builder
	if e.trained {
		fmt.Fprintf(&b, "training step %d: ", e.Run)
	} else {
		fmt.Fprintf(&b, "run %d: ", e.Run)
	}
	fmt.Fprintf(&b, "%s in the value of node %s, element %d, made by %s", e.What, internal.Name(e.Node), e.Element, e.By)
	if e.Input != nil {
		fmt.Fprintf(&b, ", out of that in %s", internal.Name(e.Input))
	}
	if e.trained {
		fmt.Fprintf(&b, "; the learnables are as after step %d", e.Run-1)
	}
	return b.String()
}

// look returns a *NotFinite if the outputs of a run, or learnables after its step, have a number
// that is watched for.
func (vm *VM) look(out []gorgonia.Value) error {
	bad, err := vm.lookAtNodes(out)
	if err != nil {
		return err
	}
	t := vm.trainer
	trained := t != nil && !t.onHost
	if trained && bad == nil {
		if bad, err = vm.lookAtLearnables(); err != nil {
			return err
		}
	}
	if bad == nil {
		return nil
	}
	if bad.Run, bad.trained = vm.next+1, trained; trained {
		bad.Run = t.step()
	}
	return bad
}

// lookAtNodes looks at the values of the ops' nodes.
func (vm *VM) lookAtNodes(out []gorgonia.Value) (*NotFinite, error) {
	w := vm.config.watch
	for _, n := range vm.graph.Watched {
		what, at, err := w.find(out[n.Index])
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", internal.Name(n.Node), err)
		}
		if what == "" {
			continue
		}
		bad := &NotFinite{What: what, Node: n.Node, Element: at, By: madeBy(vm.graph.Program, n.Node)}
		children, err := internal.Children(n.Node)
		if err != nil {
			return nil, err
		}
		for _, c := range children {
			if bad.Input == nil && c.Op() == nil && vm.begins(c) {
				bad.Input = c
			}
		}
		return bad, nil
	}
	return nil, nil
}

// begins reports whether an input or a learnable has such a number when the run begins.
func (vm *VM) begins(n *gorgonia.Node) bool {
	w := vm.config.watch
	if t := vm.trainer; t != nil && !t.onHost {
		if i := slices.Index(t.learnables, n); i >= 0 {
			what, _ := values.NotFinite(t.graph.Learned[i].Value.Dtype, t.parameter(vm.graph.Program, t.kept, i), w.nan, w.inf)
			return what != ""
		}
	}
	what, _, err := w.find(n.Value())
	return err == nil && what != ""
}

// lookAtLearnables looks at the results of the step. They are kept, as the states that the next run
// begins with.
func (vm *VM) lookAtLearnables() (*NotFinite, error) {
	t, w := vm.trainer, vm.config.watch
	now, err := vm.exec.States()
	if err != nil {
		return nil, err
	}
	for i, l := range t.graph.Learned {
		if what, at := values.NotFinite(l.Value.Dtype, t.parameter(vm.graph.Program, now, i), w.nan, w.inf); what != "" {
			return &NotFinite{What: what, Node: l.Node, Element: at, By: fmt.Sprintf("the step of %T", t.solver)}, nil
		}
	}
	t.kept = now
	return nil, nil
}

// parameter returns the elements of a learnable from the states of a program, as
// [exec.Executable.States] returns them.
func (t *trainer) parameter(p *program.Program, states [][]byte, i int) []byte {
	l := t.graph.Learned[i]
	k := slices.IndexFunc(p.Updates, func(u program.Update) bool { return u.State == l.States[0] })
	return states[k][l.Value.View.Offset*l.Value.Dtype.Size():][:l.Value.Bytes()]
}

// find returns "NaN" or "Inf" if a value has one that is watched for, "" otherwise, and the first
// such element, counted in row-major order.
func (w watch) find(v gorgonia.Value) (what string, at int, err error) {
	dt, ok := values.Dtype(v.Dtype())
	if !ok || !dt.IsFloat() {
		return "", 0, nil
	}
	m, err := values.Bytes(v)
	if err != nil {
		return "", 0, err
	}
	what, at = values.NotFinite(dt, m, w.nan, w.inf)
	return what, at, nil
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

// log writes the steps of a run to the logger, if there is one.
func (vm *VM) log(done *shown) error {
	to := vm.config.logger
	if to == nil {
		return nil
	}
	r := vm.report(done)
	return guard.Recover("the log's writer", func() error {
		for i, s := range r.Steps {
			to.Printf("step %d of %d: %s on %s: %s, %v", i+1, len(r.Steps), covered(s.Nodes), s.Where, s.Op, s.Time)
		}
		to.Printf("run %d on %s: %d steps, %s copied in, %s out, %v", r.Runs, r.Device, len(r.Steps), size(r.In()), size(r.Out()), r.Time)
		return nil
	})
}
