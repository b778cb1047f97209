package train

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"

	"github.com/stheno-ml/stheno/cudaops"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Columns is a data set, keyed by the inputs that its rows are bound to. A column is a tensor with the rows along its
// first axis, or a slice of the elements in row-major order.
type Columns map[*gorgonia.Node]any

// Data is a data set on the host, a [Source] of batches. The first axis of each input is the number of rows of a batch; the
// last batch of an epoch may have fewer. On several ranks each has such a batch of its own: see [Run].
//
// Batches in order are slices of the columns; a device copies them without the host if they are in memory of
// [cudaops.Pinned]. The memory of shuffled batches is recycled after the next step, so copy input values that you keep.
type Data struct {
	rows
	columns []column
	free    chan Batch // full batches to recycle
	pinned  bool       // allocate shuffled batches in pinned memory
}

var _ Source = (*Data)(nil)

// column is the rows for an input.
type column struct {
	node   *gorgonia.Node
	dtype  kernels.Dtype
	shape  tensor.Shape // of a batch
	memory []byte
	row    int // bytes
}

// NewData returns a data set in its given order; [Data.Shuffle] changes the order. It keeps references to the tensors and
// slices.
func NewData(columns Columns) (*Data, error) {
	d := &Data{free: make(chan Batch, 4)}
	for n, column := range columns {
		if n == nil {
			return nil, errors.New("train: NewData got a nil node")
		}
		c, count, err := newColumn(n, column)
		if err != nil {
			return nil, fmt.Errorf("train: NewData: input %s: %w", internal.Name(n), err)
		}
		if batch := c.shape[0]; d.count > 0 && (count != d.count || batch != d.batch) {
			return nil, fmt.Errorf("train: NewData: input %s: got %d rows for batches of %d, another input has %d for batches of %d",
				internal.Name(n), count, batch, d.count, d.batch)
		}
		d.count, d.batch = count, c.shape[0]
		d.columns = append(d.columns, c)
	}
	if len(columns) == 0 {
		return nil, errors.New("train: NewData got no columns")
	}
	return d, nil
}

// newColumn returns the column of an input and its number of rows.
func newColumn(n *gorgonia.Node, data any) (c column, count int, err error) {
	want, _ := internal.ElementType(n)
	dt, ok := values.Dtype(want)
	c = column{node: n, dtype: dt, shape: n.Shape()}
	if !ok || len(c.shape) == 0 || c.shape.TotalSize() == 0 {
		return c, 0, fmt.Errorf("got an input of %v and shape %v, want numbers with an axis for the rows", n.Type(), c.shape)
	}
	t, ok := data.(tensor.Tensor)
	if ok && guard.IsNil(t) {
		return c, 0, fmt.Errorf("got a nil %T, want a tensor or a slice", data)
	}
	if !ok {
		if t, err = vector(data); err != nil {
			return c, 0, err
		}
	}
	value, ok := t.(gorgonia.Value)
	if !ok {
		return c, 0, fmt.Errorf("got a %T, want a tensor or a slice", data)
	}
	if t.Dtype() != want {
		return c, 0, fmt.Errorf("got elements of %v, want %v", t.Dtype().Type, want)
	}
	if c.memory, err = values.Bytes(value); err != nil {
		return c, 0, fmt.Errorf("got %w", err)
	}
	elements := c.shape.TotalSize() / c.shape[0]
	has := t.Shape()
	if _, isTensor := data.(tensor.Tensor); isTensor && (len(has) != len(c.shape) || !slices.Equal(has[1:], c.shape[1:])) || !isTensor && has.TotalSize()%elements != 0 {
		return c, 0, fmt.Errorf("got rows of shape %v, want %v", has, c.shape)
	}
	c.row = elements * int(dt.Size())
	return c, len(c.memory) / c.row, nil
}

