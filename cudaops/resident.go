package cudaops

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"gorgonia.org/gorgonia"
)

// Resident keeps the values of inputs on the device from run to run: of a data set, say, from
// which each run takes the rows that [gorgonia.ByIndices] chooses. The first run takes them there;
// another value, bound by [gorgonia.Let], goes there in the next run, as does one that [VM.Pull] of another VM has
// written, and one that is changed in place by [VM.Push]. Those of [Train] stay there anyway.
func Resident(nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.resident = append(c.resident, nodes...) }
}

// residents are the inputs of a VM that stay on the device.
type residents struct {
	graph  *lower.Graph
	copies *deviceCopies
}

// built takes over a new executable: nothing is on the device yet.
func (r *residents) built(graph *lower.Graph) {
	r.graph = graph
	for i := range graph.Residents {
		r.copies.set(i, nil)
	}
}

// before takes values that were bound since the last run, or written by Pull, to the device.
func (r *residents) before(e *exec.Executable) error {
	for i, own := range r.graph.Residents {
		if !r.copies.has(i, own.Node.Value()) || r.copies.isStale(i) {
			if err := r.push(e, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// push takes the value of one to the device.
func (r *residents) push(e *exec.Executable, i int) error {
	own := r.graph.Residents[i]
	m, err := stateBytes("resident input", own.Node, own.Value)
	if err == nil {
		err = r.graph.CheckInput(own.Node, own.Node.Value())
	}
	if err != nil {
		return err
	}
	r.copies.set(i, nil) // until it is there
	if err := e.SetState(own.Value, m); err != nil {
		return err
	}
	r.copies.set(i, own.Node.Value())
	return nil
}

// find returns the numbers of those among the nodes, of all for no nodes, and the other nodes.
func (r *residents) find(nodes []*gorgonia.Node) (list []int, others []*gorgonia.Node) {
	for _, n := range nodes {
		i := slices.IndexFunc(r.graph.Residents, func(own lower.Resident) bool { return own.Node == n })
		if i < 0 {
			others = append(others, n)
		} else {
			list = append(list, i)
		}
	}
	if len(nodes) == 0 {
		for i := range r.graph.Residents {
			list = append(list, i)
		}
	}
	return list, others
}
