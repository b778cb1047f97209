package gorgonia

import (
	"log"

	"gorgonia.org/tensor"
)

// StandIn, if it is set, makes the machine that runs in place of a tape machine, or
// beside it.
var StandIn func(g *ExprGraph, o TapeOptions) VM

// TapeOptions holds the options of a tape machine.
type TapeOptions struct {
	EvalMode bool
	NaN, Inf bool
	Logger   *log.Logger
	Program  *program // of WithPrecompiled
	// Tape makes a tape machine with the same options that keeps the value of every node.
	Tape func() VM
	// Plain makes one with the same options alone.
	Plain func() VM
}

type letter interface {
	Let(n *Node, be interface{}) error
	Set(a, b *Node) error
}

// newStandIn returns a tape machine that leaves its work to the machine that StandIn makes, nil if
// it makes none.
func newStandIn(g *ExprGraph, opts []VMOpt) *tapeMachine {
	if StandIn == nil {
		return nil
	}
	m := &tapeMachine{valueFmt: "%3.3g"}
	m.Engine = StandardEngine{}
	for _, opt := range opts {
		opt(m)
	}
	if m.p != nil {
		g = m.p.g
	}
	m.standIn = StandIn(g, TapeOptions{
		EvalMode: m.evalMode,
		NaN:      m.watchNaN(),
		Inf:      m.watchInf(),
		Logger:   m.logger,
		Program:  m.p,
		Tape:     func() VM { return newTape(g, append(opts[:len(opts):len(opts)], TraceExec())) },
		Plain:    func() VM { return newTape(g, opts) },
	})
	return m
}

// A Snapshot holds all that a run can change: the values of nodes and of variables of Read, and
// the state of ops.
type Snapshot struct {
	nodes []nodeState
	reads []readState
	ops   []*opState
}

type nodeState struct {
	n        *Node
	bound    Value
	value, d *valueState
}

// valueState is a value with a copy of its elements.
type valueState struct{ v, was Value }

type readState struct {
	into *Value
	was  *valueState
}

type opState struct{ mean, variance *valueState }

func takeValue(v Value) *valueState {
	if v == nil {
		return nil
	}
	was, err := CloneValue(v)
	if err != nil {
		return &valueState{v: v}
	}
	return &valueState{v, was}
}

func (s *valueState) restore() {
	if s == nil || s.was == nil {
		return
	}
	if t, ok := s.v.(*tensor.Dense); ok && !t.Shape().Eq(s.was.Shape()) {
		if err := t.Reshape(s.was.Shape()...); err != nil {
			panic(err)
		}
	}
	if _, err := Copy(s.v, s.was); err != nil {
		panic(err)
	}
}

// Take takes a snapshot of a graph.
func Take(g *ExprGraph) *Snapshot {
	s := &Snapshot{}
	for _, n := range g.AllNodes() {
		state := nodeState{n: n, bound: n.boundTo}
		if dv, ok := n.boundTo.(*dualValue); ok {
			state.value, state.d = takeValue(dv.Value), takeValue(dv.d)
		} else if n.isInput() {
			state.value = takeValue(n.boundTo)
		}
		s.nodes = append(s.nodes, state)
		switch op := n.op.(type) {
		case readOp:
			s.reads = append(s.reads, readState{op.into, takeValue(*op.into)})
		case *BatchNormOp:
			s.ops = append(s.ops, &opState{takeValue(op.runningMean), takeValue(op.runningVariance)})
		}
	}
	return s
}

// Restore restores the state of the snapshot.
func (s *Snapshot) Restore() {
	for _, state := range s.nodes {
		state.n.boundTo = state.bound
		if dv, ok := state.bound.(*dualValue); ok {
			dv.Value = state.value.v
			if state.d != nil {
				dv.d = state.d.v
			}
		}
		state.value.restore()
		state.d.restore()
	}
	for _, r := range s.reads {
		if *r.into = nil; r.was != nil {
			*r.into = r.was.v
			r.was.restore()
		}
	}
	for _, o := range s.ops {
		o.mean.restore()
		o.variance.restore()
	}
}

// Results returns copies of the values of all nodes that a run computes. Random tensors,
// dropouts and values that depend on them are left out.
func Results(g *ExprGraph) map[*Node]Value {
	random := map[*Node]bool{}
	var isRandom func(n *Node) bool
	isRandom = func(n *Node) bool {
		r, known := random[n]
		if known {
			return r
		}
		switch op := n.op.(type) {
		case randomOp:
			r = true
		case *dropoutOp:
			r = op.isTraining && op.probability > 0
		}
		for _, c := range n.children {
			r = isRandom(c) || r
		}
		random[n] = r
		return r
	}
	values := map[*Node]Value{}
	for _, n := range g.AllNodes() {
		if n.isInput() || n.isConstant() || n.isStmt || n.Value() == nil || isRandom(n) {
			continue
		}
		if v, err := CloneValue(n.Value()); err == nil {
			values[n] = v
		}
	}
	return values
}
