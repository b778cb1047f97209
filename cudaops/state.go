package cudaops

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// State makes an input of the graph a value that a run changes: all readers of node in a run see its old value, and the value of next
// becomes its new one when the run has succeeded. So a graph has caches, recurrent states and running means.
//
//	position, next := ..., gorgonia.Must(gorgonia.Add(position, one))
//	vm, err := cudaops.NewVM(g, cudaops.State(position, next))
//
// next has the element type and shape of node, and must be in the graph. The value stays on the device. The first run copies the
// node's value to it; without a value it begins with zeros. A value bound by [gorgonia.Let] is copied to the device in the next
// run. [gorgonia.Node.Value] is the value last pulled: see [VM.Pull], [VM.Push] and [VM.Snapshot]. [VM.Close] pulls no states.
//
// The step that computes next writes over the old value if no other step reads it later, and as long as it does so in the
// order of the elements. Otherwise next is computed elsewhere and copied, a step of [VM.Report].
//
// On several ranks all get the value of next on the first rank, as a run leaves equal values on all.
//
// Gorgonia's machines do not carry a state on: see docs/training.md. With [In] the state is in the Store, under the node's name.
//
// A run that fails leaves the states as they were. States that hold indices, such as a position of ops.Update, are checked before each run, whichever VM
// has changed them: a position beyond the end is an error, and nothing is written. There is one exception: indices that ops of the run compute are checked after it. If one is
// wrong, the run returns the error, and so do all calls that read the states, until [VM.Push] or [VM.Restore] sets them: states are written in
// place, so that a cache need not be copied in each run, and then the old values are lost. Under [Watch], which copies the states to the host
// before each run, they are as they were. The results of ops.ArgMax, TopK and Categorical are indices that need no check for an axis as long
// as theirs, so a run with no other computed indices has no such error.
func State(node, next *gorgonia.Node) Option {
	return func(c *config) { c.states = append(c.states, state{node, next, false}) }
}

// Transient is a [State] that is no part of the model, such as a cache of keys and values. With [In] all VMs of the Store with such a
// state share it, until the last of them is closed; [Store.Parameters] and [Store.Types] omit it, and so do files of them. On several ranks each has
// a value of its own, which begins with the node's value on all; [VM.Pull] and [VM.Snapshot] have that of the first rank.
//
// Under [Mixed] a float32 state whose next value is an ops.Update of it, such as a cache, is stored in 16 bits: each run rounds the rows that it writes.
func Transient(node, next *gorgonia.Node) Option {
	return func(c *config) { c.states = append(c.states, state{node, next, true}) }
}

// state holds the arguments of State or Transient.
type state struct {
	node, next *gorgonia.Node
	transient  bool
}

// checkStates checks the arguments of each State.
func (c *config) checkStates() error {
	seen := map[*gorgonia.Node]bool{}
	for _, s := range c.states {
		switch {
		case s.node == nil || s.next == nil:
			return errors.New("State got a nil node")
		case seen[s.node]:
			return fmt.Errorf("State got node %s twice, want it once", internal.Name(s.node))
		}
		seen[s.node] = true
	}
	return nil
}

// stateNodes returns the nodes of all states.
func (c *config) stateNodes() []*gorgonia.Node {
	return program.Collect(c.states, func(s state) *gorgonia.Node { return s.node })
}

// halfOf returns BF16 or F16 for a state that Mixed stores so, a cache: a [Transient] of float32 whose next value is an ops.Update of it. It returns 0 for any other.
func (c *config) halfOf(s state) kernels.Dtype {
	d, mixed := c.stored().Half()
	if !mixed || s.node == nil || !s.transient || s.node.Dtype() != tensor.Float32 {
		return 0
	}
	op, _ := s.next.Op().(interface {
		InHalf(d kernels.Dtype) (kernels.Planner, bool)
	})
	in, err := internal.Children(s.next)
	if op == nil || err != nil || in[0] != s.node {
		return 0
	}
	if _, ok := op.InHalf(d); !ok {
		return 0
	}
	return d
}

// state returns the arguments of a node's State or Transient, none for another node.
func (c *config) state(n *gorgonia.Node) (of state) {
	for _, s := range c.states {
		if s.node == n {
			of = s
		}
	}
	return of
}
