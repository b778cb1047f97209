package main

import (
	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	G "gorgonia.org/gorgonia"
)

// newMachine makes Stheno's machine for a graph, in place of
// gorgonia.NewTapeMachine(g). "auto" is stheno.NewVM(g, opts...) alone.
func newMachine(g *G.ExprGraph, device string, opts ...cudaops.Option) (*cudaops.VM, error) {
	switch device {
	case "gpu":
		opts = append(opts, cudaops.OnDevice(0))
	case "cpu":
		opts = append(opts, cudaops.OnHost())
	}
	return stheno.NewVM(g, opts...)
}
