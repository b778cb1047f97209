package cudaops

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// cached returns a Cache of newNet's perceptron, and its Store with a set of parameters.
func cached(t testing.TB, limit Limit, opts ...Option) (*Cache, *Store, *atomic.Int32) {
	s, builds := NewStore(), new(atomic.Int32)
	n := newNet(t, tensor.Float64, 1, 3)
	var list []Learnable
	for _, w := range n.learnables {
		list = append(list, Learnable{Name: w.Name(), Value: w.Value()})
	}
	testutil.Do(t, s.SetParameters(list))
	c, err := NewCache(s, func(size int) (*Sized, error) {
		builds.Add(1)
		n := newNet(t, tensor.Float64, size, 100)
		return &Sized{Graph: n.g, In: []*G.Node{n.x}, Out: []*G.Node{n.out}, Options: append(opts, OnAny(), Inference())}, nil
	}, limit)
	testutil.Do(t, err)
	t.Cleanup(func() {
		testutil.Do(t, c.Close())
		testutil.Do(t, s.Close())
	})
	return c, s, builds
}

// rowsOut is what the perceptron returns for rows, by loops.
func rowsOut(t testing.TB, x *tensor.Dense) (out []float64) {
	n := newNet(t, tensor.Float64, 1, 3)
	row := x.Float64s()
	for len(row) > 0 {
		in := row[:7]
		row = row[7:]
		for l := 0; l < len(n.learnables); l += 2 {
			w, b := n.learnables[l].Value().(*tensor.Dense), n.learnables[l+1].Value().(*tensor.Dense).Float64s()
			next := make([]float64, len(b))
			for j := range next {
				for i, v := range in {
					next[j] += v * w.Float64s()[i*len(b)+j]
				}
				next[j] = math.Tanh(next[j] + b[j])
			}
			in = next
		}
		out = append(out, in...)
	}
	return out
}

// checkRows compares the results of a request.
func checkRows(t testing.TB, x *tensor.Dense, out []G.Value) {
	t.Helper()
	want, got := rowsOut(t, x), out[0].Data().([]float64)
	if len(out) != 1 || !out[0].Shape().Eq(tensor.Shape{x.Shape()[0], 3}) {
		t.Fatalf("got %d results, the first of shape %v, want one of %d rows of 3", len(out), out[0].Shape(), x.Shape()[0])
	}
	for i, v := range want {
		if math.Abs(got[i]-v) > 1e-12 {
			t.Fatalf("element %d: got %v, want %v", i, got[i], v)
		}
	}
}

// TestCache: calls of many goroutines get the results of their own rows, joined or not, with sizes or not, and VMs stay within the limit.
func TestCache(t *testing.T) {
	for what, limit := range map[string]Limit{
		"alone": {}, "two VMs": {VMs: 2}, "joined": {Rows: 16, Wait: time.Millisecond, VMs: 5}, "sizes": {Rows: 8, Sizes: []int{16, 2, 8}},
	} {
		t.Run(what, func(t *testing.T) {
			c, _, builds := cached(t, limit)
			seed, group := testutil.Seed(t), new(sync.WaitGroup)
			for k := range 8 {
				group.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(k)))
					for range 12 {
						x := draw(r, tensor.Float64, 1+r.IntN(9), 7)
						out, err := c.Run(context.Background(), x)
						if err != nil {
							t.Error(err)
							return
						}
						checkRows(t, x, out)
					}
				})
			}
			group.Wait()
			if n := len(c.VMs()); limit.VMs > 0 && n > limit.VMs {
				t.Errorf("got %d VMs, want at most %d", n, limit.VMs)
			}
			if n := builds.Load(); limit.Sizes != nil && n > 3 || limit.VMs == 0 && n > 16 {
				t.Errorf("got %d graphs built", n)
			}
		})
	}
}

