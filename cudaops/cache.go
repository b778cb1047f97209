package cudaops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/guard"
	"gorgonia.org/gorgonia"
)

// Cache holds VMs of one computation for inputs of several sizes: batches of any number of rows, prompts of any length. They share
// the parameters and the workspace of a [Store]. It makes a VM when a size is first used, and closes those not used for the
// longest time when they exceed a limit.
//
// Its methods may be called concurrently.
type Cache struct {
	store *Store
	build func(size int) (*Sized, error)
	limit Limit

	mu      sync.Mutex // guards the fields below
	vms     []*sized   // the last used one is the last
	queue   []*request
	serving bool          // a goroutine serves the queue
	full    chan struct{} // holds an element when the queue has the rows of a run
	closed  bool
}

// Sized is a graph for inputs of one size.
type Sized struct {
	Graph   *gorgonia.ExprGraph
	In      []*gorgonia.Node // the inputs of a request, none of them a parameter; axis 0 of each counts rows
	Out     []*gorgonia.Node // the results of a request, by rows too
	Options []Option         // of the VM, besides In and Keep of the results; mostly Inference
}

// Limit limits a [Cache]. Each field is optional.
type Limit struct {
	// VMs and Bytes are the maximum number of VMs kept, and of bytes of device memory that these and the workspace take. VMs that calls
	// use are kept until these calls end.
	VMs   int
	Bytes int64
	// Rows is the largest size of a run that [Cache.Run] makes of several requests. At 0 each request is a run.
	Rows int
	// Wait is how long a request waits for others that fill its run.
	Wait time.Duration
	// Sizes are the sizes of runs, in any order: a run has the smallest of them that has room for its rows, and repeats the last row
	// in the rest. Without Sizes a run has the size of its rows, so that each number of rows is a VM.
	Sizes []int
}

// sized is a VM of a Cache.
type sized struct {
	*Sized
	size  int
	vm    *VM
	turn  chan struct{} // holds an element while a call uses the VM
	users int           // calls that use it or wait for it; guarded by the Cache's mu
}

// building holds an element while a graph is built: Gorgonia's constructors are not safe for concurrent use.
var building = make(chan struct{}, 1)

// NewCache returns an empty Cache. build returns the graph for inputs of a size; its inputs with the names of the Store's parameters
// are these parameters. Calls of build by all Caches of the process are made one at a time.
func NewCache(s *Store, build func(size int) (*Sized, error), limit Limit) (*Cache, error) {
	switch {
	case s == nil || s.turn == nil:
		return nil, errors.New("cudaops: NewCache got a Store that NewStore did not make")
	case build == nil:
		return nil, errors.New("cudaops: NewCache got a nil build")
	case limit.VMs < 0 || limit.Bytes < 0 || limit.Rows < 0 || limit.Wait < 0:
		return nil, fmt.Errorf("cudaops: NewCache got %+v, want no number below 0", limit)
	}
	limit.Sizes = slices.Sorted(slices.Values(limit.Sizes))
	if n := len(limit.Sizes); n > 0 && (limit.Sizes[0] < 1 || limit.Sizes[n-1] < limit.Rows) {
		return nil, fmt.Errorf("cudaops: NewCache got the sizes %v and runs of at most %d rows, want sizes above 0, and one for these rows", limit.Sizes, limit.Rows)
	}
	return &Cache{store: s, build: build, limit: limit, full: make(chan struct{}, 1)}, nil
}

// Do calls f with the VM of a size and its graph. No other call uses the VM until f returns, so f must not call Do of the same size. When
// ctx is done, Do returns without calling f.
func (c *Cache) Do(ctx context.Context, size int, f func(vm *VM, graph *Sized) error) (err error) {
	if err = c.usable(ctx); err == nil && f == nil {
		err = errors.New("got a nil function")
	}
	if err == nil {
		err = c.do(ctx, size, f)
	}
	return failure("cudaops: Cache.Do", err)
}

func (c *Cache) do(ctx context.Context, size int, f func(vm *VM, graph *Sized) error) (err error) {
	v, err := c.acquire(ctx, size)
	if err != nil {
		return fmt.Errorf("size %d: %w", size, err)
	}
	defer func() { err = driver.Join(err, c.release(v)) }()
	if err := enter(ctx, v.turn, "another one used the VM"); err != nil {
		return err
	}
	defer func() { <-v.turn }()
	return f(v.vm, v.Sized)
}

