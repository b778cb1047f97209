package train

import (
	"errors"
	"fmt"
	"iter"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/guard"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// DeviceData is a data set on the device, a [Source] of batches. Each step copies only the row numbers of its batch to the
// device, where the graph gathers the rows.
//
//	data, err := train.NewDeviceData(g, 32, images, labels)
//	x, y := data.Nodes[0], data.Nodes[1]
//	...
//	vm, err := stheno.NewVM(g, cudaops.Train(solver, learnables...), data.Option())
type DeviceData struct {
	// Nodes are the rows of a batch, one node for each tensor: use them as the graph's inputs.
	Nodes gorgonia.Nodes

	rows
	index *gorgonia.Node
	data  gorgonia.Nodes
}

var _ Source = (*DeviceData)(nil)

// NewDeviceData adds a data set to a graph, with batches of `batch` rows. data are tensors with the rows along the first
// axis. The VM needs the option that [DeviceData.Option] returns.
func NewDeviceData(g *gorgonia.ExprGraph, batch int, data ...*tensor.Dense) (*DeviceData, error) {
	var r *DeviceData
	err := guard.Recover("Gorgonia", func() (err error) { // a graph that NewGraph did not make panics
		r, err = newDeviceData(g, batch, data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("train: NewDeviceData: %w", err)
	}
	return r, nil
}

func newDeviceData(g *gorgonia.ExprGraph, batch int, data []*tensor.Dense) (*DeviceData, error) {
	switch {
	case g == nil:
		return nil, errors.New("got a nil graph")
	case batch < 1:
		return nil, fmt.Errorf("got batches of %d rows, want at least 1", batch)
	case len(data) == 0:
		return nil, errors.New("got no tensors")
	}
	r := &DeviceData{rows: rows{batch: batch}}
	for i, t := range data {
		if t == nil || t.Dims() == 0 {
			return nil, fmt.Errorf("tensor %d: got nil or no axis, want a tensor with an axis for the rows", i)
		}
		if n := t.Shape()[0]; i > 0 && n != r.count {
			return nil, fmt.Errorf("tensor %d: got %d rows, want %d as in tensor 0", i, n, r.count)
		}
		r.count = t.Shape()[0]
	}
	r.index = gorgonia.NewVector(g, tensor.Int, gorgonia.WithName("rows of the batch"), gorgonia.WithShape(batch))
	for i, t := range data {
		name := fmt.Sprint("data set ", i)
		all := gorgonia.NewTensor(g, t.Dtype(), t.Dims(), gorgonia.WithName(name), gorgonia.WithShape(t.Shape()...), gorgonia.WithValue(t))
		chosen, err := gorgonia.ByIndices(all, r.index, 0)
		if err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i, err)
		}
		r.data, r.Nodes = append(r.data, all), append(r.Nodes, chosen)
	}
	return r, nil
}

// Option returns the option of [cudaops.NewVM] that keeps the data set on the device, on several ranks whole on each, of which each gathers rows of its own.
func (r *DeviceData) Option() cudaops.Option {
	if r == nil {
		return nil
	}
	return cudaops.Options(cudaops.Resident(r.data...), cudaops.Split(r.index))
}

// Shuffle returns the data set with another order in every epoch, as [Data.Shuffle] does.
func (r *DeviceData) Shuffle(seed uint64) *DeviceData {
	if r == nil {
		return nil
	}
	shuffled := *r
	shuffled.shuffled, shuffled.seed = true, seed
	return &shuffled
}

// onRanks implements ranked.
func (r *DeviceData) onRanks(ranks, first, all int, _ gorgonia.Nodes) (Source, error) {
	wider := *r
	wider.rows.onRanks(ranks, first, all)
	return &wider, nil
}

// Batches implements [Source].
func (r *DeviceData) Batches(epoch, from int) iter.Seq2[Batch, error] {
	if r == nil {
		r = new(DeviceData) // without batches
	}
	return r.chunks(epoch, from, func(order []int) (Batch, error) {
		return Batch{r.index: tensor.New(tensor.WithShape(len(order)), tensor.WithBacking(order))}, nil
	})
}
