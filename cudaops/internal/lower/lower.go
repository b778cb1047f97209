// Package lower turns a Gorgonia graph into a program: each node into the instructions that compute
// it, and the values that the user finds on the host after a run into the program's outputs.
package lower

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Graph is a lowered graph: its program, and how the program's values are assigned to the graph's
// nodes.
type Graph struct {
	Program   *program.Program
	Nodes     []Node  // every node of the graph, in the order of the run
	Inputs    []Input // those of the program, in order
	Outputs   []Output
	Gradients []Gradient
	Trained   *Trained // nil without training
	Residents []Resident
	Watched   []Watched
	slices    []slicing
	ranges    []ranged
	Random    []int64 // the state of random numbers, an input too: seed and number of the run; nil if there are none
	modes     []mode
}

// Input is a value that a run starts from: that of an input node, or the state of an op.
type Input struct {
	Node  *gorgonia.Node // the input, or the op's node
	State *tensor.Dense  // nil for an input
	First *tensor.Dense  // the value while State is zeros, nil for State
}

// Value returns its present value.
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

// Node is a node of the graph with its value in the program, nil for a statement.
type Node struct {
	*gorgonia.Node
	Value *program.Value
}

// Output is a value that the user finds on the host after a run: bound to its node, for a Read
// statement in a variable, or in the state of an op.
type Output struct {
	Index int // in Program.Outputs
	Node  *gorgonia.Node
	Read  *gorgonia.Value // if neither of these: bound to the node
	State *tensor.Dense
	// Vector reports that the value is to be a tensor of shape (1), which some ops of Gorgonia return
	// for a scalar.
	Vector bool
}

// Gradient is the gradient of an input. It has memory of its own beside the value of the
// derivative's node: solvers write into gradients, and several inputs can share one derivative.
type Gradient struct{ Input, Derivative *gorgonia.Node }

// Watched is a node whose value is checked after a run.
type Watched struct {
	Index int // in Program.Outputs
	Node  *gorgonia.Node
}

// Wanted holds which values are wanted on the host after a run, besides those of the Read
// statements.
type Wanted struct {
	Keep    []*gorgonia.Node
	All     bool // of every node
	Forward bool // of no derivative
	// Evaluate lowers ops that train or evaluate to evaluate, whatever their mode.
	Evaluate bool
	Only     []*gorgonia.Node // if any, these and those of Keep replace the graph's results
	Watch    bool             // to check every node
	Train    *Training        // nil for no training
	// Resident are inputs that stay on the device from run to run.
	Resident []*gorgonia.Node
	// Moving are ops whose slices the program reads before each run.
	Moving []gorgonia.Op
	// Precision is that of products, PrecisionOf that of products that have one of their own.
	Precision   kernels.Precision
	PrecisionOf map[*gorgonia.Node]kernels.Precision
}

// New lowers g. w may be nil: the graph's results are wanted then.
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
		graph: &Graph{Program: new(program.Program)},
		of:    make(map[*gorgonia.Node]*program.Value, len(sorted)),
		used:  make(map[*gorgonia.Node]bool, len(sorted)),
		index: map[*program.Value]int{},
		bound: map[*gorgonia.Node]bool{},
		users: map[*gorgonia.Node]int{},
		drawn: map[any]int{},
		norms: map[norm]*moments{},
		again: map[*program.Value]func(*call) *program.Value{},
		kept:  map[*tensor.Dense]*program.Value{},

		evaluates: w.Evaluate,

		moving: w.Moving, begins: make([]float64, 2*len(w.Moving)), ranges: map[int]*program.Value{},

		precision: w.Precision, precisionOf: w.PrecisionOf, rounded: map[*gorgonia.Node]bool{},
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
		if err := l.startTraining(*w.Train); err != nil {
			return nil, err
		}
	}
	if err := l.startResidents(w.Resident); err != nil {
		return nil, err
	}
	for _, n := range sorted {
		if err := l.node(n); err != nil {
			return nil, fmt.Errorf("node %s: %w", internal.Name(n), err)
		}
	}
	if err := l.checkResidents(w.Resident); err != nil {
		return nil, err
	}
	if err := l.checkPrecisions(); err != nil {
		return nil, err
	}
	if err := l.wanted("Keep", w.Keep); err != nil {
		return nil, err
	}
	if err := l.wanted("Outputs", w.Only); err != nil {
		return nil, err
	}
	if len(w.Only) == 0 {
		l.results(w)
	}
	l.keepStates()
	if w.Watch {
		l.watch()
	}
	if w.Train != nil {
		if err := l.update(); err != nil {
			return nil, err
		}
	}
	return l.graph, nil
}