// enter waits until turn has room for an element, and adds it.
func enter(ctx context.Context, turn chan struct{}, why string) error {
	if ctx.Err() == nil { // a select of two ready channels takes any
		select {
		case turn <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return exec.Cancelled(ctx, "the call was cancelled while "+why)
}

// usable returns an error unless c is from NewCache and the context is not nil.
func (c *Cache) usable(ctx context.Context) error {
	if c == nil || c.build == nil {
		return errors.New("got a Cache that NewCache did not make")
	}
	if guard.IsNil(ctx) {
		return errors.New("got a nil context")
	}
	return nil
}

// acquire returns the VM of a size and makes it if there is none.
func (c *Cache) acquire(ctx context.Context, size int) (*sized, error) {
	if size < 1 {
		return nil, errors.New("want a size above 0")
	}
	if v, err := c.find(size, nil); v != nil || err != nil {
		return v, err
	}
	if err := enter(ctx, building, "another graph was built"); err != nil {
		return nil, err
	}
	defer func() { <-building }()
	if v, err := c.find(size, nil); v != nil || err != nil { // built meanwhile
		return v, err
	}
	made, err := c.newVM(size)
	if err != nil {
		return nil, err
	}
	return c.find(size, made)
}

// find returns the VM of a size for a call, or nil if there is none. It adds a made one first, and closes others beyond the limits.
func (c *Cache) find(size int, made *sized) (*sized, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		err := errors.New("the Cache is closed")
		if made != nil {
			err = driver.Join(err, made.vm.Close())
		}
		return nil, err
	}
	if made != nil {
		c.vms = append(c.vms, made)
	}
	i := slices.IndexFunc(c.vms, func(v *sized) bool { return v.size == size })
	if i < 0 {
		return nil, nil
	}
	v := c.vms[i]
	c.vms = append(slices.Delete(c.vms, i, i+1), v)
	v.users++
	if err := c.evict(c.withinLimit); err != nil {
		v.users--
		return nil, err
	}
	return v, nil
}

// withinLimit reports whether the VMs do not exceed the limit.
func (c *Cache) withinLimit() bool {
	return (c.limit.VMs == 0 || len(c.vms) <= c.limit.VMs) && (c.limit.Bytes == 0 || c.bytes(c.vms...) <= c.limit.Bytes)
}

// newVM builds the VM of a size. If memory is short, it closes the unused VMs and tries again.
func (c *Cache) newVM(rows int) (*sized, error) {
	v := &sized{size: rows, turn: make(chan struct{}, 1)}
	err := guard.Recover("build", func() (err error) { v.Sized, err = c.build(rows); return err })
	if err == nil {
		err = v.check()
	}
	if err != nil {
		return nil, fmt.Errorf("build: %w", err)
	}
	opts := append(slices.Clone(v.Options), In(c.store), Keep(v.Out...), func(o *config) { o.workspaceMax = c.limit.Bytes })
	if v.vm, err = NewVM(v.Graph, opts...); driver.IsOutOfMemory(err) {
		c.mu.Lock()
		failed := c.evict(func() bool { return false })
		c.mu.Unlock()
		if failed != nil {
			return nil, driver.Join(err, failed)
		}
		v.vm, err = NewVM(v.Graph, opts...)
	}
	if err != nil {
		return nil, err
	}
	bytes, shared := c.bytes(v), slices.IndexFunc(v.In, v.vm.params.setsAll)
	switch {
	case c.limit.Bytes > 0 && bytes > c.limit.Bytes:
		err = fmt.Errorf("got a VM of %s, want at most the %s of the Limit", size(bytes), size(c.limit.Bytes))
	case v.vm.every > 1:
		err = fmt.Errorf("build: got the option ReadEvery(%d), want the results of each run", v.vm.every)
	case shared >= 0:
		err = fmt.Errorf("build: input %d: got %s, a parameter that all VMs of the Store share", shared, v.In[shared].Name())
	}
	if err != nil {
		return nil, driver.Join(err, v.vm.Close())
	}
	return v, nil
}

// setsAll reports whether a value of a node is one of all VMs of the Store, and no state.
func (p *parameters) setsAll(n *gorgonia.Node) bool {
	i := slices.Index(p.nodes, n)
	return i >= 0 && p.next[i] == nil
}

// check returns an error unless build returned a graph, inputs and results.
func (v *sized) check() error {
	if v.Sized == nil || v.Graph == nil || len(v.In) == 0 || len(v.Out) == 0 {
		return errors.New("got no graph, inputs or results")
	}
	if slices.Contains(slices.Concat(v.In, v.Out), nil) {
		return errors.New("got a nil node")
	}
	for i, n := range v.In {
		if n.Op() != nil || slices.Contains(v.In[:i], n) {
			return fmt.Errorf("input %d: got node %s, want inputs of the graph, each once", i, n.Name())
		}
	}
	return nil
}

// bytes returns the device memory of VMs, with the Store's workspace once.
func (c *Cache) bytes(vms ...*sized) (sum int64) {
	largest := int64(0)
	for _, v := range vms {
		p := v.vm.shown.Load().graph.Program
		sum, largest = sum+p.Arena, max(largest, p.Workspace)
	}
	return sum + largest
}

// evict closes unused VMs, those not used for the longest time first, until enough returns true.
func (c *Cache) evict(enough func() bool) error {
	var errs []error
	for i := 0; i < len(c.vms) && !enough(); {
		if v := c.vms[i]; v.users == 0 {
			c.vms = slices.Delete(c.vms, i, i+1)
			errs = append(errs, v.vm.Close())
		} else {
			i++
		}
	}
	return driver.Join(errs...)
}

// release ends the use of a VM, and closes VMs beyond the limit that were in use when it was exceeded.
func (c *Cache) release(v *sized) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.users--
	return c.evict(func() bool { return !c.closed && c.withinLimit() })
}

// VMs returns the sizes of the VMs kept, the last used one last.
func (c *Cache) VMs() (sizes []int) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.vms {
		sizes = append(sizes, v.size)
	}
	return sizes
}

// Close closes the VMs; those in use are closed at the end of the calls. The Store stays open. Further calls do nothing.
func (c *Cache) Close() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.wake()
	return failure("cudaops: Cache.Close", c.evict(func() bool { return false }))
}
