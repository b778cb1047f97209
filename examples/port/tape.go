package main

import (
	G "gorgonia.org/gorgonia"
)

// onTape trains on Gorgonia's tape machine. It returns the losses.
func onTape(d data, epochs int, seed uint64) (losses []float32, err error) {
	g := G.NewGraph()
	x, y := inputs(g)
	m, err := newModel(x, y, seed)
	if err != nil {
		return nil, err
	}
	vm := G.NewTapeMachine(g, G.BindDualValues(m.learnables...))
	defer vm.Close()
	s := solver()
	for range epochs {
		for i := range d.batches() {
			xs, ys := d.take(i)
			if err := G.Let(x, xs); err != nil {
				return nil, err
			}
			if err := G.Let(y, ys); err != nil {
				return nil, err
			}
			if err := vm.RunAll(); err != nil {
				return nil, err
			}
			if err := s.Step(G.NodesToValueGrads(m.learnables)); err != nil {
				return nil, err
			}
			losses = append(losses, m.cost.Data().(float32))
			vm.Reset()
		}
	}
	return losses, nil
}
