package cudaops

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// Memory describes the use of a VM's device memory, in bytes, with sizes rounded up to 256. Values that are not alive at the
// same time share memory. The fields up to Workspace are the sizes of each kind at the step of peak use, and Peak is their
// sum.
type Memory struct {
	Parameters  int64  // learnables of Train, kept from run to run; 0 if they are in a Store
	Solver      int64  // moments and other solver state, kept from run to run
	Constants   int64  // kept from run to run
	Inputs      int64  // values of the user
	Activations int64  // results of ops, including derivatives
	Workspace   int64  // scratch memory of steps while they run
	Peak        int64  // maximum of bytes alive at once
	Reserved    int64  // allocated bytes: the peak and gaps between values; with In partly shared with the Store's other VMs
	At          string // names of the nodes of the step of peak use
}

// Memory returns the VM's use of device memory, without the memory of kernels and of the driver.
func (vm *VM) Memory() Memory {
	if vm == nil || vm.exec == nil {
		return Memory{}
	}
	return newMemory(vm.shown.Load().graph)
}

// String returns a table of the fields.
func (m Memory) String() string {
	var b strings.Builder
	for _, part := range []struct {
		name  string
		bytes int64
	}{
		{"parameters", m.Parameters}, {"solver", m.Solver}, {"constants", m.Constants}, {"inputs", m.Inputs},
		{"activations", m.Activations}, {"workspace", m.Workspace}, {"peak", m.Peak}, {"reserved", m.Reserved},
	} {
		fmt.Fprintf(&b, "%-11s  %10s\n", part.name, size(part.bytes))
	}
	if m.At != "" {
		fmt.Fprintf(&b, "the peak is at %s\n", shorten(m.At, 80))
	}
	return b.String()
}

// newMemory finds the step of peak use.
func newMemory(g *lower.Graph) Memory {
	p := g.Program
	m := Memory{Peak: p.Peak, Reserved: p.Arena + p.Workspace}
	alive := make([]int64, len(p.Instrs)+1)
	for _, b := range p.Buffers {
		if b.Parent == nil { // other buffers are within their parents
			alive[b.Birth] += b.Padded()
			alive[b.Death+1] -= b.Padded()
		}
	}
	at, now := 0, int64(0)
	for i, change := range alive {
		if now += change; now == p.Peak {
			at = i
			break
		}
	}
	if at < len(p.Instrs) && p.Peak > 0 {
		m.At = covered(nodeNames(p.Instrs[at]))
	}
	held := m.held(g, at)
	for _, b := range p.Buffers {
		if b.Parent == nil && b.Birth <= at && at <= b.Death {
			part := held[b]
			if part == nil {
				part = &m.Workspace
			}
			*part += b.Padded()
		}
	}
	return m
}

// held returns the field of Memory that each buffer with a value belongs to at a step.
func (m *Memory) held(g *lower.Graph, at int) map[*program.Buffer]*int64 {
	part, held, p := m.kinds(g), map[*program.Buffer]*int64{}, g.Program
	for _, in := range slices.Concat(p.Setup, p.Instrs[:min(at+1, len(p.Instrs))]) {
		for _, v := range in.Out {
			b := v.Buffer
			if b == nil {
				continue
			}
			for b.Parent != nil {
				b = b.Parent
			}
			if held[b] != &m.Parameters && held[b] != &m.Solver { // a solver's step overwrites these
				held[b] = part(v)
			}
		}
	}
	for b, part := range held {
		if b.Alternate != nil {
			held[b.Alternate] = part
		}
	}
	return held
}

// kinds returns a function that returns the field of Memory that a value belongs to.
func (m *Memory) kinds(g *lower.Graph) func(v *program.Value) *int64 {
	states := map[*program.Value]*int64{}
	if g.Trained != nil {
		for _, l := range g.Trained.Learned {
			for k, s := range l.States {
				if states[s] = &m.Parameters; k > 0 {
					states[s] = &m.Solver
				}
			}
		}
	}
	constants := map[*program.Instr]bool{}
	for _, in := range g.Program.Setup {
		constants[in] = true
	}
	return func(v *program.Value) *int64 {
		switch copied := program.Is[program.Copy](v.Def.Op); {
		case states[v] != nil:
			return states[v]
		case copied && constants[v.Def]:
			return &m.Constants
		case copied && program.Is[program.Input](v.Def.In[0].Base.Def.Op), constants[v.Def]:
			return &m.Inputs
		}
		return &m.Activations
	}
}
