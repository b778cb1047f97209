package cudaops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The functions of this file are the queue of a Cache: requests that wait, and the runs that join them.

// request is a call of Run that waits for its results.
type request struct {
	in    []input
	rows  int
	since time.Time
	out   []gorgonia.Value // the results of the run; the rows of the request begin at first
	first int
	err   error
	done  chan struct{}
}

// input is a copy of a value of a request.
type input struct {
	dtype tensor.Dtype
	row   tensor.Shape // without axis 0
	bytes []byte
}

// Run returns the results of a request: of values for the graph's inputs, all with the same number of rows along axis 0. With
// [Limit].Rows, requests that wait at the same time are joined into one run, and each call gets its own rows of the results, as new
// values. If that run fails, the Cache runs each request by itself, and only those with a wrong index fail. When ctx is done, the request leaves the queue.
//
// A graph whose runs change a state that is not among its inputs is an error: a request would continue from the one before it, whoever made that. [Cache.Do] runs such a
// graph, with [VM.Push] or nn.Scope.Reset at the start of each sequence.
func (c *Cache) Run(ctx context.Context, in ...gorgonia.Value) (out []gorgonia.Value, err error) {
	if err = c.usable(ctx); err == nil {
		out, err = c.run(ctx, in)
	}
	return out, failure("cudaops: Cache.Run", err)
}

func (c *Cache) run(ctx context.Context, in []gorgonia.Value) ([]gorgonia.Value, error) {
	if ctx.Err() != nil {
		return nil, exec.Cancelled(ctx, "the request was cancelled before it began")
	}
	r, err := newRequest(in)
	if err != nil {
		return nil, err
	}
	if n := len(c.limit.Sizes); n > 0 && r.rows > c.limit.Sizes[n-1] {
		return nil, fmt.Errorf("got %d rows, want at most %d, the largest of Limit.Sizes", r.rows, c.limit.Sizes[n-1])
	}
	c.enqueue(r)
	select {
	case <-r.done:
		return r.results()
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.queue = slices.DeleteFunc(c.queue, func(o *request) bool { return o == r })
		return nil, exec.Cancelled(ctx, "the request was cancelled while it waited")
	}
}

// newRequest copies the values of a request.
func newRequest(in []gorgonia.Value) (*request, error) {
	r := &request{since: time.Now(), done: make(chan struct{})}
	for i, v := range in {
		switch {
		case guard.IsNil(v):
			return nil, fmt.Errorf("input %d: got no value", i)
		case v.Shape().Dims() == 0:
			return nil, fmt.Errorf("input %d: got a scalar, want rows along axis 0", i)
		case i > 0 && v.Shape()[0] != r.rows:
			return nil, fmt.Errorf("input %d: got %d rows, want %d as of input 0", i, v.Shape()[0], r.rows)
		}
		m, err := values.Bytes(v)
		if err != nil {
			return nil, fmt.Errorf("input %d: %w", i, err)
		}
		r.rows = v.Shape()[0]
		r.in = append(r.in, input{v.Dtype(), v.Shape()[1:].Clone(), slices.Clone(m)})
	}
	if r.rows < 1 {
		return nil, errors.New("got no rows")
	}
	return r, nil
}

// enqueue appends a request to the queue and starts to serve it.
func (c *Cache) enqueue(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue = append(c.queue, r); rowsOf(c.queue) >= c.limit.Rows {
		c.wake()
	}
	if !c.serving {
		c.serving = true
		go c.serve()
	}
}

// wake ends the wait of serve.
func (c *Cache) wake() {
	select {
	case c.full <- struct{}{}:
	default:
	}
}

// serve runs the requests in the queue, each when it has waited for others or its run is full, until the queue is empty.
func (c *Cache) serve() {
	for {
		batch, wait := c.next()
		switch {
		case wait > 0:
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-c.full:
			}
			t.Stop()
		case len(batch) == 0:
			return
		default:
			c.runBatch(batch)
		}
	}
}

// next removes the requests of the next run from the queue, or returns how long the first one still waits for others. If there are no requests,
// the queue is no longer served.
func (c *Cache) next() (batch []*request, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.full:
	default:
	}
	if len(c.queue) > 0 && rowsOf(c.queue) < c.limit.Rows && !c.closed {
		if wait = time.Until(c.queue[0].since.Add(c.limit.Wait)); wait > 0 {
			return nil, wait
		}
	}
	rows := 0
	for len(c.queue) > 0 {
		r := c.queue[0]
		if len(batch) > 0 && (rows+r.rows > c.limit.Rows || !joins(batch[0], r)) {
			break
		}
		batch, rows, c.queue = append(batch, r), rows+r.rows, c.queue[1:]
	}
	c.serving = len(batch) > 0
	return batch, 0
}

