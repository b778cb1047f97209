package exectest

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// H200 holds the properties of an H200 that plans use.
var H200 = kernels.Device{Name: "NVIDIA H200", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 60 << 20, Memory: 141 << 30, Cooperative: true,
	Bandwidth: 4.8e12, FMAs: 33.5e12}

// Check returns the faults of the order in which a device runs a placed program, and the number of nodes of its CUDA graphs. If
// two nodes of a graph access the same memory and one of them writes it, one must wait for the other. In program order,
// each instruction must read the values written by their definitions. No node may access memory that the next run's
// inputs are copied to.
func Check(p *program.Program, dev kernels.Device) (nodes int, err error) {
	b := &Recorder{For: dev}
	e, err := exec.New(p, b, false)
	if err != nil {
		return 0, err
	}
	faults := []error{dataflow(p)}
	if e.Stages() { // half of the graphs are those of every other run
		half := len(b.Graphs) / 2
		faults = append(faults, strays(p, b.Graphs[:half], false)...)
		faults = append(faults, strays(p, b.Graphs[half:], true)...)
	}
	if _, err := e.Replay(len(e.Launching())); err != nil {
		return 0, err
	}
	for _, g := range b.Graphs {
		faults = append(faults, Races(g)...)
		nodes += len(g)
	}
	return nodes, errors.Join(faults...)
}

// strays returns the nodes that use memory which the values of another run are copied to
// meanwhile: the second place of an input that has two or, in runs that use that, the first.
func strays(p *program.Program, graphs [][]Node, second bool) (faults []error) {
	for _, b := range p.Buffers {
		if b.Alternate == nil {
			continue
		}
		other := exec.Span{Offset: b.Alternate.Offset, Size: b.Alternate.Size}
		if second {
			other.Offset = b.Offset
		}
		copied := Node{Writes: []exec.Span{other}}
		for _, g := range graphs {
			for i, n := range g {
				if s, shared := conflict(n, copied); shared {
					faults = append(faults, fmt.Errorf("node %d, %s, uses bytes %d to %d, which are another run's", i, n.What, s.Offset, s.Offset+s.Size))
				}
			}
		}
	}
	return faults
}

// Races returns the pairs of nodes that use the same memory in no certain order, though one
// of them writes it.
func Races(g []Node) (faults []error) {
	for i, n := range g {
		before := ancestors(g, i)
		for j, m := range g[:i] {
			if s, shared := conflict(n, m); shared && !before[j] {
				faults = append(faults, fmt.Errorf("node %d, %s, and node %d, %s, share bytes %d to %d and do not wait for each other", j, m.What, i, n.What, s.Offset, s.Offset+s.Size))
			}
		}
	}
	return faults
}

// ancestors returns the nodes that a node waits for, directly or by way of others.
func ancestors(g []Node, i int) map[int]bool {
	found := map[int]bool{}
	rest := append([]int(nil), g[i].After...)
	for len(rest) > 0 {
		j := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if !found[j] {
			found[j] = true
			rest = append(rest, g[j].After...)
		}
	}
	return found
}

// conflict returns memory that both nodes use, and one of them writes.
func conflict(a, b Node) (exec.Span, bool) {
	for _, pair := range [][2][]exec.Span{{a.Writes, b.Writes}, {a.Writes, b.Reads}, {a.Reads, b.Writes}} {
		for _, x := range pair[0] {
			for _, y := range pair[1] {
				from, to := max(x.Offset, y.Offset), min(x.Offset+x.Size, y.Offset+y.Size)
				if x.Home == y.Home && from < to {
					return exec.Span{Offset: from, Size: to - from, Home: x.Home}, true
				}
			}
		}
	}
	return exec.Span{}, false
}
