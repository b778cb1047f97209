package cudaops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// FloatClass is a set of classes of floating-point numbers, for [Watch].
type FloatClass uint8

// The classes.
const (
	NaN FloatClass = 1 << iota
	Inf            // of either sign
)

// checkWatches checks the arguments of each Watch.
func (c *config) checkWatches() error {
	for _, w := range c.watch {
		if w == 0 || w > NaN|Inf {
			return fmt.Errorf("Watch: got class %d, want NaN, Inf or NaN | Inf", w)
		}
	}
	return nil
}

// watched returns the classes of all Watch options.
func (c *config) watched() (all FloatClass) {
	for _, w := range c.watch {
		all |= w
	}
	return all
}

// NotFinite is the error of a run that [Watch] has ended.
type NotFinite struct {
	What    string         // "NaN" or "Inf"
	Node    *gorgonia.Node // the first node with such a number, in the order of the graph, or a learnable after the step
	Element int            // index of the first such element in row-major order
	By      string         // its origin: a step of the run, as in [Report.Steps], or the solver's step
	Run     int            // number of the run, as [Snapshot] counts runs; under [Train], number of the solver's step
	Input   *gorgonia.Node // the first input or learnable of Node's op that contains such a number too, or nil
	Rank    int            // the rank that has the number in the first such node, 0 without [OnDevices]
	ranks   int
	order   int // of Node among those that are watched; learnables are the last
	trained bool
}

