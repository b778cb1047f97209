package train

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// set is n points as a data set, column by column.
func set(n int) (x, y []float64) { return batch(3, n) }

// drawn returns the numbers of the rows of an epoch, batch by batch, as the batches' values show them.
func drawn(t *testing.T, l *line, s Source, x, y []float64, epoch, from int) (list [][]int) {
	t.Helper()
	for b, err := range s.Batches(epoch, from) {
		testutil.Do(t, err)
		var rows []int
		ys := b[l.y].Data().([]float64)
		for i, v := range b[l.x].Data().([]float64) {
			row := slices.Index(x, v)
			if row < 0 || y[row] != ys[i] {
				t.Fatalf("%v and %v are no row", v, ys[i])
			}
			rows = append(rows, row)
		}
		list = append(list, rows)
	}
	return list
}

func TestData(t *testing.T) {
	l := newLine(t, false)
	x, y := set(10)
	data := testutil.Get[*Data](t)(NewData(Columns{l.x: x, l.y: tensor.New(tensor.WithBacking(y))}))
	if got := fmt.Sprint(drawn(t, l, data, x, y, 3, 0)); got != "[[0 1 2 3] [4 5 6 7] [8 9]]" {
		t.Errorf("in order: %v", got)
	}
	if got := fmt.Sprint(drawn(t, l, data, x, y, 0, 2)); got != "[[8 9]]" {
		t.Errorf("from batch 2 on: %v", got)
	}
	seen := map[string]bool{}
	for seed := range uint64(2) {
		shuffled := data.Shuffle(seed)
		for epoch := range 3 {
			whole := drawn(t, l, shuffled, x, y, epoch, 0)
			flat := slices.Concat(whole...)
			if seen[fmt.Sprint(flat)] {
				t.Errorf("seed %d, epoch %d: the order %v again", seed, epoch, flat)
			}
			seen[fmt.Sprint(flat)] = true
			for from := range whole {
				if got := drawn(t, l, shuffled, x, y, epoch, from); fmt.Sprint(got) != fmt.Sprint(whole[from:]) {
					t.Errorf("seed %d, epoch %d from batch %d: %v, want the end of %v", seed, epoch, from, got, whole)
				}
			}
			if slices.Sort(flat); fmt.Sprint(flat) != "[0 1 2 3 4 5 6 7 8 9]" {
				t.Errorf("seed %d, epoch %d: rows %v", seed, epoch, flat)
			}
		}
	}
	// The orders that checkpoints count on: they must not change.
	if got, want := fmt.Sprint(drawn(t, l, data.Shuffle(7), x, y, 1, 0)), wantOrder; got != want {
		t.Errorf("seed 7, epoch 1: %v, want %v", got, want)
	}
	if got := data.Shuffle(7).Order(); got != "10 rows, shuffled by seed 7, in batches of 4" {
		t.Errorf("the order is %q", got)
	}
}

const wantOrder = "[[5 3 4 8] [9 2 1 0] [7 6]]"

// All orders of a few rows are as frequent.
func TestShuffleIsFair(t *testing.T) {
	r, counts := rows{count: 4, batch: 4, shuffled: true, seed: 3}, map[string]int{}
	const each = 400
	for epoch := range 24 * each {
		counts[fmt.Sprint(r.epoch(epoch))]++
	}
	if len(counts) != 24 {
		t.Fatalf("%d orders, want 24", len(counts))
	}
	chi := 0.0
	for _, n := range counts {
		chi += float64((n-each)*(n-each)) / each
	}
	if chi > 50 { // of 23 degrees of freedom; 49.7 is passed once in a thousand
		t.Errorf("chi square %.1f: %v", chi, counts)
	}
}

