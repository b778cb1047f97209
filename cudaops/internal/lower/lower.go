// Package lower translates a Gorgonia graph to a program. Each node becomes the instructions that compute it; the values that
// a run leaves on the host become the program's outputs.
package lower

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Graph is a lowered graph: its program, and the assignment of the program's values to the graph's nodes.
type Graph struct {
	Program   *program.Program
	Nodes     []Node  // every node of the graph, in the order of the run
	Inputs    []Input // in the order of the program's inputs
	Outputs   []Output
	Gradients []Gradient
	Trained   *Trained // nil without training
	Residents []Node   // inputs that stay on the device between runs: states that no run changes, in the order of Wanted.Resident
	Shared    []Node   // in the order of Wanted.Shared
	Watched   []Watched
	slices    []slicing
	ranges    []ranged
	Indices   []Indices
	Random    []int64 // states of the ranks' random number generators, an input: seed and number of the run; nil without random numbers
	modes     []mode
}

// Input is an input of the program: the value of an input node, or the state of an op.
type Input struct {
	Node  *gorgonia.Node // the input, or the op's node
	State *tensor.Dense  // nil for an input
	First *tensor.Dense  // if not nil, replaces a State of zeros
}

// Value returns the input's current value.
func (in Input) Value() gorgonia.Value {
	switch {
	case in.State == nil:
		return in.Node.Value()
	case in.First != nil && allZero(in.State):
		return in.First
	}
	return in.State
}

// allZero reports whether all elements of a tensor are 0.
func allZero(t *tensor.Dense) bool {
	m, err := values.Bytes(t)
	return err == nil && !slices.ContainsFunc(m, func(b byte) bool { return b != 0 })
}

// Node is a node of the graph with its value in the program; a statement has no value.
type Node struct {
	*gorgonia.Node
	Value *program.Value
}

// Output is a value that a run leaves on the host: bound to its node, in the variable of a Read statement, or in the state of
// an op.
type Output struct {
	Index int // in Program.Outputs
	Node  *gorgonia.Node
	Read  *gorgonia.Value // variable of a Read, or nil
	State *tensor.Dense   // state of an op, or nil
	// Vector is set if the value must be a tensor of shape (1), which some ops of Gorgonia return for a scalar.
	Vector bool
}

// Gradient is the gradient of an input. It shares no memory with the value of the derivative's node: solvers write gradients,
// and several inputs can share one derivative.
type Gradient struct{ Input, Derivative *gorgonia.Node }

// Watched is a node whose value is checked after a run.
type Watched struct {
	Index int // in Program.Outputs
	Node  *gorgonia.Node
}

// Wanted selects the values that a run leaves on the host, in addition to those of Read statements.
type Wanted struct {
	Keep    []*gorgonia.Node
	All     bool // every node
	Forward bool // no derivatives
	// Evaluate lowers ops with a training mode in evaluation mode.
	Evaluate bool
	Only     []*gorgonia.Node // if any, Only and Keep replace the graph's results
	Watch    bool             // every node, to check its value
	Train    *Training        // nil without training
	// Resident lists inputs that stay on the device between runs.
	Resident []*gorgonia.Node
	// Shared lists inputs in memory that several programs may use, and those that runs change.
	Shared []Shared
	// Moving lists ops whose slices are inputs of the program.
	Moving []gorgonia.Op
	// Precision applies to all products except those listed in PrecisionOf.
	Precision   kernels.Precision
	PrecisionOf map[*gorgonia.Node]kernels.Precision
	// Ranks is the number of ranks that run the program, 0 for one that has no others, and Local that of this process. Split lists the inputs of which each rank has a
	// value of its own. Costs and gradients of learnables are the means of those of the ranks, or their sums with SumRanks.
	Ranks    int
	Local    int
	Split    []*gorgonia.Node
	SumRanks bool
}

