package cudaops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// parameters are the inputs of a VM that stay on its device and that Pull copies to the host: the learnables of Train, which
// come first, those of State, and with In the other parameters of the graph.
type parameters struct {
	nodes   []*gorgonia.Node
	learned int              // number of learnables
	states  []int            // indices of those of State
	next    []*gorgonia.Node // of a State, its next value; nil for other nodes
	// transient is set for a Transient.
	transient []bool
	stored    []kernels.Dtype  // the 16-bit type of each State that is stored in one, else 0
	values    []*program.Value // states or views of them, as last compiled
	halves    []kernels.Dtype  // the type of the program's copy of each in 16 bits, or 0
	held      []*parameter
	copies    []*deviceCopy  // of the nodes' values
	all       []int          // indices of all nodes
	store     *Store         // nil without In
	first     bool           // the VM runs on the first of the Store's ranks alone
	work      program.Memory // the Store's workspace, as last compiled
	exec      *exec.Executable
	graph     *lower.Graph
	// kept holds the states before a run that may have to be undone; nil if the states have changed since.
	kept    [][][]byte       // by rank
	indices []checkedIndices // of graph.Indices
	saved   [][][]byte       // the states by rank, while the graph is recompiled
}

// newParameters returns the parameters of a VM without a Store.
func newParameters(learnables []*gorgonia.Node, c *config, copies *deviceCopies) *parameters {
	p := &parameters{learned: len(learnables)}
	for _, n := range slices.Concat(learnables, c.stateNodes()) {
		p.add(n, new(parameter), copies.add())
	}
	p.findStates(c)
	return p
}

// findStates finds the nodes of State.
func (p *parameters) findStates(c *config) {
	for i, n := range p.nodes {
		of := c.state(n)
		p.transient, p.stored = append(p.transient, of.transient), append(p.stored, c.halfOf(of))
		if p.next = append(p.next, of.next); p.next[i] != nil {
			p.states = append(p.states, i)
		}
	}
}

func (p *parameters) add(n *gorgonia.Node, held *parameter, c *deviceCopy) {
	p.all = append(p.all, len(p.nodes))
	p.nodes, p.held, p.copies = append(p.nodes, n), append(p.held, held), append(p.copies, c)
}

// trained returns the indices of the learnables.
func (p *parameters) trained() []int { return p.all[:p.learned] }

// homes returns the memory of each learnable in a Store, nil without one.
func (p *parameters) homes() []program.Memory {
	return program.Collect(p.trained(), func(i int) program.Memory { return p.held[i].home })
}

// shared returns the parameters that are no learnables.
func (p *parameters) shared() []lower.Shared {
	return program.Collect(p.all[p.learned:], func(i int) lower.Shared {
		return lower.Shared{Node: p.nodes[i], Next: p.next[i], Home: p.held[i].home, Offset: p.held[i].offset, Own: p.transient[i], Stored: p.stored[i]}
	})
}

// built records the program of a compiled graph, and sets its states to the saved ones.
func (p *parameters) built(e *exec.Executable, graph *lower.Graph) error {
	if p.exec, p.graph, p.values, p.kept = e, graph, nil, nil; p.store != nil {
		p.work = p.store.work
	}
	for i := range p.learned {
		p.values = append(p.values, graph.Trained.Learned[i].Value)
	}
	for _, s := range graph.Shared {
		p.values = append(p.values, s.Value)
	}
	p.indices = make([]checkedIndices, len(graph.Indices))
	p.halves = program.Collect(p.values, func(v *program.Value) kernels.Dtype { return e.HalfOf(v.Base) })
	if p.saved == nil {
		return nil
	}
	if err := e.SetStates(p.saved); err != nil {
		return err
	}
	p.saved = nil
	return nil
}

// save saves the states of a program before its executable is closed, except those in a Store.
func (p *parameters) save() (err error) {
	p.saved, err = p.exec.States(false)
	return err
}

// begin makes zeros, which new memory holds, the values of states without one.
func (p *parameters) begin() {
	for _, i := range p.states {
		p.held[i].version = max(p.held[i].version, 1)
	}
}