// A data set on the host and on the device, and by hand, take the same steps.
func TestSources(t *testing.T) {
	noLeaks(t)
	x, y := set(11)
	order := rows{count: 11, batch: points, shuffled: true, seed: 5}
	for name, weighted := range map[string]bool{"left out": false, "weighted": true} {
		t.Run(name, func(t *testing.T) {
			r := newReference()
			for epoch := range 3 {
				for rows := range slices.Chunk(order.epoch(epoch), points) {
					if weighted || len(rows) == points {
						r.step(rate0, take(x, rows), take(y, rows))
					}
				}
			}
			l := newLine(t, weighted)
			opts := []Option{Epochs(3)}
			left := 9
			if weighted {
				opts, left = append(opts, Weights(l.weights)), 0
			}
			data := testutil.Get[*Data](t)(NewData(Columns{l.x: x, l.y: y}))
			h := testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, data.Shuffle(5), opts...))
			r.check(t, l, h)
			if h.Left != left {
				t.Errorf("%d rows were left out, want %d", h.Left, left)
			}

			l, resident := newDeviceDataLine(t, x, y, weighted)
			if weighted {
				opts[1] = Weights(l.weights)
			}
			h = testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, resident.Shuffle(5), opts...))
			r.check(t, l, h)
			want := int64(points * 8)
			if weighted {
				want *= 2
			}
			report := l.vm.Report()
			for _, n := range report.Nodes {
				if strings.HasPrefix(n.Name, "data set") && (n.In != 0 || n.Where != "state") {
					t.Errorf("the data set is copied: %+v", n)
				}
			}
			if got := report.In(); got > want+64 { // and the numbers of the step
				t.Errorf("%d bytes are copied in, want %d for the rows\n%v", got, want, report)
			}
		})
	}
}

func take(of []float64, rows []int) (list []float64) {
	for _, row := range rows {
		list = append(list, of[row])
	}
	return list
}

// newDeviceDataLine is newLine with its points on the device.
func newDeviceDataLine(t *testing.T, x, y []float64, weighted bool) (*line, *DeviceData) {
	t.Helper()
	node := testutil.Get[*G.Node](t)
	g := G.NewGraph()
	data := testutil.Get[*DeviceData](t)(NewDeviceData(g, points, tensor.New(tensor.WithBacking(x)), tensor.New(tensor.WithBacking(y))))
	l := &line{g: g}
	slope := G.NewScalar(g, tensor.Float64, G.WithName("slope"), G.WithValue(0.25))
	offset := G.NewScalar(g, tensor.Float64, G.WithName("offset"), G.WithValue(0.5))
	errs := node(G.Square(node(G.Sub(node(G.Add(node(G.Mul(data.Nodes[0], slope)), offset)), data.Nodes[1]))))
	if weighted {
		l.weights = G.NewVector(g, tensor.Float64, G.WithShape(points), G.WithName("weights"))
		l.loss = node(G.Sum(node(G.HadamardProd(l.weights, errs))))
	} else {
		l.loss = node(G.Mean(errs))
	}
	l.learnables = G.Nodes{slope, offset}
	testutil.Get[G.Nodes](t)(G.Grad(l.loss, l.learnables...))
	l.solver = G.NewVanillaSolver(G.WithLearnRate(rate0))
	var err error
	l.vm, err = cudaops.NewVM(g, cudaops.OnHost(), cudaops.Train(l.solver, l.learnables...), data.Option())
	testutil.Do(t, err)
	t.Cleanup(func() { testutil.Do(t, l.vm.Close()) })
	return l, data
}

