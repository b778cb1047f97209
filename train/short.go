package train

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fitter fits batches to the shapes of the graph's inputs.
type fitter struct {
	fill    bool           // pad short batches without weights too
	weights *gorgonia.Node // input of the rows' weights, or nil
	full    gorgonia.Value // the weights of a full batch
	first   Batch          // the first batch: all others must have its inputs
	vm      *cudaops.VM
}

// newFitter checks the node of the weights.
func newFitter(vm *cudaops.VM, weights *gorgonia.Node) (*fitter, error) {
	f := &fitter{weights: weights, vm: vm}
	if weights == nil {
		return f, nil
	}
	dtype, _ := internal.ElementType(weights)
	dt, ok := values.Dtype(dtype)
	rows := 0
	if s := weights.Shape(); len(s) > 0 {
		rows = s[0]
	}
	if !ok || !dt.IsFloat() || rows < 1 || weights.Shape().TotalSize() != rows {
		return nil, fmt.Errorf("Weights got node %s, a %v of shape %v, want a float for each row of a batch", internal.Name(weights), weights.Type(), weights.Shape())
	}
	f.full = f.weightsFor(rows)
	return f, nil
}

// weightsFor returns the weights of a batch with that many rows.
func (f *fitter) weightsFor(rows int) gorgonia.Value {
	dt, _ := values.Dtype(f.weights.Dtype())
	v, m := values.New(dt, f.weights.Shape())
	if dt == kernels.Float32 {
		fill(kernels.Elements[float32](m)[:rows])
	} else {
		fill(kernels.Elements[float64](m)[:rows])
	}
	return v
}

func fill[T float32 | float64](weights []T) {
	for i := range weights {
		weights[i] = 1 / T(len(weights))
	}
}

// fit returns the batch padded to the inputs' shapes, with the weights if the graph has an input for them. For a short batch,
// short is its number of rows and full that of the inputs. Without weights and fill, a short batch is left out: fitted is nil.
func (f *fitter) fit(b Batch) (fitted Batch, short, full int, err error) {
	if len(b) == 0 {
		return nil, 0, 0, errors.New("got a batch without values, want a value for each input")
	}
	if f.first == nil {
		f.first = b
	}
	for n := range f.first {
		if _, ok := b[n]; !ok {
			return nil, 0, 0, fmt.Errorf("got no value for input %s, want the inputs of the first batch", internal.Name(n))
		}
	}
	for n, v := range b {
		if n == nil || guard.IsNil(v) {
			return nil, 0, 0, errors.New("a batch has a nil node or value")
		}
		if _, ok := f.first[n]; !ok {
			return nil, 0, 0, fmt.Errorf("got a value for %s, want only the inputs of the first batch", internal.Name(n))
		}
		has, want := v.Shape(), f.vm.RunShape(n)
		if len(want) == 0 || len(has) != len(want) || has[0] >= want[0] || !slices.Equal(has[1:], want[1:]) {
			continue // it fits, or Let returns the error
		}
		if short > 0 && (has[0] != short || want[0] != full) {
			return nil, 0, 0, fmt.Errorf("input %s: got %d of %d rows, want %d as for another input of the batch", internal.Name(n), has[0], want[0], short)
		}
		short, full = has[0], want[0]
	}
	switch {
	case short > 0 && f.weights == nil && !f.fill:
		return nil, short, full, nil
	case short == 0 && f.weights == nil:
		return b, 0, 0, nil
	case short > 0 && f.weights != nil && f.weights.Shape()[0] != full:
		return nil, 0, 0, fmt.Errorf("Weights: node %s has %d rows, want the %d of the other inputs", internal.Name(f.weights), f.weights.Shape()[0], full)
	}
	fitted = make(Batch, len(b)+1)
	for n, v := range b {
		if short > 0 && len(v.Shape()) > 0 && v.Shape()[0] == short && n.Shape()[0] == full {
			if v, err = repeated(v, n.Shape()); err != nil {
				return nil, 0, 0, fmt.Errorf("input %s: %w", internal.Name(n), err)
			}
		}
		fitted[n] = v
	}
	if f.weights != nil {
		if fitted[f.weights] = f.full; short > 0 {
			fitted[f.weights] = f.weightsFor(short)
		}
	}
	return fitted, short, full, nil
}

// repeated returns a value of that shape whose rows repeat the rows of v.
func repeated(v gorgonia.Value, shape tensor.Shape) (gorgonia.Value, error) {
	dt, ok := values.Dtype(v.Dtype())
	if !ok {
		return nil, fmt.Errorf("got rows of %v, which cannot be filled up", v.Dtype())
	}
	from, err := values.Bytes(v)
	if err != nil {
		return nil, err
	}
	out, to := values.New(dt, shape)
	for len(to) > 0 {
		to = to[copy(to, from):]
	}
	return out, nil
}
