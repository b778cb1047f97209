package main

import . "gorgonia.org/gorgonia"

// onTape returns a tape machine that computes the cost and its gradients, which the
// Lisp machine would find while it runs.
func onTape(r *charRNN, cost *Node) (VM, error) {
	weights := valueNodes(r.learnables())
	grads, err := Grad(cost, weights...)
	if err != nil {
		return nil, err
	}
	return NewTapeMachine(r.g.SubgraphRoots(append(Nodes{cost}, grads...)...), BindDualValues(weights...)), nil
}

func valueNodes(list []ValueGrad) (nodes Nodes) {
	for _, v := range list {
		nodes = append(nodes, v.(*Node))
	}
	return nodes
}
