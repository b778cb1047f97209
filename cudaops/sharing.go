package cudaops

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// footprint lists the user's data that a run of a VM reads and writes: nodes of a graph, variables of Read by their addresses,
// and states of ops.
type footprint struct {
	graph         *gorgonia.ExprGraph // VMs of different graphs share no nodes
	reads, writes map[any]*gorgonia.Node
}

// newFootprint returns the footprint of a VM of a graph with learnables.
func newFootprint(g *lower.Graph, learnables []*gorgonia.Node) *footprint {
	f := &footprint{graph: g.Nodes[0].Graph(), reads: map[any]*gorgonia.Node{}, writes: map[any]*gorgonia.Node{}}
	for _, in := range g.Inputs {
		if in.State != nil {
			f.reads[in.State] = in.Node
		} else {
			f.reads[in.Node] = in.Node
		}
	}
	for _, r := range g.Residents {
		f.reads[r.Node] = r.Node
	}
	for _, o := range g.Outputs {
		switch f.writes[o.Node] = o.Node; {
		case o.Read != nil:
			f.writes[o.Read] = o.Node
		case o.State != nil:
			f.writes[o.State] = o.Node
		}
	}
	for _, d := range g.Gradients {
		f.writes[d.Input] = d.Input
	}
	for _, n := range learnables {
		f.writes[n] = n
	}
	return f
}

// conflict returns a node that two footprints share and at least one of them writes, or nil.
func (f *footprint) conflict(g *footprint) *gorgonia.Node {
	if f.graph != g.graph {
		return nil
	}
	for key, n := range f.writes {
		if g.writes[key] != nil || g.reads[key] != nil {
			return n
		}
	}
	for key, n := range f.reads {
		if g.writes[key] != nil {
			return n
		}
	}
	return nil
}

// deviceCopy is a value on the host that a VM or a Store has a copy of on its device.
type deviceCopy struct {
	of      *deviceCopies
	value   gorgonia.Value // nil without a copy
	at      values.Extent
	version int         // of the parameter when host and device last had the same value, or -1
	stale   atomic.Bool // Pull of another VM has written the value since the copy
}

// deviceCopies are the copies of the learnables or residents of a VM, or of the parameters of a Store.
type deviceCopies struct{ list map[*deviceCopy]bool }

// copies are all open deviceCopies of the process.
var copies struct {
	sync.Mutex
	open map[*deviceCopies]bool
}

// newDeviceCopies returns an empty list.
func newDeviceCopies() *deviceCopies {
	c := &deviceCopies{map[*deviceCopy]bool{}}
	copies.Lock()
	defer copies.Unlock()
	if copies.open == nil {
		copies.open = map[*deviceCopies]bool{}
	}
	copies.open[c] = true
	return c
}

// close removes the list from copies.
func (l *deviceCopies) close() {
	copies.Lock()
	defer copies.Unlock()
	delete(copies.open, l)
}

// add adds an entry without a copy.
func (l *deviceCopies) add() *deviceCopy {
	copies.Lock()
	defer copies.Unlock()
	c := &deviceCopy{of: l}
	l.list[c] = true
	return c
}

// remove removes an entry.
func (l *deviceCopies) remove(c *deviceCopy) {
	copies.Lock()
	defer copies.Unlock()
	delete(l.list, c)
}

// set records that the device has a copy of v, or no copy if v is nil.
func (c *deviceCopy) set(v gorgonia.Value) {
	copies.Lock()
	defer copies.Unlock()
	c.value, c.at = v, values.ExtentOf(v)
	c.stale.Store(false)
}

// has reports whether the device has a copy of a value, stale or not.
func (c *deviceCopy) has(v gorgonia.Value) bool { return v != nil && c.value == v }

// isStale reports whether Pull has written into the value's memory since it was copied.
func (c *deviceCopy) isStale() bool { return c.stale.Load() }

// written marks the copies in other lists as stale whose values share memory with this one.
func (c *deviceCopy) written() {
	copies.Lock()
	defer copies.Unlock()
	for l := range copies.open {
		for other := range l.list {
			if l != c.of && other.at.Overlaps(c.at) {
				other.stale.Store(true)
			}
		}
	}
}

// claims are the footprints of the running VMs of the process.
var claims struct {
	sync.Mutex
	held map[*footprint]bool
}

// claim reserves a footprint for a run until release is called. It returns an error if it conflicts with the footprint of a
// running VM.
func (f *footprint) claim() (release func(), err error) {
	claims.Lock()
	defer claims.Unlock()
	for other := range claims.held {
		if n := f.conflict(other); n != nil {
			return nil, fmt.Errorf("node %s belongs to another VM of the same graph, which runs now: run one after the other, or VMs of graphs of their own", internal.Name(n))
		}
	}
	if claims.held == nil {
		claims.held = map[*footprint]bool{}
	}
	claims.held[f] = true
	return func() {
		claims.Lock()
		defer claims.Unlock()
		delete(claims.held, f)
	}, nil
}
