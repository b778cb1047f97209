package main

import (
	"context"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
)

// inLoop is withTrain with the loop of package train, which makes the next batch while a
// step runs.
func inLoop(d data, epochs int, seed uint64, opts ...cudaops.Option) ([]float32, error) {
	g := G.NewGraph()
	x, y := inputs(g)
	m, err := newModel(x, y, seed)
	if err != nil {
		return nil, err
	}
	batches, err := train.NewData(train.Columns{x: d.x, y: d.y})
	if err != nil {
		return nil, err
	}
	vm, err := stheno.NewVM(g, append(opts, cudaops.Train(solver(), m.learnables...))...)
	if err != nil {
		return nil, err
	}
	defer vm.Close()
	h, err := train.Run(context.Background(), vm, m.loss, batches, train.Epochs(epochs))
	return losses(h), err
}

// losses returns those of all steps.
func losses(h train.History) (list []float32) {
	for _, l := range h.Losses {
		list = append(list, float32(l.Loss))
	}
	return list
}