// spoil records that a run has changed the states and then failed.
func (p *parameters) spoil(err error) {
	for _, i := range p.states {
		p.held[i].spoilt = fmt.Errorf("state %s: a run with a wrong index has changed it, %w: want Push or Restore", internal.Name(p.nodes[i]), err)
	}
}

// usable returns an error if a failed run has changed a state.
func (p *parameters) usable(list []int) error {
	for _, i := range list {
		if err := p.held[i].spoilt; err != nil {
			return err
		}
	}
	return nil
}

// checkedIndices is the result of the check of a parameter that holds indices, of that version.
type checkedIndices struct {
	version int
	err     error
}

// checkIndices returns an error if a parameter has an index outside of its axis. Those that another VM has changed are copied from the device.
func (p *parameters) checkIndices() error {
	for k, x := range p.graph.Indices {
		i := p.learned + x.Shared
		if p.indices[k].version != p.held[i].version {
			p.indices[k] = checkedIndices{p.held[i].version, nil}
			for _, rank := range p.exec.Ranks() {
				v, memory, err := values.Make(p.values[i].Dtype, p.values[i].Shape)
				if err == nil {
					err = rank.State(p.values[i], memory)
				}
				if err != nil {
					p.indices[k].version = -1
					return fmt.Errorf("%s %s: %w", p.what(i), internal.Name(p.nodes[i]), err)
				}
				if p.indices[k].err = p.graph.CheckInput(p.nodes[i], v); p.indices[k].err != nil {
					break
				}
			}
		}
		if err := p.indices[k].err; err != nil {
			return err
		}
	}
	return nil
}

// computedIndices checks the indices that a run has left, given its outputs by rank, for the next run.
func (p *parameters) computedIndices(all [][]gorgonia.Value) {
	for k, x := range p.graph.Indices {
		i := p.learned + x.Shared
		p.indices[k] = checkedIndices{p.held[i].version, nil}
		for _, out := range all {
			if x.Next >= 0 && p.indices[k].err == nil {
				p.indices[k].err = p.graph.CheckInput(p.nodes[i], out[x.Next])
			}
		}
	}
}

// keep saves the states before a run, for undo.
func (p *parameters) keep() (err error) {
	if p.kept == nil || p.store != nil { // another VM of the Store may have changed them
		p.kept, err = p.exec.States(true)
	}
	return err
}

// undo sets the states to those before the run, if keep has saved them.
func (p *parameters) undo() error {
	if p.kept == nil {
		return nil
	}
	clear(p.indices) // of the values that the run has left
	return p.exec.SetStates(p.kept)
}

// fresh returns the parameters without a value on the device whose nodes have one.
func (p *parameters) fresh() []int {
	return slices.DeleteFunc(slices.Clone(p.all), func(i int) bool { return p.held[i].version > 0 || p.nodes[i].Value() == nil })
}

// drop removes a VM that became unreachable from its Store.
func (p *parameters) drop() {
	unlock, _ := p.store.lock(context.Background())
	defer unlock()
	if p.store.members[p] {
		p.exec.Close()
		p.store.part(p)
	}
}

// moved reports whether the Store has moved a parameter or the workspace since the graph was compiled.
func (p *parameters) moved() bool {
	return p.store != nil && p.work != p.store.work || slices.ContainsFunc(p.all, func(i int) bool {
		return p.values[i].Base.Buffer.Home != p.held[i].home
	})
}

// what names the kind of a parameter, for errors.
func (p *parameters) what(i int) string {
	switch {
	case i < p.learned:
		return "learnable"
	case p.next[i] != nil:
		return "state"
	}
	return "parameter"
}

// ran records that a run has changed the states.
func (p *parameters) ran() {
	p.renewed(p.states, 1)
}

// stepped records that runs have changed the learnables n times.
func (p *parameters) stepped(n int) {
	p.renewed(p.trained(), n)
}

