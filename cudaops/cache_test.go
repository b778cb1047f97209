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
