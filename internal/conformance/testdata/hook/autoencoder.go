package main

import . "gorgonia.org/gorgonia"

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
