package ops

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Random ops are nodes of their own: two with the same inputs draw different numbers. On a VM of package cudaops the numbers follow from
// its seed, the number of the run and the position of the node; see cudaops.Seed. On Gorgonia's machines they follow from a seed of the op and
// a counter of its runs.

// draws is the source of the numbers of a random op and its gradient on Gorgonia's machines.
type draws struct {
	trainingMode
	seed  uint64 // unique in the graph
	run   atomic.Uint64
	fixed atomic.Bool // the counter does not change
}

// newDraws returns the source of a new op on x.
func newDraws(x *gorgonia.Node) *draws {
	d := &draws{}
	if x != nil && x.Graph() != nil {
		d.seed = uint64(len(x.Graph().AllNodes()))
	}
	return d
}

// FixDraws makes the random ops of a graph draw the numbers of one run in each of their runs on Gorgonia's machines: for a
// comparison of gradients with differences.
func FixDraws(g *gorgonia.ExprGraph, run uint64) {
	if g == nil {
		return
	}
	for _, n := range g.AllNodes() {
		if op, ok := n.Op().(interface{ Primitive() Primitive }); ok {
			if p, ok := op.Primitive().(drawing); ok {
				p.source().run.Store(run)
				p.source().fixed.Store(true)
			}
		}
	}
}

// drawing is a primitive that draws random numbers. It is planned with the state of the generator, codegen.RandomState numbers of Int64, as
// an operand after the inputs, and a stream of its own.
type drawing interface {
	source() *draws
	draw(dev kernels.Device, stream int, in ...Type) (*kernels.Plan, error)
	repeats() bool // it draws the numbers of the last run again, as a gradient does
}

var errDraws = errors.New("the plan of an op that draws random numbers needs the state of a generator: see Op.Draws")

// Draws returns the source of the op's random numbers, the same for a gradient of the op, and its planner for a stream of random
// numbers, whose last operand is the state of the generator. ok is false for an op that draws none.
func (o *Op) Draws() (source any, planner func(stream int) kernels.Planner, ok bool) {
	p, ok := o.primitive.(drawing)
	if !ok {
		return nil, nil, false
	}
	return p.source(), func(stream int) kernels.Planner { return drawn{o, p, stream} }, true
}

// drawn plans an op with the state of a generator.
type drawn struct {
	*Op
	of     drawing
	stream int
}

// Plan implements kernels.Planner.
func (d drawn) Plan(dev kernels.Device) (*kernels.Plan, error) {
	p, err := d.of.draw(dev, d.stream, d.in...)
	if err != nil {
		return nil, fmt.Errorf("ops: %v: %w", d.Op, err)
	}
	return p, nil
}

// planOnHost returns the plan of a run on the host, and the state of the random numbers if it has one.
func (o *Op) planOnHost() (p *kernels.Plan, state []byte, err error) {
	of, ok := o.primitive.(drawing)
	if !ok {
		p, err = o.Plan(kernels.HostDevice())
		return p, nil, err
	}
	d := of.source()
	run := d.run.Load()
	if !of.repeats() && !d.fixed.Load() {
		run = d.run.Add(1)
	}
	p, err = drawn{o, of, 1}.Plan(kernels.HostDevice())
	return p, kernels.Bytes([]int64{int64(d.seed), int64(run)}), err
}
