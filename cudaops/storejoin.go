package cudaops

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// joining is a VM that joins a Store.
type joining struct {
	graph      *gorgonia.ExprGraph // not compiled yet
	learnables []*gorgonia.Node
	groups     []int // of learnables whose memory is contiguous
	named      []*gorgonia.Node
	stateOf    func(*gorgonia.Node) state // the arguments of a node's State
	halfOf     func(state) kernels.Dtype  // the type of 16 bits in which a state is stored, or 0
	alloc      func(bytes int64) (program.Memory, error)
	device     string
	ranks      string // "" for one
	shards     int64  // parts that the memory of learnables is divided into, at least 1
	changes    bool   // it has learnables or states other than transient ones
}

// join adds a VM and returns its parameters.
func (s *Store) join(v joining) (*parameters, error) {
	learnables := v.learnables
	switch {
	case s.closed:
		return nil, errors.New("the Store is closed")
	case s.device != "" && s.device != v.device:
		return nil, fmt.Errorf("got a VM on %s, want %s, which the Store's other VMs use", v.device, s.device)
	case s.device != "" && s.ranks != v.ranks && (v.ranks != "" || v.changes):
		return nil, fmt.Errorf("got a VM of %s, want one of %s, as the Store's first VM", cmp.Or(v.ranks, "one rank with Train or State"), cmp.Or(s.ranks, "one rank"))
	}
	nodes, err := s.choose(v.graph, learnables, v.named)
	if err != nil {
		return nil, err
	}
	held := make([]*parameter, len(nodes))
	for i, n := range nodes {
		of, _ := internal.ElementType(n)
		if held[i], err = s.find(n.Name(), of, n.Shape()); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name(), err)
		}
		stored, t := held[i].dtype, v.stateOf(n).transient
		if half := v.halfOf(v.stateOf(n)); half != 0 {
			stored = half
		}
		if held[i].users == 0 && held[i].version == 0 {
			held[i].transient, held[i].stored = t, stored
		} else if held[i].transient != t {
			return nil, fmt.Errorf("node %s: got Transient %v, want %v as in the Store", n.Name(), t, held[i].transient)
		} else if held[i].stored != stored {
			return nil, fmt.Errorf("node %s: got a state stored in %v, want %v as in the Store: either all VMs that have it or none want Mixed", n.Name(), stored, held[i].stored)
		}
		if i < len(learnables) && held[i].trainer != nil {
			return nil, fmt.Errorf("learnable %s: another open VM of the Store trains it: close that VM, or omit the learnable from Train", n.Name())
		}
	}
	if s.device == "" {
		s.alloc, s.shards = v.alloc, v.shards
		for _, p := range s.list {
			if err := s.arrange(p); err != nil {
				return nil, err
			}
		}
		s.device, s.ranks = v.device, v.ranks
	}
	if err := s.place(held, v.groups); err != nil {
		return nil, driver.Join(err, s.sweep())
	}
	p := &parameters{store: s, learned: len(learnables), first: s.ranks != v.ranks}
	for i, n := range nodes {
		at := s.nodes[n]
		if at == nil {
			at = &storeNode{copy: s.copies.add()}
			if s.nodes[n] = at; held[i].version > 0 {
				at.copy.set(n.Value())
				at.copy.version = -1
			}
		}
		at.users++
		if held[i].users++; i < len(learnables) {
			held[i].trainer = p
		}
		p.add(n, held[i], at.copy)
	}
	s.members[p] = true
	return p, nil
}

// choose returns the nodes of a graph that are parameters, the learnables first.
func (s *Store) choose(g *gorgonia.ExprGraph, learnables, named []*gorgonia.Node) (list []*gorgonia.Node, err error) {
	byName := map[string]*gorgonia.Node{}
	add := func(n *gorgonia.Node) error {
		switch name := internal.InputName(n); {
		case n.Op() != nil:
			return fmt.Errorf("got node %s with an op, %v, want an input of the graph", internal.Name(n), n.Op())
		case name == "":
			return fmt.Errorf("got a parameter of shape %v without name: give it one with gorgonia.WithName", n.Shape())
		case byName[name] == nil:
			byName[name] = n
			list = append(list, n)
		case byName[name] != n:
			return fmt.Errorf("got two inputs called %q, want unique names of parameters", name)
		}
		return nil
	}
	for _, n := range slices.Concat(learnables, named) {
		if n == nil {
			return nil, errors.New("got a nil node")
		}
		if err := add(n); err != nil {
			return nil, err
		}
	}
	for _, n := range g.AllNodes() {
		if name := internal.InputName(n); n.Op() == nil && (byName[name] != nil || s.byName[name] != nil) {
			if err := add(n); err != nil {
				return nil, err
			}
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("got a graph without parameters: want the options Train or State, nodes of In, or inputs with the names of the Store's %d parameters", len(s.list))
	}
	return list, nil
}

// find returns the parameter of a name, or a new one for insert. It returns an error if it has another type.
func (s *Store) find(name string, of tensor.Dtype, shape tensor.Shape) (*parameter, error) {
	if p := s.byName[name]; p != nil {
		if values.Tensor(p.dtype) != of || !slices.Equal(p.shape, shape) {
			return nil, fmt.Errorf("got %v of shape %v, want %v of shape %v as in the Store", of, shape, values.Tensor(p.dtype), p.shape)
		}
		return p, nil
	}
	dt, ok := values.Dtype(of)
	if !ok || kernels.Count(shape) == 0 {
		return nil, fmt.Errorf("got %v of shape %v, want at least one element of a type that kernels have", of, shape)
	}
	_, err := values.Size(dt, shape)
	return &parameter{name: name, dtype: dt, stored: dt, shape: shape.Clone()}, err
}

// part removes a VM after it has been closed.
func (s *Store) part(p *parameters) error {
	if !s.members[p] {
		return nil
	}
	delete(s.members, p)
	for i, n := range p.nodes {
		if p.held[i].users--; p.held[i].trainer == p {
			p.held[i].trainer = nil
		}
		at := s.nodes[n]
		if at.users--; at.users == 0 {
			s.copies.remove(at.copy)
			delete(s.nodes, n)
		}
	}
	if s.last == p.exec {
		s.last = nil
	}
	return driver.Join(s.sweep(), s.end())
}