// wanted makes outputs of nodes that options name.
func (l *lowerer) wanted(option string, nodes []*gorgonia.Node) error {
	for _, n := range nodes {
		if l.of[n] == nil {
			return fmt.Errorf("%s: %v is no value of this graph", option, n)
		}
		l.bind(n)
	}
	return nil
}

// watch makes outputs of the values that are computed.
func (l *lowerer) watch() {
	for _, n := range l.graph.Nodes {
		if n.Value != nil && !isLeaf(n.Node) {
			l.graph.Watched = append(l.graph.Watched, Watched{l.output(n.Value), n.Node})
		}
	}
}

// lowerer is the state of lowering one graph.
type lowerer struct {
	graph *Graph
	of    map[*gorgonia.Node]*program.Value
	used  map[*gorgonia.Node]bool // by a node other than a statement
	index map[*program.Value]int  // of Program.Outputs
	bound map[*gorgonia.Node]bool // outputs bound to their nodes
	state *program.Value          // of random numbers, nil if there are none
	users map[*gorgonia.Node]int  // how many nodes use a node's value
	drawn map[any]int             // streams by drawer
	norms map[norm]*moments
	// again emits a value once more for a node that uses it, if computing it for each is cheaper
	// than keeping it in memory.
	again   map[*program.Value]func(c *call) *program.Value
	kept    map[*tensor.Dense]*program.Value // states of ops, as computed so far
	order   []*tensor.Dense                  // in which they were found
	learned map[*gorgonia.Node]int           // by the program itself: the numbers in Trained.Learned
	err     error                            // of a function that a rule wrote incorrectly
	// resident are the states of inputs that stay on the device.
	resident map[*gorgonia.Node]*program.Value

	evaluates bool // whatever the modes of ops

	moving []gorgonia.Op
	begins []float64              // of their slices: first element and step
	begin  *program.Value         // the input that holds begins, nil if there are none
	ranges map[int]*program.Value // the numbers from 0 on, by how many

	precision   kernels.Precision
	precisionOf map[*gorgonia.Node]kernels.Precision
	rounded     map[*gorgonia.Node]bool // those of them that are products of float32
}

func (l *lowerer) node(n *gorgonia.Node) error {
	children, err := internal.Children(n)
	if err != nil {
		return err
	}
	in := make([]*program.Value, len(children))
	for i, c := range children {
		if in[i] = l.of[c]; in[i] == nil {
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
	c := &call{lowerer: l, node: n, in: in, Type: typeOf(n)}
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
	for _, rule := range rules {
		if l.of[n] = rule(c); l.of[n] != nil {
			break
		}
	}
	if l.err != nil {
		return l.err
	}
	c.setPrecision(start)
	if l.of[n], err = c.fold(l.of[n], start); err != nil {
		return err
	}
	l.graph.Nodes = append(l.graph.Nodes, Node{n, l.of[n]})
	return nil
}

// typeOf returns the type of a node's value. Numeric reports that kernels can use it.
func typeOf(n *gorgonia.Node) program.Type {
	of, _ := internal.ElementType(n)
	dt, numeric := values.Dtype(of)
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
		l.graph.Outputs = append(l.graph.Outputs, Output{Index: l.output(l.of[c]), Node: c, Read: target, Vector: internal.GivesVector(c)})
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

// bind makes the value of n an output that is bound to n. Inputs and constants are
// bound as they are.
func (l *lowerer) bind(n *gorgonia.Node) {
	if l.bound[n] || isLeaf(n) {
		return
	}
	l.bound[n] = true
	l.graph.Outputs = append(l.graph.Outputs, Output{Index: l.output(l.of[n]), Node: n, Vector: internal.GivesVector(n)})
}

// isLeaf reports whether a node is an input or a constant, which has a value already.
func isLeaf(n *gorgonia.Node) bool { return n.Op() == nil || internal.IsConstant(n.Op()) }

// results makes outputs of the values that Gorgonia's machine leaves on the host: the roots of the
// graph, the cost at which Grad began, and the derivatives of the inputs.
//
// Derivatives by inputs that Grad was not asked for are roots too, and are left out. In a graph
// with several costs they stay, because the results of Grad's second call cannot be
// distinguished from them. Those by learnables stay on the device.
func (l *lowerer) results(w *Wanted) {
	costs := 0
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
		_, input := n.Value.Def.Op.(program.Input)
		if !input && l.resident[n.Node] == nil || n.Deriv() == nil || w.Forward {
			continue
		}
		d := n.Deriv()
		if l.of[d] == nil {
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
