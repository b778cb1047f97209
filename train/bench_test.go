package train

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/internal/must"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Batches of a data set in the size of MNIST's.
func BenchmarkData(b *testing.B) {
	const rows, batch, row = 20000, 4096, 784
	x := G.NewMatrix(G.NewGraph(), tensor.Float32, G.WithName("x"), G.WithShape(batch, row))
	data := must.Get[*Data](b)(NewData(Columns{x: make([]float32, rows*row)})).Shuffle(1)
	b.SetBytes(batch * row * 4)
	b.ReportAllocs()
	made := 0
	for epoch := 0; made < b.N; epoch++ {
		for batch, err := range data.Batches(epoch, 0) {
			must.Do(b, err)
			data.recycle(batch)
			if made++; made == b.N {
				break
			}
		}
	}
}

// What the loop adds to a step: the same steps by hand, and by Run.
func BenchmarkSteps(b *testing.B) {
	byHand := func(b *testing.B, l *line, batches []Batch) {
		for i := range b.N {
			for n, v := range batches[i%len(batches)] {
				must.Do(b, G.Let(n, v))
			}
			must.Do(b, l.vm.RunAll())
		}
	}
	b.Run("by hand", func(b *testing.B) {
		l := newLine(b, false)
		byHand(b, l, []Batch{l.batch(0, points), l.batch(1, points)})
	})
	for _, ahead := range []int{0, 1, 8} {
		b.Run(fmt.Sprint("Run, prefetch ", ahead), func(b *testing.B) {
			l := newLine(b, false)
			x, y := set(100 * points)
			data := must.Get[*Data](b)(NewData(Columns{l.x: x, l.y: y}))
			must.Get[History](b)(Run(b.Context(), l.vm, l.loss, data.Shuffle(1), Steps(b.N), Prefetch(ahead)))
		})
	}
}
