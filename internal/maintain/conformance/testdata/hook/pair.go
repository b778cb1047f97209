//go:build go1.26

package sthenohook

import (
	"fmt"
	"os"
	"strconv"

	"github.com/stheno-ml/stheno/cudaops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// pair is a tape machine that runs as usual, with Stheno before it in the same state. In the first
// runs the two values of each node are compared.
type pair struct {
	gorgonia.VM // the tape machine
	graph       *gorgonia.ExprGraph
	stheno      *machine
	runs        int
}

func newPair(g *gorgonia.ExprGraph, o gorgonia.TapeOptions) *pair {
	before := gorgonia.Take(g)
	p := &pair{graph: g, stheno: newMachine(g, o, cudaops.KeepAll())}
	before.Restore()
	p.VM = o.Tape()
	return p
}

// RunAll implements gorgonia.VM.
func (p *pair) RunAll() error {
	most, err := strconv.Atoi(os.Getenv("STHENO_CONFORMANCE_RUNS"))
	if err != nil {
		most = 3
	}
	if p.runs++; p.stheno.err != nil || p.runs > most {
		return p.VM.RunAll()
	}
	before := gorgonia.Take(p.graph)
	ours := p.stheno.RunAll()
	got := gorgonia.Results(p.graph)
	before.Restore()
	theirs := p.VM.RunAll()
	r := record{Event: "compared", Test: caller()}
	switch {
	case ours != nil && theirs == nil:
		r.Error = ours.Error()
	case ours == nil && theirs != nil:
		r.Error = "no error, but the tape machine: " + theirs.Error()
	case ours == nil:
		r.compare(got, gorgonia.Results(p.graph))
	}
	write(r)
	return theirs
}

// Let and Set are those of the tape machine.
func (p *pair) Let(n *gorgonia.Node, be interface{}) error {
	return p.VM.(letter).Let(n, be)
}

// Set binds the value of one node to another.
func (p *pair) Set(a, b *gorgonia.Node) error {
	return p.VM.(letter).Set(a, b)
}

// Close closes both.
func (p *pair) Close() error {
	err := p.stheno.Close()
	if e := p.VM.Close(); e != nil {
		err = e
	}
	return err
}

// compare compares the values of nodes.
func (r *record) compare(got, want map[*gorgonia.Node]gorgonia.Value) {
	for n, w := range want {
		g, ok := got[n]
		if !ok {
			r.Missing = append(r.Missing, fmt.Sprintf("%v of %v", n.Name(), n.Op()))
			continue
		}
		r.Nodes++
		apart, why := difference(g, w)
		if apart > r.Worst || r.Node == "" {
			r.Worst, r.Node = apart, describe(n)
		}
		if limit := 1e-9; why != "" || apart > limit && w.Dtype() != tensor.Float32 || apart > 1e-4 {
			r.Apart = append(r.Apart, fmt.Sprintf("%s: %s %.2g", describe(n), why, apart))
		}
	}
}

func describe(n *gorgonia.Node) string { return fmt.Sprintf("%v %v", n.Op(), n.Shape()) }
