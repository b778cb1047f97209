package train

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// An iterator that recycles as many batches as the loop holds at once trains exactly like one that allocates each batch,
// with and without staging on the device.
func TestBatchesInTurn(t *testing.T) {
	const steps = 60
	for _, ahead := range []int{0, 1, 2, 5} {
		for _, staged := range []bool{false, true} {
			t.Run(fmt.Sprintf("prefetch %d, staged %v", ahead, staged), func(t *testing.T) {
				r := newReference()
				for k := range steps {
					x, y := batch(k%7, points)
					r.step(rate0, x, y)
				}
				l := newLine(t, false)
				opts := []Option{Steps(steps), Prefetch(ahead)}
				if staged {
					opts = append(opts, onDevice(func(Batch) {}))
				}
				history := testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, Seq(inTurn(t, l, ahead+2)), opts...))
				r.check(t, l, history)
			})
		}
	}
}

// inTurn returns an endless iterator that fills n batches in turn.
func inTurn(t *testing.T, l *line, n int) func(yield func(Batch, error) bool) {
	ring := make([]Batch, n)
	for i := range ring {
		ring[i] = Batch{}
		for _, node := range []*G.Node{l.x, l.y} {
			ring[i][node] = testutil.Get[*tensor.Dense](t)(cudaops.Pinned(tensor.Float64, points))
		}
	}
	return func(yield func(Batch, error) bool) {
		for k := 0; ; k++ {
			x, y := batch(k%7, points)
			b := ring[k%n]
			copy(b[l.x].Data().([]float64), x)
			copy(b[l.y].Data().([]float64), y)
			if !yield(b, nil) {
				return
			}
		}
	}
}