// renewed records that launches have changed parameters n times, and copies in 16 bits with them.
func (p *parameters) renewed(list []int, n int) {
	for _, i := range list {
		current := p.isRounded(i)
		if p.held[i].version += n; current {
			p.rounded(i)
		}
	}
}

// isRounded reports whether the program's copy of a parameter in 16 bits is one of its current value.
func (p *parameters) isRounded(i int) bool {
	version, ok := p.held[i].rounded[rounding{p.halves[i], p.first}]
	return ok && version == p.held[i].version
}

// rounded records that the program's copy of a parameter in 16 bits, if it has one, is one of its current value.
func (p *parameters) rounded(i int) {
	if p.halves[i] == 0 {
		return
	}
	if p.held[i].rounded == nil {
		p.held[i].rounded = map[rounding]int{}
	}
	p.held[i].rounded[rounding{p.halves[i], true}] = p.held[i].version
	if !p.first {
		p.held[i].rounded[rounding{p.halves[i], false}] = p.held[i].version
	}
}

// changed returns the learnables whose host values must be copied to the device: values bound since the last copy, and values
// written by Pull of another VM. It returns them with an error if the device has made steps of one of the latter since.
func (p *parameters) changed(among []int) (list []int, err error) {
	for _, i := range among {
		v := p.nodes[i].Value()
		if v == nil && (p.held[i].version > 0 || p.next[i] != nil) { // the device has a value
			continue
		}
		bound := !p.copies[i].has(v)
		if !bound && !p.copies[i].isStale() {
			continue
		}
		list = append(list, i)
		if !bound && p.ahead(i) && err == nil {
			err = fmt.Errorf("%s %s: got changes on the device and a value written by Pull of another VM: call Push to copy that value", p.what(i), internal.Name(p.nodes[i]))
		}
	}
	return list, err
}

// refresh copies changed learnables to the device and returns them.
func (p *parameters) refresh(among []int) (changed []int, err error) {
	if changed, err = p.changed(among); err == nil {
		err = p.push(changed)
	}
	return changed, err
}

// round renews copies in 16 bits of parameters that were set, or changed by a VM that has not renewed them. Learnables may be parts of one state.
func (p *parameters) round() error {
	renewed := map[*program.Value]bool{}
	for _, i := range p.all {
		if p.halves[i] == 0 || p.isRounded(i) {
			continue
		}
		if base := p.values[i].Base; !renewed[base] {
			if err := p.exec.Round(base); err != nil {
				return fmt.Errorf("%s %s: %w", p.what(i), internal.Name(p.nodes[i]), err)
			}
			renewed[base] = true
		}
		p.rounded(i)
	}
	return nil
}

// separate returns an error if learnables share memory on the host.
func (p *parameters) separate() error {
	sorted := slices.Clone(p.all)
	at := program.Collect(p.nodes, func(n *gorgonia.Node) values.Extent { return values.ExtentOf(n.Value()) })
	slices.SortFunc(sorted, func(i, j int) int { return cmp.Compare(at[i].Start, at[j].Start) })
	for k := range sorted[1:] {
		if i, j := sorted[k], sorted[k+1]; at[i].Overlaps(at[j]) {
			return fmt.Errorf("learnables %s and %s have values in the same memory, want separate tensors", internal.Name(p.nodes[i]), internal.Name(p.nodes[j]))
		}
	}
	return nil
}

// push copies values of learnables to the device, all or none.
func (p *parameters) push(list []int) error {
	if len(list) == 0 {
		return nil
	}
	if err := p.separate(); err != nil {
		return err
	}
	values := make([]exec.StateValue, len(list))
	for k, i := range list {
		m, err := stateBytes(p.what(i), p.nodes[i], p.values[i])
		if err == nil {
			err = p.graph.CheckInput(p.nodes[i], p.nodes[i].Value())
		}
		if err != nil {
			return err
		}
		values[k] = exec.StateValue{Of: p.values[i], Bytes: m}
	}
	p.kept = nil
	if err := p.exec.SetAll(values); err != nil {
		return fmt.Errorf("%s to the device: %w", p.what(list[0]), err)
	}
	for _, i := range list {
		p.held[i].version++
		p.held[i].spoilt = nil
		p.rounded(i)
		p.synced(i)
	}
	return nil
}

