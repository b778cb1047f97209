package cudaops

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"gorgonia.org/gorgonia"
)

// Resident keeps the values of inputs on the device between runs: for example a data set, from which each run gathers rows by
// [gorgonia.ByIndices]. The first run copies them to the device. A later run copies a value again if [gorgonia.Let] bound
// another one or if [VM.Pull] of another VM has written it. After a change in place, call [VM.Push]. Learnables of
// [Train] are resident anyway.
func Resident(nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.resident = append(c.resident, nodes...) }
}

// residents holds the resident inputs of a VM.
type residents struct {
	graph  *lower.Graph
	copies []*deviceCopy // in the order of graph.Residents
}

// built resets the residents after the graph was compiled: no value is on the device.
func (r *residents) built(graph *lower.Graph) {
	r.graph = graph
	for _, c := range r.copies {
		c.set(nil)
	}
}

// before copies values that were bound since the last run, or written by Pull, to the device.
func (r *residents) before(e *exec.Executable) error {
	for i, own := range r.graph.Residents {
		if c := r.copies[i]; !c.has(own.Node.Value()) || c.isStale() {
			if err := r.push(e, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// push copies the value of a resident input to the device.
func (r *residents) push(e *exec.Executable, i int) error {
	own := r.graph.Residents[i]
	m, err := stateBytes("resident input", own.Node, own.Value)
	if err == nil {
		err = r.graph.CheckInput(own.Node, own.Node.Value())
	}
	if err != nil {
		return err
	}
	r.copies[i].set(nil) // until the copy has completed
	if err := e.SetState(own.Value, m); err != nil {
		return err
	}
	r.copies[i].set(own.Node.Value())
	return nil
}

// find returns the indices of the resident inputs among nodes, or of all if nodes is empty, and the other nodes.
func (r *residents) find(nodes []*gorgonia.Node) (list []int, others []*gorgonia.Node) {
	for _, n := range nodes {
		i := slices.IndexFunc(r.graph.Residents, func(own lower.Node) bool { return own.Node == n })
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