// vector returns a slice as a tensor.
func vector(slice any) (t tensor.Tensor, err error) {
	defer func() { // tensor.New panics for unsupported elements
		if r := recover(); r != nil {
			err = fmt.Errorf("got a %T, want a tensor or a slice", slice)
		}
	}()
	switch v := reflect.ValueOf(slice); {
	case v.Kind() != reflect.Slice:
		return nil, fmt.Errorf("got a %T, want a tensor or a slice", slice)
	case v.Len() == 0:
		return nil, fmt.Errorf("got a %T without elements, want a tensor or a slice", slice)
	default:
		return tensor.New(tensor.WithShape(v.Len()), tensor.WithBacking(slice)), nil
	}
}

// Shuffle returns the data set with another order in every epoch. An order depends only on the seed and the number of the
// epoch.
func (d *Data) Shuffle(seed uint64) *Data {
	if d == nil {
		return nil
	}
	shuffled := *d
	shuffled.shuffled, shuffled.seed = true, seed
	return &shuffled
}

// onRanks implements ranked.
func (d *Data) onRanks(ranks, first, all int, split gorgonia.Nodes) (Source, error) {
	wider := *d
	wider.rows.onRanks(ranks, first, all)
	wider.free, wider.columns = make(chan Batch, cap(d.free)), slices.Clone(d.columns)
	for i := range wider.columns {
		c := &wider.columns[i]
		if !slices.Contains(split, c.node) {
			return nil, fmt.Errorf("NewData: input %s: want it in cudaops.Split for %d ranks", internal.Name(c.node), all)
		}
		c.shape = c.shape.Clone()
		c.shape[0] *= ranks
	}
	return &wider, nil
}

// inPinned returns the data set with shuffled batches in pinned memory, for a loop that prefetches ahead batches. All of them
// are recycled, because pinning memory is slow.
func (d *Data) inPinned(ahead int) *Data {
	pinned := *d
	pinned.pinned, pinned.free = true, make(chan Batch, ahead+8)
	return &pinned
}

// Batches implements [Source].
func (d *Data) Batches(epoch, from int) iter.Seq2[Batch, error] {
	if d == nil {
		d = new(Data) // without batches
	}
	return d.chunks(epoch, from, d.take)
}

// take returns the rows of those numbers.
func (d *Data) take(order []int) (Batch, error) {
	b, used := make(Batch, len(d.columns)), false
	if !d.shuffled { // the rows are consecutive
		for _, c := range d.columns {
			shape := c.shape.Clone()
			shape[0] = len(order)
			b[c.node] = values.Over(c.dtype, shape, c.memory[order[0]*c.row:][:len(order)*c.row])
		}
		return b, nil
	}
	if len(order) == d.batch {
		select {
		case b = <-d.free:
			used = true
		default:
		}
	}
	for _, c := range d.columns {
		if !used {
			var err error
			if b[c.node], err = d.room(c, len(order)); err != nil {
				return nil, err
			}
		}
		m, err := values.Bytes(b[c.node])
		if err != nil {
			return nil, err
		}
		// Larger pieces, rows that are put together in cache first, or copied past the caches, are slower (bench/notes/engine.md).
		const grain = 256 << 10 // bytes
		kernels.Parallel(int64(len(order)), int64(grain/c.row+1), func(lo, hi int64) {
			for i := lo; i < hi; i++ {
				row := order[i] * c.row
				copy(m[int(i)*c.row:], c.memory[row:row+c.row])
			}
		})
	}
	return b, nil
}

// room returns a new value for the rows of a batch.
func (d *Data) room(c column, rows int) (gorgonia.Value, error) {
	if d.pinned && rows == d.batch {
		if t, err := cudaops.Pinned(values.Tensor(c.dtype), c.shape...); err == nil {
			return t, nil
		} // memory that cannot be pinned is copied like all other memory
	}
	shape := c.shape.Clone()
	shape[0] = rows
	v, _, err := values.Make(c.dtype, shape)
	return v, err
}

// recycle makes a batch available for reuse if it is full and shuffled.
func (d *Data) recycle(b Batch) {
	if !d.shuffled {
		return
	}
	own := make(Batch, len(d.columns))
	for _, c := range d.columns {
		v := b[c.node]
		if v == nil || !v.Shape().Eq(c.shape) {
			return
		}
		own[c.node] = v
	}
	select {
	case d.free <- own:
	default: // free is full
	}
}