// New lowers g. A nil w selects the graph's results.
func New(g *gorgonia.ExprGraph, w *Wanted) (*Graph, error) {
	if w == nil {
		w = &Wanted{}
	}
	sorted, err := internal.Sort(g)
	if err != nil {
		return nil, err
	}
	slices.Reverse(sorted) // Sort puts nodes before their operands
	l := &lowerer{
		graph:   &Graph{Program: new(program.Program)},
		valueOf: make(map[*gorgonia.Node]*program.Value, len(sorted)),
		used:    make(map[*gorgonia.Node]bool, len(sorted)),
		index:   map[*program.Value]int{},
		bound:   map[*gorgonia.Node]bool{},
		users:   map[*gorgonia.Node]int{},
		drawn:   map[any]int{},
		norms:   map[norm]*moments{},
		again:   map[*program.Value]func(*call) *program.Value{},
		kept:    map[*tensor.Dense]*program.Value{},

		begins:  make([]float64, 2*len(w.Moving)),
		ranges:  map[int]*program.Value{},
		rounded: map[*gorgonia.Node]bool{},

		want: *w, ranks: max(w.Ranks, 1), local: max(w.Local, 1),
	}
	for _, n := range sorted {
		children, err := internal.Children(n)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", internal.Name(n), err)
		}
		for _, c := range children {
			l.users[c]++
		}
	}
	if w.Train != nil {
		if err := w.Train.Solvers.start(l, *w.Train); err != nil {
			return nil, err
		}
	}
	if err := l.findSeeds(sorted); err != nil {
		return nil, err
	}
	if err := l.startResidents(); err != nil {
		return nil, err
	}
	for _, n := range sorted {
		if err := guard.Own("lowering", func() error { return l.node(n) }); err != nil {
			return nil, fmt.Errorf("node %s: %w", internal.Name(n), err)
		}
	}
	for _, step := range []func() error{
		l.checkResidents, l.changeStates, l.checkSplit, l.checkPrecisions,
		func() error { return l.wanted("Keep", w.Keep) },
		func() error { return l.wanted("Outputs", w.Only) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if len(w.Only) == 0 {
		l.results()
	}
	l.reduceCosts()
	l.keepStates()
	if w.Watch {
		l.watch()
	}
	if w.Train != nil {
		if err := w.Train.Solvers.update(l); err != nil {
			return nil, err
		}
	}
	l.convolutions()
	return l.graph, nil
}

// wanted makes nodes named by an option outputs.
func (l *lowerer) wanted(option string, nodes []*gorgonia.Node) error {
	for _, n := range nodes {
		if l.valueOf[n] == nil {
			return fmt.Errorf("%s: got node %v, which is not in the graph", option, n)
		}
		l.bind(n)
	}
	return nil
}

// watch makes all computed values outputs, except multiples of the scale: one that no learnable needs may overflow in a step that is made.
func (l *lowerer) watch() {
	for _, n := range l.graph.Nodes {
		if n.Value != nil && !isLeaf(n.Node) && l.degree[n.Node] != linear {
			l.graph.Watched = append(l.graph.Watched, Watched{l.output(n.Value), n.Node})
		}
	}
}

// lowerer is the state of lowering one graph.
type lowerer struct {
	graph   *Graph
	valueOf map[*gorgonia.Node]*program.Value
	used    map[*gorgonia.Node]bool // by a node other than a statement
	index   map[*program.Value]int  // of Program.Outputs
	bound   map[*gorgonia.Node]bool // outputs bound to their nodes
	state   *program.Value          // state of the random number generator, or nil
	iotas   *program.Value          // base of all iotas, or nil
	users   map[*gorgonia.Node]int  // number of nodes that use a node's value
	drawn   map[any]int             // random streams, by drawer
	norms   map[norm]*moments
	// again recomputes a value for each node that uses it, if that is cheaper than storing the value.
	again   map[*program.Value]func(c *call) *program.Value
	kept    map[*tensor.Dense]*program.Value // states of ops, as computed so far
	order   []*tensor.Dense                  // keys of kept, in the order of the graph
	learned map[*gorgonia.Node]int           // learnables of the program: indices in Trained.Learned
	err     error                            // from a rule that composed an invalid function
	// resident maps resident inputs to their states.
	resident map[*gorgonia.Node]*program.Value
	changing map[*gorgonia.Node]*gorgonia.Node // the next values of resident inputs that runs change
	halves   map[*program.Value]*program.Value // states in 16 bits and their next values, by the values in float32 that they are converted to

	want      Wanted
	ranks     int                               // at least 1
	local     int                               // ranks of this process
	gradients map[*program.Value]*program.Value // of learnables, reduced over the ranks

	begins []float64              // first element and step of each moving slice
	begin  *program.Value         // the input that holds begins, or nil
	ranges map[int]*program.Value // the vectors 0, 1, ..., n-1 by n

	rounded map[*gorgonia.Node]bool // nodes of PrecisionOf that are float32 matmuls

	ones      map[*gorgonia.Node]bool   // derivatives of losses w.r.t. themselves, under a scaler
	seeds     map[*gorgonia.Node][]int  // operands that are such a derivative
	degree    map[*gorgonia.Node]degree // of nodes that depend on seeds
	inFloat64 *program.Value            // the scale
}

func (l *lowerer) node(n *gorgonia.Node) error {
	children, err := internal.Children(n)
	if err != nil {
		return err
	}
	in := make([]*program.Value, len(children))
	for i, c := range children {
		if in[i] = l.valueOf[c]; in[i] == nil {
			return fmt.Errorf("input %d, %s, is outside the graph", i, internal.Name(c))
		}
	}
	if n.Op() != nil && internal.IsStatement(n.Op()) {
		l.graph.Nodes = append(l.graph.Nodes, Node{n, nil})
		return l.statement(n, children)
	}
	for _, c := range children {
		l.used[c] = true
	}
	if err := l.noteSlice(n, children); err != nil {
		return err
	}
	start := len(l.graph.Program.Instrs)
	c := l.call(n, typeOf(n), in...)
	if c.Numeric {
		if _, err := values.Size(c.Dtype, c.Shape); err != nil {
			return err
		}
		if c.Elements() == 0 {
			return fmt.Errorf("got shape %v, want at least one element", c.Shape)
		}
	}
	if err := c.checkMode(); err != nil {
		return err
	}
	for i, v := range in {
		if again := l.again[v]; again != nil {
			in[i] = again(c)
		}
	}
	for _, i := range l.seeds[n] {
		in[i] = l.scaleAs(in[i].Dtype)
	}
	for _, rule := range rules {
		if l.valueOf[n] = rule(c); l.valueOf[n] != nil {
			break
		}
	}
	if l.err != nil {
		return l.err
	}
	c.setPrecision(start)
	if l.valueOf[n], err = c.fold(l.valueOf[n], start); err != nil {
		return err
	}
	l.graph.Nodes = append(l.graph.Nodes, Node{n, l.valueOf[n]})
	return nil
}

// typeOf returns the type of a node's value. Numeric is set if kernels support it.
func typeOf(n *gorgonia.Node) program.Type {
	dtype, _ := internal.ElementType(n)
	dt, numeric := values.Dtype(dtype)
	shape := n.Shape()
	return program.Type{Numeric: numeric && (n.IsScalar() || len(shape) > 0), Dtype: dt, Shape: shape}
}

// statement records a Read.
func (l *lowerer) statement(n *gorgonia.Node, children gorgonia.Nodes) error {
	target, err := internal.ReadTarget(n.Op())
	if err != nil {
		return err
	}
	if target != nil && len(children) == 1 {
		c := children[0]
		l.graph.Outputs = append(l.graph.Outputs, Output{Index: l.output(l.valueOf[c]), Node: c, Read: target, Vector: internal.GivesVector(c)})
		if !isLeaf(c) {
			l.bind(c)
		}
	}
	return nil
}

// output makes a value an output of the program and returns its index.
func (l *lowerer) output(v *program.Value) int {
	i, ok := l.index[v]
	if !ok {
		i = len(l.graph.Program.Outputs)
		l.index[v] = i
		l.graph.Program.Outputs = append(l.graph.Program.Outputs, v)
	}
	return i
}

// bind makes the value of n an output that is bound to n, unless n is an input or a constant.
func (l *lowerer) bind(n *gorgonia.Node) {
	if l.bound[n] || isLeaf(n) {
		return
	}
	l.bound[n] = true
	l.graph.Outputs = append(l.graph.Outputs, Output{Index: l.output(l.valueOf[n]), Node: n, Vector: internal.GivesVector(n)})
}

// isLeaf reports whether a node is an input or a constant.
func isLeaf(n *gorgonia.Node) bool { return n.Op() == nil || internal.IsConstant(n.Op()) }

// results makes the values that Gorgonia's machine leaves on the host outputs: the roots of the graph, the cost of Grad, and
// the derivatives of the inputs.
//
// Derivatives w.r.t. inputs that were not passed to Grad are roots too, and are omitted. They stay in a graph with several
// costs, because the results of Grad's second call cannot be distinguished from them. Derivatives w.r.t. learnables
// stay on the device.
func (l *lowerer) results() {
	w, costs := l.want, 0
	for _, n := range l.graph.Nodes {
		if internal.IsCost(n.Node) {
			costs++
		}
	}
	for _, n := range l.graph.Nodes {
		if n.Value == nil || w.Forward && internal.IsDerivative(n.Node) && !internal.IsCost(n.Node) {
			continue
		}
		unasked := costs < 2 && internal.IsStray(n.Node)
		if w.All || !l.used[n.Node] && !unasked && !l.isLearned(n.DerivOf()) || internal.IsCost(n.Node) {
			l.bind(n.Node)
		}
		if !program.Is[program.Input](n.Value.Def.Op) && l.resident[n.Node] == nil || n.Deriv() == nil || w.Forward {
			continue
		}
		d := n.Deriv()
		if l.valueOf[d] == nil {
			continue
		}
		l.bind(d)
		l.graph.Gradients = append(l.graph.Gradients, Gradient{n.Node, d})
	}
}

// isLearned reports whether all nodes are learnables.
func (l *lowerer) isLearned(nodes gorgonia.Nodes) bool {
	return len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n *gorgonia.Node) bool { _, learned := l.learned[n]; return !learned })
}