// TestCacheJoins: requests that wait together are one run, up to the limit; a cancelled one leaves its place.
func TestCacheJoins(t *testing.T) {
	c, _, _ := cached(t, Limit{Rows: 12, Wait: time.Hour})
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, err := c.Run(ctx, draw(rand.New(rand.NewPCG(1, 1)), tensor.Float64, 5, 7))
		left <- err
	}()
	for waiting := 0; waiting == 0; {
		c.mu.Lock()
		waiting = len(c.queue)
		c.mu.Unlock()
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled request returns %v", err)
	}
	var group sync.WaitGroup
	for k := range 3 { // 4 rows each fill the run, which begins long before an hour
		group.Go(func() {
			x := draw(rand.New(rand.NewPCG(uint64(k), 2)), tensor.Float64, 4, 7)
			out, err := c.Run(context.Background(), x)
			if err != nil {
				t.Error(err)
				return
			}
			checkRows(t, x, out)
		})
	}
	group.Wait()
	if got := c.VMs(); !slices.Equal(got, []int{12}) {
		t.Errorf("got VMs of %v, want one of 12 rows", got)
	}
}

// TestCacheFailsAlone: a request whose run fails does not fail those that it was joined with.
func TestCacheFailsAlone(t *testing.T) {
	store := NewStore()
	defer store.Close()
	testutil.Do(t, store.SetParameters([]Learnable{{Name: "table", Value: tensor.New(tensor.WithShape(3, 1), tensor.WithBacking([]float64{5, 6, 7}))}}))
	c := testutil.Get[*Cache](t)(NewCache(store, func(size int) (*Sized, error) {
		g := G.NewGraph()
		table := G.NewMatrix(g, tensor.Float64, G.WithName("table"), G.WithShape(3, 1))
		ids := G.NewVector(g, tensor.Int, G.WithName("ids"), G.WithShape(size))
		rows, err := ops.Embedding(table, ids)
		return &Sized{Graph: g, In: []*G.Node{ids}, Out: []*G.Node{rows}, Options: []Option{OnAny(), Inference()}}, err
	}, Limit{Rows: 6, Wait: time.Hour}))
	defer c.Close()
	var group sync.WaitGroup
	for _, ids := range [][]int{{0, 1}, {2, 3}, {2, 0}} {
		group.Go(func() {
			out, err := c.Run(context.Background(), tensor.New(tensor.WithShape(2), tensor.WithBacking(ids)))
			switch {
			case ids[1] == 3:
				if err == nil || !strings.Contains(err.Error(), "got index 3 at 1, want 0 to 2") {
					t.Errorf("rows %v: got error %v, want one of index 3", ids, err)
				}
			case err != nil:
				t.Errorf("rows %v: %v", ids, err)
			case !slices.Equal(out[0].Data().([]float64), []float64{float64(5 + ids[0]), float64(5 + ids[1])}):
				t.Errorf("rows %v: got %v", ids, out[0])
			}
		})
	}
	group.Wait()
}

// timesW returns a Cache of x times w, of rows of 3, where change changes what build returns.
func timesW(t testing.TB, limit Limit, change func(v *Sized, w *G.Node) error) *Cache {
	s := NewStore()
	testutil.Do(t, s.SetParameters([]Learnable{{Name: "w", Value: tensor.New(tensor.WithBacking([]float32{1, 2, 3}))}}))
	c, err := NewCache(s, func(size int) (*Sized, error) {
		g := G.NewGraph()
		w := G.NewVector(g, tensor.Float32, G.WithName("w"), G.WithShape(3))
		x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(size, 3))
		y, err := ops.Map("a*b", x, w)
		v := &Sized{g, G.Nodes{x}, G.Nodes{y}, []Option{OnAny(), Inference()}}
		if err == nil && change != nil {
			err = change(v, w)
		}
		return v, err
	}, limit)
	testutil.Do(t, err)
	t.Cleanup(func() {
		testutil.Do(t, c.Close())
		testutil.Do(t, s.Close())
	})
	return c
}

// ones returns a request of rows of 3.
func ones(rows int) *tensor.Dense { return tensor.Ones(tensor.Float32, rows, 3) }

// TestCacheRepeatsTheLastRow: rows that fill a size are valid where those of requests are: a number of candidates of 0 is an error of the op.
func TestCacheRepeatsTheLastRow(t *testing.T) {
	c := timesW(t, Limit{Rows: 4, Sizes: []int{4}}, func(v *Sized, _ *G.Node) error {
		k := G.NewVector(v.Graph, tensor.Int, G.WithName("k"), G.WithShape(v.Out[0].Shape()[0]))
		next, err := ops.Categorical(v.Out[0], 1, k, 1)
		v.In, v.Out = append(v.In, k), G.Nodes{next}
		return err
	})
	out := testutil.Get[[]G.Value](t)(c.Run(context.Background(), ones(3), tensor.New(tensor.WithBacking([]int{1, 1, 1}))))
	if got := out[0].Data().([]int); !slices.Equal(got, []int{2, 2, 2}) {
		t.Errorf("got the draws %v of one candidate each, want the largest, 2", got)
	}
}

