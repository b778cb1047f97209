package gradcheck

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/tape"
	"gorgonia.org/gorgonia"
)

// gradients returns the gradients of the loss w.r.t. the inputs, as the graph computes them.
func (c *config) gradients(mode Mode, build func(...*gorgonia.Node) (*gorgonia.Node, error), in []input, weights []float64) (grads [][]float64, err error) {
	defer func() { // Gorgonia's compiler and machines panic for unsupported ops
		if p := recover(); p != nil {
			err = fmt.Errorf("Gorgonia panicked: %v", p)
		}
	}()
	e, err := newExpression(build, in, false)
	if err != nil {
		return nil, err
	}
	grads = make([][]float64, len(in))
	var used gorgonia.Nodes // the inputs that the output depends on; the others' gradients are 0
	var which []int
	for i, n := range e.in {
		if grads[i] = make([]float64, len(in[i].x)); e.below[n] {
			used, which = append(used, n), append(which, i)
		}
	}
	if len(used) == 0 {
		return grads, nil
	}
	loss, err := newLoss(e.out, weights)
	if err != nil {
		return nil, err
	}
	var gs []gorgonia.Value
	if mode == SymDiff {
		gs, err = c.symbolic(e, loss, used)
	} else {
		gs, err = dual(e, loss, used)
	}
	if err != nil {
		return nil, err
	}
	for k, i := range which {
		g, err := read(gs[k])
		if err != nil {
			return nil, fmt.Errorf("gradient of input %d is %w", i, err)
		}
		if !g.shape.Eq(in[i].shape) && len(g.x) != len(in[i].x) {
			return nil, fmt.Errorf("gradient of input %d has shape %v, want %v", i, g.shape, in[i].shape)
		}
		grads[i] = g.x
	}
	return grads, nil
}

func (c *config) symbolic(e *expression, loss *gorgonia.Node, wrt gorgonia.Nodes) ([]gorgonia.Value, error) {
	for _, n := range e.order {
		if n.Deriv() != nil {
			return nil, fmt.Errorf("node %v was differentiated before, in the function that builds the expression; gorgonia.Grad would pass over it: apply the op's SymDiff there instead", n)
		}
	}
	nodes, err := gorgonia.Grad(loss, wrt...)
	if err != nil {
		return nil, err
	}
	gs := make([]gorgonia.Value, len(nodes))
	roots := make(gorgonia.Nodes, len(nodes))
	for i, n := range nodes {
		roots[i] = gorgonia.Read(n, &gs[i])
	}
	// Nodes that the output does not depend on are not checked.
	vm, err := c.machine(e.out.Graph().SubgraphRoots(append(roots, loss)...))
	if err != nil {
		return nil, err
	}
	err = vm.RunAll()
	return gs, errors.Join(err, vm.Close())
}

func dual(e *expression, loss *gorgonia.Node, wrt gorgonia.Nodes) ([]gorgonia.Value, error) {
	depends := make(map[*gorgonia.Node]bool)
	for _, n := range wrt {
		depends[n] = true
	}
	for _, n := range e.order {
		for _, child := range e.children[n] {
			if depends[n] = depends[n] || depends[child]; !depends[n] {
				continue
			}
			if _, ok := n.Op().(gorgonia.ADOp); !ok {
				return nil, fmt.Errorf("op %v has no DoDiff (it is a %T): the LispMachine would leave it out", n.Op(), n.Op())
			}
		}
	}
	vm, err := tape.NewLispMachine(loss.Graph().ExactSubgraphRoots(loss))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(vm.RunAll(), vm.Close()); err != nil {
		return nil, err
	}
	gs := make([]gorgonia.Value, len(wrt))
	for i, n := range wrt {
		var err error
		if gs[i], err = n.Grad(); err != nil {
			return nil, err
		}
	}
	return gs, nil
}
