package main

import (
	"context"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
)

// withResident is inLoop with the whole data set on the device: a step takes the numbers
// of its rows there.
func withResident(d data, epochs int, seed uint64, opts ...cudaops.Option) ([]float32, error) {
	g := G.NewGraph()
	batches, err := train.NewDeviceData(g, batch, d.x, d.y)
	if err != nil {
		return nil, err
	}
	m, err := newModel(batches.Nodes[0], batches.Nodes[1], seed)
	if err != nil {
		return nil, err
	}
	vm, err := stheno.NewVM(g, append(opts, cudaops.Train(solver(), m.learnables...), batches.Option())...)
	if err != nil {
		return nil, err
	}
	defer vm.Close()
	h, err := train.Run(context.Background(), vm, m.loss, batches, train.Epochs(epochs))
	return losses(h), err
}