// TestCacheStates: requests do not continue from one another. A graph of a state that runs change is an error of Run, unless requests set it, and a matter of Do; one of a state that a run which
// evaluates leaves as it is, is none.
func TestCacheStates(t *testing.T) {
	carrying := func(evaluates, input bool) *Cache {
		return timesW(t, Limit{}, func(v *Sized, _ *G.Node) error {
			sum := G.NewMatrix(v.Graph, tensor.Float32, G.WithName("sum"), G.WithShape(v.In[0].Shape()...))
			next, err := ops.Map("a + b", v.Out[0], sum)
			if err != nil {
				return err
			}
			if v.Out[0] = next; input {
				v.In = append(v.In, sum)
			}
			if evaluates {
				if next, err = ops.WhenTraining(next, sum); err != nil {
					return err
				}
			}
			v.Options = append(v.Options, Transient(sum, next))
			return nil
		})
	}
	run := func(c *Cache, in ...G.Value) []float32 {
		t.Helper()
		return testutil.Get[[]G.Value](t)(c.Run(t.Context(), in...))[0].Data().([]float32)
	}
	c := carrying(false, false)
	if _, err := c.Run(t.Context(), ones(1)); err == nil || !strings.Contains(err.Error(), "runs change the state sum") {
		t.Errorf("got the error %v of a state that runs change", err)
	}
	for k := range 2 {
		testutil.Do(t, c.Do(t.Context(), 1, func(vm *VM, g *Sized) error {
			testutil.Do(t, errors.Join(G.Let(g.In[0], ones(1)), vm.RunAll()))
			if got, want := g.Out[0].Value().Data().([]float32)[2], float32(3*(k+1)); got != want {
				t.Errorf("run %d of Do: got %v, want %v", k, got, want)
			}
			return nil
		}))
	}
	input, evaluates := carrying(false, true), carrying(true, false)
	for range 2 {
		if got := run(input, ones(1), ones(1)); !slices.Equal(got, []float32{2, 3, 4}) {
			t.Errorf("with the state as an input: got %v", got)
		}
		if got := run(evaluates, ones(1)); !slices.Equal(got, []float32{1, 2, 3}) {
			t.Errorf("with a state that evaluations leave: got %v", got)
		}
	}
}

// TestCacheWaits: a request that comes during a run waits for others too, and Close ends a wait.
func TestCacheWaits(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	c := timesW(t, Limit{Rows: 8, Wait: time.Hour}, func(*Sized, *G.Node) error {
		close(started)
		<-finish
		return nil
	})
	results := make(chan error, 4)
	run := func(rows int) {
		go func() {
			_, err := c.Run(context.Background(), ones(rows))
			results <- err
		}()
	}
	waiting := func(rows int) {
		for got := -1; got != rows; {
			c.mu.Lock()
			got = rowsOf(c.queue)
			c.mu.Unlock()
		}
	}
	run(8)
	<-started
	run(5)
	waiting(5)
	close(finish)
	testutil.Do(t, <-results)
	run(3) // a second build panics
	testutil.Do(t, errors.Join(<-results, <-results))
	run(1)
	waiting(1)
	testutil.Do(t, c.Close())
	if err := <-results; err == nil || !strings.Contains(err.Error(), "the Cache is closed") {
		t.Errorf("a request that waits at Close gets %v", err)
	}
}

