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

// Resident is a data set on the device, a [Source] of batches: a step takes the numbers of
// its rows there, and the graph chooses the rows.
//
//	data, err := train.NewResident(g, 32, images, labels)
//	x, y := data.Nodes[0], data.Nodes[1]
//	...
//	vm, err := stheno.NewVM(g, cudaops.Train(solver, learnables...), data.Option())
type Resident struct {
	// Nodes are the rows of a batch, in the order of the tensors: the graph's inputs.
	Nodes gorgonia.Nodes

	rows
	index *gorgonia.Node
	data  gorgonia.Nodes
}

var _ Source = (*Resident)(nil)

// NewResident adds a data set to a graph, in batches of `batch` rows: tensors with the rows along
// the first axis. The VM must have the option that [Resident.Option] returns.
func NewResident(g *gorgonia.ExprGraph, batch int, data ...*tensor.Dense) (*Resident, error) {
	var r *Resident
	err := guard.Recover("Gorgonia", func() (err error) { // a graph that NewGraph did not make panics
		r, err = newResident(g, batch, data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("train: NewResident: %w", err)
	}
	return r, nil
}

func newResident(g *gorgonia.ExprGraph, batch int, data []*tensor.Dense) (*Resident, error) {
	switch {
	case g == nil:
		return nil, errors.New("got a nil graph")
	case batch < 1:
		return nil, fmt.Errorf("got batches of %d rows, want at least 1", batch)
	case len(data) == 0:
		return nil, errors.New("got no tensors")
	}
	r := &Resident{rows: rows{batch: batch}}
	for i, t := range data {
		if t == nil || t.Dims() == 0 {
			return nil, fmt.Errorf("tensor %d: got %v, want one with an axis for the rows", i, t)
		}
		if n := t.Shape()[0]; i > 0 && n != r.count {
			return nil, fmt.Errorf("tensor %d has %d rows, tensor 0 has %d: want one number", i, n, r.count)
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

// Option returns the option of the VM that keeps the data set on the device.
func (r *Resident) Option() cudaops.Option {
	if r == nil {
		return nil
	}
	return cudaops.Resident(r.data...)
}

// Shuffle returns the same data set in another order in every epoch, as [Data.Shuffle] does.
func (r *Resident) Shuffle(seed uint64) *Resident {
	if r == nil {
		return nil
	}
	shuffled := *r
	shuffled.shuffled, shuffled.seed = true, seed
	return &shuffled
}

// Batches implements [Source].
func (r *Resident) Batches(epoch, from int) iter.Seq2[Batch, error] {
	if r == nil {
		r = new(Resident) // without batches
	}
	return r.chunks(epoch, from, func(order []int) (Batch, error) {
		return Batch{r.index: tensor.New(tensor.WithShape(len(order)), tensor.WithBacking(order))}, nil
	})
}