// A data set of bytes, a text and labels of its rows, stays of one byte an element on the device, and steps get its rows.
func TestDeviceDataOfBytes(t *testing.T) {
	const count, length, batch, rate = 500, 33, 8, 0.01
	text, labels, r := make([]byte, count*length), make([]byte, count), testutil.Random(t)
	for i := range text {
		text[i] = byte(r.IntN(256))
	}
	for i := range labels {
		labels[i] = byte(r.IntN(10))
	}
	node := testutil.Get[*G.Node](t)
	g := G.NewGraph()
	data := testutil.Get[*DeviceData](t)(NewDeviceData(g, batch, tensor.New(tensor.WithShape(count, length), tensor.WithBacking(text)), tensor.New(tensor.WithBacking(labels)))).Shuffle(7)
	w := G.NewScalar(g, tensor.Float64, G.WithName("w"), G.WithValue(0.5))
	sums := node(ops.Cast(node(ops.Sum(data.Nodes[0], 1)), tensor.Float64))
	errs := node(ops.Map("a * b / 4096 - c", sums, w, node(ops.Cast(data.Nodes[1], tensor.Float64))))
	loss := node(ops.Mean(node(ops.Map("a * a", errs))))
	testutil.Get[G.Nodes](t)(G.Grad(loss, w))
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.OnAny(), cudaops.Strict(), cudaops.Keep(data.Nodes...), cudaops.Train(G.NewVanillaSolver(G.WithLearnRate(rate)), w), data.Option()))
	defer vm.Close()
	elements := int64(len(text) + len(labels))
	if got := vm.Memory().Inputs; got < elements || got > elements+1024 { // and the numbers of a batch's rows
		t.Errorf("the inputs have %d bytes on the device, want one for each of %d elements", got, elements)
	}
	want, step := 0.5, 0
	testutil.Get[History](t)(Run(t.Context(), vm, loss, data, Epochs(2), AfterStep(1, func(s Step) error {
		epoch, at := step/(count/batch), step%(count/batch)
		step++
		value, gradient := 0.0, 0.0
		var rows, of []byte
		for _, row := range data.epoch(epoch)[at*batch : (at+1)*batch] {
			line := text[row*length : (row+1)*length]
			rows, of = append(rows, line...), append(of, labels[row])
			sum := 0.0
			for _, b := range line {
				sum += float64(b)
			}
			off := sum/4096*want - float64(labels[row])
			value += off * off / batch
			gradient += 2 * off * sum / 4096 / batch
		}
		want -= rate * gradient
		if math.Abs(s.Loss-value) > 1e-9*value {
			t.Errorf("step %d: got the loss %v, want %v", s.Step, s.Loss, value)
		}
		if !slices.Equal(data.Nodes[0].Value().Data().([]byte), rows) || !slices.Equal(data.Nodes[1].Value().Data().([]byte), of) {
			t.Errorf("step %d has other rows than %v of epoch %d", s.Step, at, epoch)
		}
		return nil
	})))
	if testutil.Do(t, vm.Pull()); step != 2*(count/batch) || math.Abs(w.Value().Data().(float64)-want) > 1e-9 {
		t.Errorf("got w = %v after %d steps, want %v", w.Value(), step, want)
	}
}

// The memory of batches is used again, but not while a step or a callback may look at it.
func TestMemoryOfBatches(t *testing.T) {
	noLeaks(t)
	l := newLine(t, false)
	x, y := set(10 * points)
	data := testutil.Get[*Data](t)(NewData(Columns{l.x: x, l.y: y})).Shuffle(2)
	at, seen := 0, map[G.Value]bool{}
	testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, data, Epochs(4), Prefetch(2), AfterStep(1, func(s Step) error {
		epoch, batch := at/10, at%10
		at++
		want := take(x, data.epoch(epoch)[batch*points:(batch+1)*points])
		runtime.Gosched() // to whom makes the next batches
		if got := l.x.Value().Data().([]float64); !slices.Equal(got, want) {
			t.Errorf("after step %d x is %v, want %v", s.Step, got, want)
		}
		seen[l.x.Value()] = true
		return nil
	})))
	if len(seen) > 6 {
		t.Errorf("40 steps take %d batches", len(seen))
	}
}

