package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// line is the loss of y = slope x + offset, 4 points at a time, by float64s.
type line struct {
	g             *G.ExprGraph
	x, y, weights *G.Node
	loss          *G.Node
	learnables    G.Nodes
	solver        G.Solver
	vm            *cudaops.VM
}

const points = 4 // in a batch

// newLine makes a machine on the host for it; with weights the loss is weighted.
func newLine(t testing.TB, weighted bool, opts ...cudaops.Option) *line {
	t.Helper()
	node := testutil.Get[*G.Node](t)
	g := G.NewGraph()
	vector := func(name string) *G.Node {
		return G.NewVector(g, tensor.Float64, G.WithShape(points), G.WithName(name))
	}
	l := &line{g: g, x: vector("x"), y: vector("y")}
	slope := G.NewScalar(g, tensor.Float64, G.WithName("slope"), G.WithValue(0.25))
	offset := G.NewScalar(g, tensor.Float64, G.WithName("offset"), G.WithValue(0.5))
	errs := node(G.Square(node(G.Sub(node(G.Add(node(G.Mul(l.x, slope)), offset)), l.y))))
	if weighted {
		l.weights = vector("weights")
		l.loss = node(G.Sum(node(G.HadamardProd(l.weights, errs))))
	} else {
		l.loss = node(G.Mean(errs))
	}
	l.learnables = G.Nodes{slope, offset}
	testutil.Get[G.Nodes](t)(G.Grad(l.loss, l.learnables...))
	l.solver = G.NewVanillaSolver(G.WithLearnRate(rate0))
	var err error
	l.vm, err = cudaops.NewVM(g, append([]cudaops.Option{cudaops.OnHost(), cudaops.Train(l.solver, l.learnables...)}, opts...)...)
	testutil.Do(t, err)
	t.Cleanup(func() { testutil.Do(t, l.vm.Close()) })
	return l
}

const rate0 = 0.01

// reference makes the same steps by hand.
type reference struct {
	slope, offset float64
	losses        []float64
}

func newReference() *reference { return &reference{slope: 0.25, offset: 0.5} }

func (r *reference) step(rate float64, x, y []float64) {
	var loss, slope, offset float64
	n := float64(len(x))
	for i := range x {
		d := r.slope*x[i] + r.offset - y[i]
		loss += d * d / n
		slope += 2 * d * x[i] / n
		offset += 2 * d / n
	}
	r.losses = append(r.losses, loss)
	r.slope -= rate * slope
	r.offset -= rate * offset
}

// check compares the line with it, and the history.
func (r *reference) check(t *testing.T, l *line, h History) {
	t.Helper()
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 1e-12*(1+math.Abs(want))) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("slope", l.learnables[0].Value().Data().(float64), r.slope)
	near("offset", l.learnables[1].Value().Data().(float64), r.offset)
	if h.Steps != len(r.losses) || len(h.Losses) != len(r.losses) {
		t.Fatalf("%d steps with %d losses, want %d", h.Steps, len(h.Losses), len(r.losses))
	}
	for i, want := range r.losses {
		near(fmt.Sprint("loss ", i), h.Losses[i].Loss, want)
		if h.Losses[i].Step != h.End.Step-h.Steps+i+1 {
			t.Errorf("loss %d is of step %d", i, h.Losses[i].Step)
		}
	}
}

// batch is n points that differ from one k to the next.
func batch(k, n int) (x, y []float64) {
	for i := range n {
		v := float64(k) + float64(i)/7
		x, y = append(x, math.Sin(v)), append(y, 3*math.Sin(v)+1+math.Cos(5*v)/8)
	}
	return x, y
}

func (l *line) batch(k, n int) Batch {
	x, y := batch(k, n)
	return Batch{l.x: tensor.New(tensor.WithBacking(x)), l.y: tensor.New(tensor.WithBacking(y))}
}

// batches yields n batches, then those of the function.
func (l *line) batches(n int, end func(yield func(Batch, error) bool)) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for k := range n {
			if !yield(l.batch(k, points), nil) {
				return
			}
		}
		if end != nil {
			end(yield)
		}
	}
}

