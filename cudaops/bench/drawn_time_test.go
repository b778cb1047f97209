package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/window"
)

// The times of kernels that move elements, in drawn shapes, 40 of each family, a line each, of those that the regular
// expression STHENO_TIMES matches.
func TestDrawnTimes(t *testing.T) {
	w := newStopwatch(t)
	for family, draw := range drawnFamilies {
		r := rand.New(rand.NewPCG(20261122, uint64(len(family))))
		for range 40 {
			c := draw(r)
			name := fmt.Sprintf("drawn %s %s", family, c.name)
			if !w.wants(name) {
				continue
			}
			p := testutil.Get[*kernels.Plan](t)(c.plan(w.dev))
			inputs := make([][]byte, len(p.Inputs))
			for i, bytes := range p.Inputs {
				inputs[i] = make([]byte, bytes)
				if i == 1 && c.index != nil {
					for k, to := 0, kernels.Elements[int64](inputs[i]); k < len(to); k++ {
						to[k] = c.index(k)
					}
				}
			}
			bytes := c.bytes
			if bytes == 0 {
				bytes = p.Bytes()
			}
			w.plan(name, p, inputs, bytes, 10*time.Millisecond)
		}
	}
}

// drawnFamilies draw cases that move about 100 MB.
var drawnFamilies = map[string]func(r *rand.Rand) moved{
	"transpose": drawnTranspose, "concat": drawnConcat, "slice": drawnSlice, "gather": drawnIndices(false), "scatter": drawnIndices(true),
	"im2col": drawnWindows(window.Im2Col), "col2im": drawnWindows(window.Col2Im), "max-pool": drawnPool(false), "max-pool-derivative": drawnPool(true),
}

const drawnElements = 14 << 20 // read, and as many written

// between draws a number, small ones as often as large ones.
func between(r *rand.Rand, low, high int) int {
	n := low
	for n < high && r.IntN(8) > 0 {
		n += 1 + r.IntN(max(n/2, 1))
	}
	return min(n, high)
}

// copied is a case of a map that copies a view.
func copied(name string, shape []int, bytes int64, v codegen.View) moved {
	return moved{name: name, bytes: bytes, plan: func(dev kernels.Device) (*kernels.Plan, error) {
		f, err := expr.Parse("a", kernels.Float32, "a")
		if err != nil {
			return nil, err
		}
		return codegen.Map(dev, f, shape, v)
	}}
}

// drawnTranspose draws a batch of matrices, or rows of them, with two axes exchanged.
func drawnTranspose(r *rand.Rand) moved {
	rows, columns, inner := between(r, 2, 5000), between(r, 2, 5000), 1
	if r.IntN(4) == 0 {
		inner = between(r, 2, 100)
	}
	batch := max(drawnElements/(rows*columns*inner), 1)
	v := codegen.View{Elements: int64(batch * rows * columns * inner), Strides: []int{rows * columns * inner, inner, rows * inner, 1}} // of a batch x columns x rows x inner
	return copied(fmt.Sprint(batch, columns, rows, inner), []int{batch, rows, columns, inner}, 0, v)
}

func drawnConcat(r *rand.Rand) moved {
	inner := 1
	if r.IntN(3) == 0 {
		inner = between(r, 2, 300)
	}
	var extents []int
	along := 0
	for range 2 + r.IntN(5) {
		extents = append(extents, between(r, 1, 2000))
		along += extents[len(extents)-1]
	}
	shape := []int{max(drawnElements/(along*inner), 1), along, inner}
	return moved{name: fmt.Sprint(shape[0], inner, extents), plan: func(dev kernels.Device) (*kernels.Plan, error) {
		var views []codegen.View
		for _, n := range extents {
			views = append(views, codegen.Dense([]int{shape[0], n, inner}))
		}
		return codegen.Concat(dev, kernels.Float32, shape, 1, extents, views...)
	}}
}

func drawnSlice(r *rand.Rand) moved {
	along, inner := between(r, 2, 5000), between(r, 1, 300)
	from := r.IntN(along)
	n := 1 + r.IntN(along-from)
	shape := []int{max(drawnElements/(n*inner), 1), n, inner}
	v := codegen.View{Elements: int64(shape[0] * along * inner), Offset: int64(from * inner), Strides: []int{along * inner, inner, 1}}
	return copied(fmt.Sprint(shape[0], along, inner, from, n), shape, 2*4*kernels.Count(shape), v)
}

func drawnIndices(scatter bool) func(r *rand.Rand) moved {
	return func(r *rand.Rand) moved {
		inner, outer := between(r, 1, 3000), 1
		if r.IntN(4) == 0 {
			outer = between(r, 2, 60)
		}
		rows := between(r, 1, max(drawnElements/(inner*outer), 1))
		count := int64(max(drawnElements/(inner*outer), 1))
		shape := []int{outer, rows, inner}
		m := moved{name: fmt.Sprint(outer, rows, inner, count), index: func(int) int64 { return int64(r.IntN(rows)) }}
		row := int64(4 * inner * outer)
		if scatter {
			m.bytes = (count+int64(rows))*row + 8*count
			m.plan = func(dev kernels.Device) (*kernels.Plan, error) {
				return basic.Scatter(dev, kernels.Float32, shape, 1, count)
			}
		} else {
			m.bytes = (count+min(count, int64(rows)))*row + 8*count
			m.plan = func(dev kernels.Device) (*kernels.Plan, error) {
				return basic.Gather(dev, kernels.Float32, shape, 1, count)
			}
		}
		return m
	}
}

// drawnSquare draws windows over square images.
func drawnSquare(r *rand.Rand, dilated bool) (w window.Windows, name string) {
	for {
		size := []int{1, 2, 3, 3, 3, 4, 5, 7, 9, 11}[r.IntN(10)]
		stride, dilation := 1+r.IntN(min(size, 4)), 1
		if dilated && r.IntN(5) == 0 {
			dilation = 2
		}
		a := window.WindowAxis{In: between(r, 5, 300), Size: size, Stride: stride, Dilation: dilation}
		a.Before = r.IntN((size+1)/2 + 1)
		a.After = a.Before
		if a.Before < size && a.Out() > 0 {
			return window.Windows{Rows: a, Columns: a}, fmt.Sprint(a.In, size, stride, dilation, a.Before)
		}
	}
}

func drawnWindows(plan func(kernels.Device, kernels.Dtype, int64, int64, window.Windows) (*kernels.Plan, error)) func(r *rand.Rand) moved {
	return func(r *rand.Rand) moved {
		w, name := drawnSquare(r, true)
		channels := between(r, 1, 512)
		out := w.Rows.Out() * w.Rows.Size
		images := max(2*drawnElements/(channels*out*out), 1)
		return moved{name: fmt.Sprint(images, channels, " ", name), plan: func(dev kernels.Device) (*kernels.Plan, error) {
			return plan(dev, kernels.Float32, int64(images), int64(channels), w)
		}}
	}
}

func drawnPool(derivative bool) func(r *rand.Rand) moved {
	return func(r *rand.Rand) moved {
		w, name := drawnSquare(r, false)
		planes := int64(max(drawnElements/(w.Rows.In*w.Rows.In), 1))
		return moved{name: fmt.Sprint(planes, " ", name), plan: func(dev kernels.Device) (*kernels.Plan, error) {
			if derivative {
				return window.MaxPoolDiff(dev, kernels.Float32, planes, w)
			}
			return window.MaxPool(dev, kernels.Float32, planes, w)
		}}
	}
}