// TestCacheContext: calls with a context that is done, or is done while another graph is built, return its error without a build or a call.
func TestCacheContext(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	c := timesW(t, Limit{}, func(v *Sized, _ *G.Node) error {
		if v.In[0].Shape()[0] != 7 {
			t.Error("a call built a graph")
		}
		close(started)
		<-finish
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	built := make(chan error)
	go func() {
		_, err := c.Run(context.Background(), ones(7))
		built <- err
	}()
	<-started
	done := make(chan error)
	do := func(size int) error {
		return c.Do(ctx, size, func(*VM, *Sized) error { t.Error("Do called the function"); return nil })
	}
	go func() { done <- do(2) }()
	cancel()
	calls := map[string]error{"Do that waits for a build": <-done}
	close(finish)
	testutil.Do(t, <-built)
	for range 9 { // each would succeed half of the times
		calls["Do"] = errors.Join(calls["Do"], do(7))
		_, calls["Run"] = c.Run(ctx, ones(7))
	}
	for what, err := range calls {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got error %v, want that of the context", what, err)
		}
	}
}

// TestCacheInUse: VMs in use are kept beyond the limit only until the calls end.
func TestCacheInUse(t *testing.T) {
	c := timesW(t, Limit{VMs: 1}, nil)
	testutil.Do(t, c.Do(context.Background(), 1, func(*VM, *Sized) error {
		return c.Do(context.Background(), 2, func(*VM, *Sized) error {
			if got := c.VMs(); len(got) != 2 {
				t.Errorf("got VMs of %v, want both in use", got)
			}
			return nil
		})
	}))
	if got := c.VMs(); len(got) != 1 {
		t.Errorf("got VMs of %v, want at most one", got)
	}
}

// TestCacheTooLarge: a size that does not fit into memory is an error, on a GPU too, and the others work before and after it.
func TestCacheTooLarge(t *testing.T) {
	c := timesW(t, Limit{Sizes: []int{2, 1 << 20}}, func(v *Sized, _ *G.Node) error {
		y := v.Out[0]
		for _, op := range []func(*G.Node) (*G.Node, error){
			func(x *G.Node) (*G.Node, error) { return ops.Broadcast(x, 1<<17, 1) }, // 1.6 TB
			func(x *G.Node) (*G.Node, error) { return ops.CumSum(x, 1) },
			func(x *G.Node) (*G.Node, error) { return ops.Max(x, 1) },
		} {
			var err error
			if y, err = op(y); err != nil {
				return err
			}
		}
		v.Out[0] = y
		return nil
	})
	for i := range 3 {
		out, err := c.Run(context.Background(), ones(1))
		testutil.Do(t, err)
		if got, want := out[0].Data().([]float32), []float32{1 << 17, 2 << 17, 3 << 17}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if i == 2 {
			break
		}
		if _, err := c.Run(context.Background(), ones(3)); err == nil || !strings.Contains(err.Error(), "size 1048576: ") {
			t.Errorf("a size of 3 TB gives error %v", err)
		} else {
			t.Log(err)
		}
	}
}

// TestCacheFollowsTraining: a VM of the Cache computes with the parameters that another VM of the Store trains.
func TestCacheFollowsTraining(t *testing.T) {
	c, s, _ := cached(t, Limit{})
	n := newNet(t, tensor.Float64, 16, 3)
	training := testutil.Get[*VM](t)(NewVM(n.g, OnAny(), In(s), Train(G.NewVanillaSolver(G.WithLearnRate(0.1)), n.learnables...)))
	defer training.Close()
	x := draw(rand.New(rand.NewPCG(1, 1)), tensor.Float64, 2, 7)
	before := testutil.Get[[]G.Value](t)(c.Run(context.Background(), x))
	n.run(t, training, 1)
	after := testutil.Get[[]G.Value](t)(c.Run(context.Background(), x))
	checkRows(t, x, before)
	if slices.Equal(before[0].Data().([]float64), after[0].Data().([]float64)) {
		t.Error("a step of training changes no result")
	}
}

// TestCacheErrors: what does not fit is an error that leaves the Cache usable.
func TestCacheErrors(t *testing.T) {
	store := NewStore()
	defer store.Close()
	for want, limit := range map[string]Limit{"want no number below 0": {VMs: -1}, "want sizes above 0": {Sizes: []int{0, 3}}, "and one for these rows": {Rows: 4, Sizes: []int{3}}} {
		if _, err := NewCache(store, func(int) (*Sized, error) { return nil, nil }, limit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
	if _, err := NewCache(nil, nil, Limit{}); err == nil {
		t.Error("got no error of a nil Store")
	}
	if _, err := NewCache(store, nil, Limit{}); err == nil {
		t.Error("got no error of a nil build")
	}
	c, _, _ := cached(t, Limit{Bytes: 1 << 20, Sizes: []int{1, 4, 100000}})
	good := func() {
		t.Helper()
		x := draw(rand.New(rand.NewPCG(1, 1)), tensor.Float64, 3, 7)
		checkRows(t, x, testutil.Get[[]G.Value](t)(c.Run(context.Background(), x)))
	}
	good()
	run := func(in ...G.Value) error { _, err := c.Run(context.Background(), in...); return err }
	r, none := rand.New(rand.NewPCG(1, 1)), context.Context(nil)
	for want, err := range map[string]error{
		"want at most 1.0 MiB":    run(draw(r, tensor.Float64, 5, 7)),
		"want at most 100000":     run(draw(r, tensor.Float64, 100001, 7)),
		"got no rows":             run(),
		"got no value":            run(nil),
		"got a scalar":            run(G.NewF64(1)),
		"want 2 as of input 0":    run(draw(r, tensor.Float64, 2, 7), draw(r, tensor.Float64, 3, 7)),
		"got 2 inputs, want 1":    run(draw(r, tensor.Float64, 2, 7), draw(r, tensor.Float64, 2, 7)),
		"rows of float32":         run(draw(r, tensor.Float32, 2, 7)),
		"shape (8)":               run(draw(r, tensor.Float64, 2, 8)),
		"size 0: want a size":     c.Do(context.Background(), 0, func(*VM, *Sized) error { return nil }),
		"got a nil function":      c.Do(context.Background(), 1, nil),
		"got a nil context":       c.Do(none, 1, func(*VM, *Sized) error { return nil }),
		"Cache that NewCache did": (&Cache{}).Do(context.Background(), 1, func(*VM, *Sized) error { return nil }),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
		good()
	}
	for want, change := range map[string]func(v *Sized, w *G.Node) error{
		"each once":            func(v *Sized, _ *G.Node) error { v.In = append(v.In, v.In[0]); return nil },
		"inputs of the graph":  func(v *Sized, _ *G.Node) error { v.In = v.Out; return nil },
		"got w, a parameter":   func(v *Sized, w *G.Node) error { v.In = append(v.In, w); return nil },
		"option ReadEvery(3),": func(v *Sized, _ *G.Node) error { v.Options = append(v.Options, ReadEvery(3)); return nil },
	} {
		if _, err := timesW(t, Limit{}, change).Run(context.Background(), ones(1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
	for want, build := range map[string]func(int) (*Sized, error){
		"no luck":        func(int) (*Sized, error) { return nil, errors.New("no luck") },
		"panicked":       func(int) (*Sized, error) { panic("a fault") },
		"got no graph":   func(int) (*Sized, error) { return nil, nil },
		"got a nil node": func(int) (*Sized, error) { return &Sized{G.NewGraph(), []*G.Node{nil}, []*G.Node{nil}, nil}, nil },
		"rows along axis 0": func(n int) (*Sized, error) {
			net := newNet(t, tensor.Float64, n, 1)
			return &Sized{net.g, []*G.Node{net.x}, []*G.Node{net.loss}, []Option{OnHost()}}, nil
		},
		"with an op, ": func(n int) (*Sized, error) {
			net := newNet(t, tensor.Float64, n, 1)
			return &Sized{net.g, []*G.Node{net.x}, []*G.Node{net.out}, []Option{OnHost(), Resident(net.out)}}, nil
		},
	} {
		s := NewStore()
		testutil.Do(t, s.SetParameters([]Learnable{{Name: "w0", Value: draw(r, tensor.Float64, 7, 13)}}))
		c, err := NewCache(s, build, Limit{})
		testutil.Do(t, err)
		if _, err = c.Run(context.Background(), draw(r, tensor.Float64, 1, 7)); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
		testutil.Do(t, c.Close())
		testutil.Do(t, s.Close())
	}
	testutil.Do(t, c.Close())
	testutil.Do(t, c.Close())
	if err := run(draw(r, tensor.Float64, 1, 7)); err == nil || !strings.Contains(err.Error(), "the Cache is closed") {
		t.Errorf("a closed Cache gives %v", err)
	}
}