// joins reports whether two requests fit into one run: whether their inputs have the same types and shapes of rows.
func joins(a, b *request) bool {
	return slices.EqualFunc(a.in, b.in, func(v, w input) bool { return v.dtype == w.dtype && slices.Equal(v.row, w.row) })
}

// rowsOf returns the number of rows of requests.
func rowsOf(list []*request) (rows int) {
	for _, r := range list {
		rows += r.rows
	}
	return rows
}

// runBatch runs a batch of requests, and if that fails, each of them alone.
func (c *Cache) runBatch(batch []*request) {
	rows := rowsOf(batch)
	size := rows
	if i, _ := slices.BinarySearch(c.limit.Sizes, rows); i < len(c.limit.Sizes) {
		size = c.limit.Sizes[i]
	}
	err := c.do(context.Background(), size, func(vm *VM, g *Sized) error {
		err := g.checkStates(vm)
		if err == nil {
			err = g.set(batch, size)
		}
		if err == nil {
			err = vm.RunAll()
		}
		if err == nil {
			err = g.assign(batch, size)
		}
		return err
	})
	if err != nil && len(batch) > 1 { // a wrong index of one request is no error of the others
		for i := range batch {
			c.runBatch(batch[i : i+1])
		}
		return
	}
	for _, r := range batch {
		r.err = err
		close(r.done)
	}
}

// checkStates returns an error if runs change a state that requests do not set. One that a run leaves as it is, such as a running mean of a run that evaluates, is none.
func (g *Sized) checkStates(vm *VM) error {
	graph := vm.shown.Load().graph
	for _, s := range graph.Shared {
		if !slices.Contains(g.In, s.Node) && slices.ContainsFunc(graph.Program.Updates, func(u program.Update) bool { return u.State == s.Value.Base && u.Next != u.State }) {
			return fmt.Errorf("got a graph whose runs change the state %s, so that a request continues from the one before it: want the state among the inputs, or Cache.Do", s.Node.Name())
		}
	}
	return nil
}

// set sets the inputs to the rows of the requests, and repeats the last row in the rest.
func (g *Sized) set(batch []*request, size int) error {
	if n := len(batch[0].in); n != len(g.In) {
		return fmt.Errorf("got %d inputs, want %d", n, len(g.In))
	}
	for i, n := range g.In {
		shape, first := n.Shape(), batch[0].in[i]
		of, _ := internal.ElementType(n)
		if shape.Dims() == 0 || shape[0] != size || first.dtype != of || !slices.Equal(shape[1:], first.row) {
			return fmt.Errorf("input %d: got rows of %v and shape %v, want %v and shape %v for %d rows", i, first.dtype, first.row, of, shape, size)
		}
		dt, _ := values.Dtype(of)
		v, m, err := values.Make(dt, shape)
		if err != nil {
			return err
		}
		for _, r := range batch {
			m = m[copy(m, r.in[i].bytes):]
		}
		last := batch[len(batch)-1] // its row is valid where zeros may be none, such as a temperature or a number of candidates
		for row := last.in[i].bytes[len(last.in[i].bytes)/last.rows*(last.rows-1):]; len(m) > 0 && len(row) > 0; {
			m = m[copy(m, row):]
		}
		if err := gorgonia.Let(n, v); err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
	}
	return nil
}

// assign gives each request the results of a run and its place in them.
func (g *Sized) assign(batch []*request, size int) error {
	out := make([]gorgonia.Value, len(g.Out))
	for k, n := range g.Out {
		if out[k] = n.Value(); guard.IsNil(out[k]) || out[k].Shape().Dims() == 0 || out[k].Shape()[0] != size {
			return fmt.Errorf("result %d: got a value of shape %v, want %d rows along axis 0", k, n.Shape(), size)
		}
	}
	first := 0
	for _, r := range batch {
		r.out, r.first = out, first
		first += r.rows
	}
	return nil
}

// results returns copies of the request's rows, which each request makes by itself while the next run goes on.
func (r *request) results() ([]gorgonia.Value, error) {
	if r.err != nil {
		return nil, r.err
	}
	out := make([]gorgonia.Value, len(r.out))
	for k, v := range r.out {
		all, err := values.Bytes(v)
		if err != nil {
			return nil, fmt.Errorf("result %d: %w", k, err)
		}
		dt, _ := values.Dtype(v.Dtype())
		own, m, err := values.Make(dt, append(tensor.Shape{r.rows}, v.Shape()[1:]...))
		if err != nil {
			return nil, err
		}
		copy(m, all[len(all)/v.Shape()[0]*r.first:])
		out[k] = own
	}
	return out, nil
}
