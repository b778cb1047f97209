package main

import (
	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	G "gorgonia.org/gorgonia"
)

// onStheno is onTape with another machine: only the line that makes it differs, and its error.
func onStheno(d data, epochs int, seed uint64, opts ...cudaops.Option) (losses []float32, err error) {
	g := G.NewGraph()
	x, y := inputs(g)
	m, err := newModel(x, y, seed)
	if err != nil {
		return nil, err
	}
	vm, err := stheno.NewVM(g, opts...)
	if err != nil {
		return nil, err
	}
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