// stateBytes returns the host memory of the value of a node that is a state on the device.
func stateBytes(what string, n *gorgonia.Node, to *program.Value) ([]byte, error) {
	v := n.Value()
	if v == nil {
		return nil, fmt.Errorf("%s %s has no value: set it with gorgonia.Let", what, internal.Name(n))
	}
	if err := fits(what, n, to); err != nil {
		return nil, err
	}
	return values.Bytes(v)
}

// fits returns an error unless the value of a node has the type and shape of its state on the device.
func fits(what string, n *gorgonia.Node, state *program.Value) error {
	v, want := n.Value(), values.Tensor(state.Dtype)
	if v.Dtype() != want || !v.Shape().Eq(state.Shape) {
		return fmt.Errorf("%s %s has a value of %v and shape %v, want %v and shape %v", what, internal.Name(n), v.Dtype(), v.Shape(), want, state.Shape)
	}
	if _, err := values.Memory(v); err != nil {
		return fmt.Errorf("%s %s: got %w", what, internal.Name(n), err)
	}
	return nil
}

// takes returns an error unless the host values of learnables can be overwritten by the device's.
func (p *parameters) takes(list []int) error {
	for _, i := range list {
		n := p.nodes[i]
		if n.Value() == nil {
			continue
		}
		if err := fits(p.what(i), n, p.values[i]); err != nil {
			return err
		}
	}
	return p.separate()
}

// pull copies learnables from the device to their values on the host, all or none. A learnable without a value is bound to a
// new one.
func (p *parameters) pull(list []int) error {
	if err := errors.Join(p.takes(list), p.usable(list)); err != nil {
		return err
	}
	pulled, memory := make([]gorgonia.Value, len(list)), make([][]byte, len(list))
	for k, i := range list {
		from := p.values[i]
		var err error
		if pulled[k], memory[k], err = values.Make(from.Dtype, from.Shape); err == nil {
			err = p.exec.State(from, memory[k])
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", p.what(i), internal.Name(p.nodes[i]), err)
		}
	}
	for k, i := range list {
		n := p.nodes[i]
		var err error
		if v := n.Value(); v != nil {
			err = values.Set(v, memory[k])
		} else {
			err = internal.Bind(n, pulled[k])
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", p.what(i), internal.Name(n), err)
		}
		p.synced(i)
		p.copies[i].written()
	}
	return nil
}

// find returns the indices of the given learnables, or of all if nodes is empty.
func (p *parameters) find(nodes []*gorgonia.Node) ([]int, error) {
	if len(p.nodes) == 0 {
		return nil, errUntrained
	}
	if len(nodes) == 0 {
		nodes = p.nodes
	}
	list := make([]int, len(nodes))
	for k, n := range nodes {
		if list[k] = slices.Index(p.nodes, n); n == nil || list[k] < 0 {
			return nil, fmt.Errorf("got %v, want a learnable of Train, a node of State or a parameter of its Store", n)
		}
	}
	return list, nil
}

// errUntrained is the error of methods that need learnables.
var errUntrained = errors.New("want a VM with the option Train and one of Gorgonia's solvers, or with State or In")

// ahead reports whether the device has changed a parameter since host and device last had the same value.
func (p *parameters) ahead(i int) bool {
	return p.copies[i].value != nil && p.copies[i].version != p.held[i].version
}

// synced records that the node's value and the device's are the same.
func (p *parameters) synced(i int) {
	p.copies[i].set(p.nodes[i].Value())
	p.copies[i].version = p.held[i].version
}

// newer returns the learnables whose values are newer on the device than on the host.
func (p *parameters) newer() (list []int, err error) {
	changed, err := p.changed(p.trained())
	for _, i := range p.trained() {
		if p.ahead(i) && !slices.Contains(changed, i) {
			list = append(list, i)
		}
	}
	return list, err
}