// steps makes them by hand.
func steps(rate func(step int) float64, of ...int) *reference {
	r := newReference()
	for i, k := range of {
		x, y := batch(k, points)
		r.step(rate(i), x, y)
	}
	return r
}

func constant(int) float64 { return rate0 }

// onDevice makes a machine on the host one that takes batches ahead, as one on a device does: staged is
// called for each.
func onDevice(staged func(b Batch)) Option {
	return func(c *config) {
		c.stage = func(b map[*G.Node]G.Value) (bool, error) {
			if b != nil {
				staged(b)
			}
			return true, nil
		}
	}
}

// noLeaks fails if goroutines of this package stay.
func noLeaks(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		var stacks []byte
		for range 100 { // a goroutine that is ending needs a moment
			stacks = make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			if !bytes.Contains(stacks, []byte("train.stage")) && !bytes.Contains(stacks, []byte("prefetcher).produce")) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("a goroutine stays:\n%s", stacks)
	})
}

func TestRun(t *testing.T) {
	noLeaks(t)
	for i, ahead := range []int{0, 1, 5, 0, 1, 5} {
		on := cudaops.OnHost()
		if i >= 3 { // on a device, if there is one
			on = cudaops.OnAny()
		}
		l := newLine(t, false, on)
		var epochs []Epoch
		var at []Position
		h, err := Run(t.Context(), l.vm, l.loss, Seq(l.batches(3, nil)), Epochs(3), Prefetch(ahead),
			LearnRate(l.solver, func(step int) float64 { return rate0 / float64(1+step) }),
			AfterEpoch(func(e Epoch) error { epochs = append(epochs, e); return nil }),
			AfterStep(2, func(s Step) error { at = append(at, s.Position); return nil }))
		testutil.Do(t, err)
		r := steps(func(step int) float64 { return rate0 / float64(1+step) }, 0, 1, 2, 0, 1, 2, 0, 1, 2)
		r.check(t, l, h)
		if want := (Position{Epoch: 3, Step: 9}); h.End != want || h.Left != 0 || h.Time <= 0 || h.Rate() <= 0 {
			t.Errorf("the end is %v, %d rows left out, %v, want %v", h.End, h.Left, h.Time, want)
		}
		if want := fmt.Sprint([]Position{{0, 2, 2, ""}, {1, 1, 4, ""}, {1, 3, 6, ""}, {2, 2, 8, ""}}); fmt.Sprint(at) != want {
			t.Errorf("after every second step: %v, want %v", at, want)
		}
		if len(epochs) != 3 || len(h.Epochs) != 3 {
			t.Fatalf("%d and %d epochs, want 3", len(epochs), len(h.Epochs))
		}
		for i, e := range epochs {
			mean := (r.losses[3*i] + r.losses[3*i+1] + r.losses[3*i+2]) / 3
			if !reflect.DeepEqual(e, h.Epochs[i]) || e.Steps != 3 || e.Number != i+1 || e.Epoch != i+1 || e.Batch != 0 || math.Abs(e.Loss-mean) > 1e-12 {
				t.Errorf("epoch %d is %+v, want the mean loss %v", i, e, mean)
			}
		}
	}
}