// Integers, and rows of several axes, come out as they went in, and copies fill up a short batch.
func TestRowsOfAnyShape(t *testing.T) {
	g := G.NewGraph()
	images := G.NewTensor(g, tensor.Float32, 3, G.WithName("images"), G.WithShape(3, 2, 2))
	labels := G.NewVector(g, tensor.Int, G.WithName("labels"), G.WithShape(3))
	weights := G.NewMatrix(g, tensor.Float32, G.WithName("weights"), G.WithShape(3, 1))
	pixels := make([]float32, 5*4)
	for i := range pixels {
		pixels[i] = float32(i)
	}
	data := testutil.Get[*Data](t)(NewData(Columns{images: pixels, labels: []int{0, 10, 20, 30, 40}}))
	f := testutil.Get[*fitter](t)(newFitter(nil, weights))
	var got []string
	for b, err := range data.Batches(0, 0) {
		testutil.Do(t, err)
		fitted, _, _, err := f.fit(b)
		testutil.Do(t, err)
		for _, n := range []*G.Node{images, labels, weights} {
			if !fitted[n].Shape().Eq(n.Shape()) {
				t.Errorf("%s has shape %v", n.Name(), fitted[n].Shape())
			}
			got = append(got, fmt.Sprint(fitted[n].Data()))
		}
	}
	third := float32(1) / 3
	want := []string{
		"[0 1 2 3 4 5 6 7 8 9 10 11]", "[0 10 20]", fmt.Sprint([]float32{third, third, third}),
		"[12 13 14 15 16 17 18 19 12 13 14 15]", "[30 40 30]", "[0.5 0.5 0]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A slice of one element is a data set of one row.
func TestOneElement(t *testing.T) {
	for _, batch := range []int{1, 3} {
		labels := G.NewVector(G.NewGraph(), tensor.Int, G.WithName("labels"), G.WithShape(batch))
		data := testutil.Get[*Data](t)(NewData(Columns{labels: []int{7}}))
		for _, source := range []*Data{data, data.Shuffle(1)} {
			batches := 0
			for b, err := range source.Batches(0, 0) {
				testutil.Do(t, err)
				if v := b[labels]; !slices.Equal(v.Shape(), tensor.Shape{1}) || !slices.Equal(v.Data().([]int), []int{7}) {
					t.Errorf("%s: got %v of shape %v, want 7 of shape (1)", source.Order(), v, v.Shape())
				}
				batches++
			}
			if batches != 1 {
				t.Errorf("%s: %d batches, want 1", source.Order(), batches)
			}
		}
	}
}

// Where a training is continued from any step, the rest is bit for bit that of one that was
// not interrupted.
func TestFrom(t *testing.T) {
	noLeaks(t)
	x, y := set(10)
	for _, opts := range [][]Option{{Epochs(3)}, {Steps(8)}} {
		type moment struct {
			at            Position
			slope, offset G.Value
		}
		var moments []moment
		whole := newLine(t, true)
		data := testutil.Get[*Data](t)(NewData(Columns{whole.x: x, whole.y: y})).Shuffle(11)
		save := AfterStep(1, func(s Step) error {
			if err := whole.vm.Pull(); err != nil {
				return err
			}
			slope, offset := testutil.Get[G.Value](t)(G.CloneValue(whole.learnables[0].Value())), testutil.Get[G.Value](t)(G.CloneValue(whole.learnables[1].Value()))
			moments = append(moments, moment{s.Position, slope, offset})
			return nil
		})
		want := testutil.Get[History](t)(Run(t.Context(), whole.vm, whole.loss, data, append(opts, Weights(whole.weights), save)...))
		for i, m := range moments {
			l := newLine(t, true)
			data := testutil.Get[*Data](t)(NewData(Columns{l.x: x, l.y: y})).Shuffle(11)
			testutil.Do(t, G.Let(l.learnables[0], m.slope))
			testutil.Do(t, G.Let(l.learnables[1], m.offset))
			h := testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, data, append(opts, Weights(l.weights), From(m.at))...))
			if h.End != want.End || !slices.Equal(h.Losses, want.Losses[i+1:]) {
				t.Errorf("from %v: end %v and losses %v, want %v and %v", m.at, h.End, h.Losses, want.End, want.Losses[i+1:])
			}
			for k, n := range l.learnables {
				if n.Value().Data() != whole.learnables[k].Value().Data() {
					t.Errorf("from %v: %s is %v, want %v", m.at, n.Name(), n.Value(), whole.learnables[k].Value())
				}
			}
		}
		l := newLine(t, true)
		other := testutil.Get[*Data](t)(NewData(Columns{l.x: x, l.y: y})).Shuffle(12)
		if _, err := Run(t.Context(), l.vm, l.loss, other, From(moments[0].at)); err == nil || !strings.Contains(err.Error(), `seed 12`) {
			t.Errorf("another seed gives the error %v", err)
		}
	}
}

func TestSchedule(t *testing.T) {
	for name, c := range map[string]struct {
		rate func(step int) float64
		want map[int]float64
	}{
		"cosine":     {Cosine(2, 4, 12), map[int]float64{0: 0.5, 3: 2, 4: 2, 8: 1, 12: 0, 20: 0}},
		"linear":     {Linear(2, 4, 12), map[int]float64{0: 0.5, 3: 2, 4: 2, 6: 1.5, 8: 1, 12: 0, 20: 0}},
		"no warm-up": {Linear(3, 0, 3), map[int]float64{0: 3, 1: 2, 3: 0}},
		"steps":      {StepDecay(8, 0.5, 10), map[int]float64{0: 8, 9: 8, 10: 4, 25: 2}},
	} {
		for step, want := range c.want {
			if got := c.rate(step); math.Abs(got-want) > 1e-15 {
				t.Errorf("%s: step %d: rate %v, want %v", name, step, got, want)
			}
		}
	}
}
