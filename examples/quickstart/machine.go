package main

import (
	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	G "gorgonia.org/gorgonia"
)

// newMachine makes Stheno's machine for a graph, in the place of
// gorgonia.NewTapeMachine(g). stheno.NewVM(g) alone is what "auto" does.
func newMachine(g *G.ExprGraph, device string) (*cudaops.VM, error) {
	switch device {
	case "auto":
		return stheno.NewVM(g)
	case "gpu":
		return stheno.NewVM(g, cudaops.OnDevice(0))
	default: // cpu: run checked the flag
		return stheno.NewVM(g, cudaops.OnHost())
	}
}