// A training that ends early: the parameters are those after the last whole step, and the
// error names all causes.
func TestEarlyEnd(t *testing.T) {
	noLeaks(t)
	broken := errors.New("disk is broken")
	for name, c := range map[string]struct {
		end  func(yield func(Batch, error) bool)
		opts []Option
		want []string // of the error
		made int
	}{
		"error":  {end: func(yield func(Batch, error) bool) { yield(nil, broken) }, want: []string{"batch 3 of epoch 0", "disk is broken"}, made: 3},
		"panic":  {end: func(yield func(Batch, error) bool) { panic("out of luck") }, want: []string{"panicked: out of luck", "run_test.go"}, made: 3},
		"goexit": {end: func(yield func(Batch, error) bool) { runtime.Goexit() }, want: []string{"ended their goroutine"}, made: 3},
		"yield again": {end: func(yield func(Batch, error) bool) {
			yield(nil, broken)
			yield(nil, nil)
		}, want: []string{"range function continued", "disk is broken"}, made: 3},
		"callback":      {opts: []Option{AfterStep(2, func(s Step) error { return broken })}, want: []string{"disk is broken"}, made: 2},
		"stop":          {opts: []Option{AfterStep(2, func(s Step) error { return ErrStop })}, made: 2},
		"stop an epoch": {opts: []Option{Epochs(9), AfterEpoch(func(e Epoch) error { return fmt.Errorf("enough: %w", ErrStop) })}, made: 3},
		"steps":         {opts: []Option{Steps(7)}, made: 7},
		"steps, epochs": {opts: []Option{Steps(7), Epochs(2)}, made: 6},
	} {
		t.Run(name, func(t *testing.T) {
			for i, how := range []Option{Prefetch(0), Prefetch(1), Prefetch(3), onDevice(func(Batch) { runtime.Gosched() }), Prefetch(2)} {
				on := cudaops.OnHost()
				if i == 4 { // on a device, if there is one
					on = cudaops.OnAny()
				}
				l := newLine(t, false, on)
				h, err := Run(t.Context(), l.vm, l.loss, Seq(l.batches(3, c.end)), append(c.opts, how)...)
				if (err == nil) != (c.want == nil) {
					t.Fatalf("got error %v, want %q", err, c.want)
				}
				for _, want := range c.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("got error %v, want %q in it", err, want)
					}
				}
				var of []int
				for k := range c.made {
					of = append(of, k%3)
				}
				steps(constant, of...).check(t, l, h)
			}
		})
	}
}

// A context ends it between two steps, and the error that the source returns then is not lost.
func TestContext(t *testing.T) {
	noLeaks(t)
	why := errors.New("lunch")
	for name, c := range map[string]struct {
		end  func(yield func(Batch, error) bool, ctx context.Context, cancel context.CancelCauseFunc)
		want string
	}{
		"callback": {end: func(_ func(Batch, error) bool, ctx context.Context, _ context.CancelCauseFunc) { <-ctx.Done() }},
		"last":     {},
		"context": {end: func(yield func(Batch, error) bool, ctx context.Context, cancel context.CancelCauseFunc) {
			cancel(why)
			yield(nil, ctx.Err())
		}, want: "context canceled"},
		"more": {end: func(yield func(Batch, error) bool, _ context.Context, cancel context.CancelCauseFunc) {
			cancel(why)
			yield(nil, errors.New("hurry"))
		}, want: "hurry"},
		"cause": {end: func(yield func(Batch, error) bool, ctx context.Context, cancel context.CancelCauseFunc) {
			cancel(why)
			yield(nil, context.Cause(ctx))
		}, want: "batch 3 of epoch 0: lunch"},
	} {
		for _, opts := range [][]Option{nil, {onDevice(func(Batch) { runtime.Gosched() })}} {
			l := newLine(t, false)
			ctx, cancel := context.WithCancelCause(t.Context())
			source := Seq(l.batches(3, func(yield func(Batch, error) bool) {
				if c.end != nil {
					c.end(yield, ctx, cancel)
				}
			}))
			if name == "callback" || name == "last" {
				opts = append(opts, AfterStep(2, func(Step) error { cancel(why); return nil }))
			}
			if name == "last" {
				opts = append(opts, Steps(3))
			}
			h, err := Run(ctx, l.vm, l.loss, source, opts...)
			if !errors.Is(err, why) || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "lunch") != 1 {
				t.Errorf("%s: got error %v, want %v and %q", name, err, why, c.want)
			}
			if (name == "callback" || name == "last") && h.Steps != 2 {
				t.Errorf("%s: %d steps, want 2", name, h.Steps)
			}
			steps(constant, []int{0, 1, 2}[:h.Steps]...).check(t, l, h)
		}
	}
}