// Error describes the number, where it was found and its origin.
func (e *NotFinite) Error() string {
	var b strings.Builder
	if e.ranks > 1 {
		fmt.Fprintf(&b, "rank %d: ", e.Rank)
	}
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

// look returns a *NotFinite if the outputs of a run, of each rank of this process, or learnables after its step have a watched number.
func (vm *VM) look(all [][]gorgonia.Value) error {
	t := vm.trainer
	var bad *NotFinite
	var now [][][]byte
	var err error
	if t != nil && t.found { // LossScaling skips the step
		all = nil
	}
	first, _ := vm.Process()
	for r, out := range all {
		found, err := vm.lookAtNodes(out)
		if err != nil {
			return err
		}
		if found != nil && (bad == nil || found.order < bad.order) {
			bad, found.Rank = found, first+r
		}
	}
	trained := t != nil && !t.onHost
	if trained && bad == nil {
		if bad, now, err = vm.lookAtLearnables(); err != nil {
			return err
		}
	}
	if bad, err = vm.firstNotFinite(bad); err != nil {
		return err
	}
	if bad == nil {
		if trained {
			t.kept = now
		}
		return nil
	}
	bad.ranks = vm.config.total()
	if bad.Run, bad.trained = vm.next+1, trained; trained {
		bad.Run = t.step()
	}
	return bad
}

// lookAtNodes searches the values of ops.
func (vm *VM) lookAtNodes(out []gorgonia.Value) (*NotFinite, error) {
	w := vm.config.watched()
	for order, n := range vm.graph.Watched {
		what, at, err := w.find(out[n.Index])
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", internal.Name(n.Node), err)
		}
		if what == "" {
			continue
		}
		bad := &NotFinite{What: what, Node: n.Node, Element: at, By: madeBy(vm.graph.Program, n.Node), order: order}
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

// begins reports whether an input or a learnable had a watched number before the run.
func (vm *VM) begins(n *gorgonia.Node) bool {
	w, v := vm.config.watched(), n.Value()
	if i := slices.Index(vm.params.nodes, n); i >= 0 {
		own := vm.params.values[i]
		m := vm.params.part(vm.graph.Program, vm.params.kept, i)
		if m == nil { // in a Store, and no run changes it
			m = make([]byte, own.Bytes())
			if vm.exec.State(own, m) != nil {
				return false
			}
		}
		v = values.Over(own.Dtype, own.Shape, m)
	}
	what, _, err := w.find(v)
	return err == nil && what != ""
}

// firstNotFinite returns the first of what the ranks of all processes have found, nil if none has found a watched number.
func (vm *VM) firstNotFinite(bad *NotFinite) (*NotFinite, error) {
	w := vm.config.world
	if w == nil {
		return bad, nil
	}
	type found struct {
		What, By                    string
		Node, Input, Element, Order int // indices of nodes in the graph, -1 for none
	}
	index := func(n *gorgonia.Node) int {
		return slices.IndexFunc(vm.graph.Nodes, func(of lower.Node) bool { return of.Node == n })
	}
	const size = 2 << 10 // bytes of a rank
	b := make([]byte, w.Size*size)
	if bad != nil {
		text, err := json.Marshal(found{bad.What, shorten(bad.By, size/8), index(bad.Node), index(bad.Input), bad.Element, bad.order})
		if err != nil {
			return nil, err
		}
		copy(b[w.Rank*size:(w.Rank+1)*size], text)
	}
	all, err := vm.exec.Together(b)
	if err != nil {
		return nil, err
	}
	bad = nil
	for rank := range w.Size {
		text := bytes.TrimRight(all[rank*size:(rank+1)*size], "\x00")
		if len(text) == 0 {
			continue
		}
		var of found
		if err := json.Unmarshal(text, &of); err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
		if bad != nil && bad.order <= of.Order {
			continue
		}
		bad = &NotFinite{What: of.What, By: of.By, Node: vm.graph.Nodes[of.Node].Node, Element: of.Element, Rank: rank, order: of.Order}
		if of.Input >= 0 {
			bad.Input = vm.graph.Nodes[of.Input].Node
		}
	}
	return bad, nil
}

// lookAtLearnables searches the results of the step, and returns the states after it.
func (vm *VM) lookAtLearnables() (bad *NotFinite, now [][][]byte, err error) {
	t, w := vm.trainer, vm.config.watched()
	if now, err = vm.exec.States(true); err != nil {
		return nil, nil, err
	}
	for i, l := range t.graph.Trained.Learned {
		if what, at := values.NotFinite(l.Value.Dtype, t.part(vm.graph.Program, now, i), w&NaN != 0, w&Inf != 0); what != "" {
			return &NotFinite{What: what, Node: l.Node, Element: at, By: fmt.Sprintf("the step of %T", t.sets[t.setOf(i)].solver), order: math.MaxInt}, nil, nil
		}
	}
	return nil, now, nil
}

// part returns the elements of a parameter from the states of a program, as [exec.Executable.States] returns them for the first rank; nil if
// no run changes it.
func (p *parameters) part(of *program.Program, states [][][]byte, i int) []byte {
	v := p.values[i]
	k := slices.IndexFunc(of.Updates, func(u program.Update) bool { return u.State == v.Base })
	if states[0][k] == nil {
		return nil
	}
	return states[0][k][v.View.Offset*v.Dtype.Size():][:v.Bytes()]
}

// find returns "NaN" or "Inf" and the row-major index of the first watched number of a value, or "" if it has none.
func (w FloatClass) find(v gorgonia.Value) (what string, at int, err error) {
	dt, ok := values.Dtype(v.Dtype())
	if !ok || !dt.IsFloat() {
		return "", 0, nil
	}
	m, err := values.Bytes(v)
	if err != nil {
		return "", 0, err
	}
	what, at = values.NotFinite(dt, m, w&NaN != 0, w&Inf != 0)
	return what, at, nil
}

// madeBy names the step that computes a node.
func madeBy(p *program.Program, n *gorgonia.Node) string {
	step := 0
	for _, in := range p.Instrs {
		if !program.Computes(in.Op) {
			continue
		}
		step++
		if slices.Contains(in.Nodes, n) {
			return fmt.Sprintf("step %d, %v", step, in.Op)
		}
	}
	return "no step (a view of another value)"
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
