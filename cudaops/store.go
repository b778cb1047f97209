package cudaops

import (
	"context"
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Store holds parameters and states by name in the memory of one device. All VMs with the option [In] of a Store compute with the same
// ones, in place: what one VM trains, the next run of another VM reads.
//
// VMs of a Store share the memory of the values that a run alone needs, as much as the largest VM takes. One VM runs at a time. A call of another VM's method waits for the end of the run; [VM.RunContext] stops waiting
// when its context is done. An op must not run another VM of its VM's Store.
//
// Store's methods may be called concurrently, and wait for a run too.
type Store struct {
	turn    chan struct{} // holds an element while a VM or a method uses the Store, which guards all fields
	device  string        // the VMs' device; "" before the first VM, while parameters are in host memory
	ranks   string        // the ranks of the VMs that change something; "" for one
	shards  int64         // parts that the memory of learnables is divided into, at least 1
	alloc   func(bytes int64) (program.Memory, error)
	byName  map[string]*parameter
	list    []*parameter // in the order in which they came
	homes   homes
	work    program.Memory // of the values that VMs need only during a run; nil before the first VM
	size    int64          // of work, bytes
	copies  *deviceCopies
	nodes   map[*gorgonia.Node]*storeNode
	members map[*parameters]bool // of open VMs
	last    *exec.Executable     // of the last run, which may still be in flight
	closed  bool
}

// homes are pieces of memory.
type homes map[program.Memory]*home

// home is what a Store knows of a piece of memory.
type home struct {
	users  int // number of parameters in it
	bytes  int64
	halves map[kernels.Dtype]program.Memory // of copies in BF16 and F16 of its float32 parameters, at half their offsets
}

// parameter is a parameter on the device. Without a Store it has only a version.
type parameter struct {
	version int              // counts changes on the device; 0 without a value
	spoilt  error            // a run that failed has changed it
	rounded map[rounding]int // versions of its copies in 16 bits

	name    string
	dtype   kernels.Dtype
	stored  kernels.Dtype // in memory: BF16 or F16 for a state in 16 bits
	shape   tensor.Shape
	home    program.Memory
	offset  int64       // bytes
	users   int         // number of VMs
	trainer *parameters // of the VM that trains it, or nil

	transient bool // a state of Transient
}

// rounding tells copies of a parameter in 16 bits apart: the one on the first rank may be newer than those on others.
type rounding struct {
	as    kernels.Dtype
	first bool
}

// storeNode is a node that holds a parameter on the host.
type storeNode struct {
	copy  *deviceCopy
	users int // number of VMs
}

// NewStore returns an empty Store.
func NewStore() *Store {
	s := &Store{turn: make(chan struct{}, 1), shards: 1, alloc: new(exec.HostBackend).NewMemory, byName: map[string]*parameter{}, homes: homes{},
		copies: newDeviceCopies(), nodes: map[*gorgonia.Node]*storeNode{}, members: map[*parameters]bool{}}
	h := s.homes
	onUnreachable(&s.closed, func() { h.free() })
	onUnreachable(&s.closed, s.copies.close)
	return s
}

// In makes a VM use the parameters of a Store. These are the learnables of [Train], the inputs of [State], the given nodes, and all
// inputs of the graph with the name of a parameter that the Store has. Each must have a unique name.
//
// NewVM copies the value of a node to the Store if the Store has none of that name; otherwise it ignores the node's value.
// Later values of nodes count as for Train: see [VM.Push], [VM.Pull] and [gorgonia.Let]. A node of another type or shape than
// the parameter is an error of NewVM, as are another device than that of the Store's other VMs and a graph without parameters.
//
// Several In of one Store have the nodes of all.
//
// On several ranks each has the Store's parameters, with equal values. Then VMs on one rank, the first, may use the Store too, unless they have Train or
// State, and after the first VM of all ranks. Each of several processes has its own Store. All must set parameters in the same calls; NewVM then takes the values of rank 0.
//
// A parameter has at most one VM that trains it: NewVM returns an error for another one until that VM is closed. The moments of
// the solver belong to the VM, and [VM.Snapshot] has them. The solver must be one of Gorgonia's.
func In(s *Store, nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.stores = append(c.stores, stored{s, nodes}) }
}

// Store returns the Store of the option [In], or nil.
func (vm *VM) Store() *Store {
	if vm == nil || len(vm.config.stores) == 0 {
		return nil
	}
	return vm.config.stores[0].store
}

// stored holds the arguments of In.
type stored struct {
	store *Store
	nodes []*gorgonia.Node
}

// Parameters returns copies of all parameters, in the order in which the Store got them, without moments and states of [Transient].
func (s *Store) Parameters() (list []Learnable, err error) {
	err = s.use("Parameters", func() error {
		for _, p := range s.list {
			if p.version == 0 || p.transient {
				continue
			}
			if p.spoilt != nil {
				return p.spoilt
			}
			v, m := values.New(p.dtype, p.shape)
			if err := p.home.Read(m, p.offset); err != nil {
				return fmt.Errorf("parameter %s: %w", p.name, err)
			}
			list = append(list, Learnable{Name: p.name, Value: v})
		}
		return nil
	})
	return list, err
}

// ParameterType is the name, element type and shape of a parameter.
type ParameterType struct {
	Name  string
	Dtype tensor.Dtype
	Shape tensor.Shape
	Used  bool // by an open VM
}

// Types returns the types of all parameters, in the order of [Store.Parameters], with those that have no value yet.
func (s *Store) Types() (list []ParameterType, err error) {
	err = s.use("Types", func() error {
		for _, p := range s.list {
			if !p.transient {
				list = append(list, ParameterType{p.name, values.Tensor(p.dtype), p.shape.Clone(), p.users > 0})
			}
		}
		return nil
	})
	return list, err
}

// SetParameters sets parameters to copies of values and adds those that the Store does not have. It ignores moments. If a value
// has another type or shape than the parameter, it returns an error and changes nothing.
func (s *Store) SetParameters(list []Learnable) error {
	return s.use("SetParameters", func() error {
		set, contents := make([]*parameter, len(list)), make([][]byte, len(list))
		seen := map[string]bool{}
		for i, l := range list {
			if l.Name == "" || seen[l.Name] {
				return fmt.Errorf("got the name %q for parameter %d, want unique names", l.Name, i)
			}
			seen[l.Name] = true
			if guard.IsNil(l.Value) {
				return fmt.Errorf("parameter %s: got no value", l.Name)
			}
			var err error
			if set[i], err = s.find(l.Name, l.Value.Dtype(), l.Value.Shape()); err == nil {
				contents[i], err = values.Bytes(l.Value)
			}
			if err != nil {
				return fmt.Errorf("parameter %s: %w", l.Name, err)
			}
		}
		for i, p := range set {
			s.insert(p)
			var err error
			if p.home == nil {
				err = s.arrange(p)
			}
			if err == nil {
				err = p.set(contents[i])
			}
			if err != nil {
				return driver.Join(fmt.Errorf("parameter %s: %w", p.name, err), s.sweep())
			}
		}
		return nil
	})
}

// Push copies the values of nodes, inputs of the Store's VMs, to the parameters and states of their names, as [VM.Push] of a VM of these nodes does: the next run of any VM reads them. Nodes whose
// names the Store does not have are left out. If a value has another type or shape than the parameter, Push returns an error and changes nothing. After [Store.Close] it serves VMs that are still open.
func (s *Store) Push(nodes ...*gorgonia.Node) error {
	return s.between("Push", func() error {
		contents := make([][]byte, len(nodes))
		for i, n := range nodes {
			if n == nil || guard.IsNil(n.Value()) {
				return fmt.Errorf("node %s has no value: set it with gorgonia.Let", internal.Name(n))
			}
			_, err := s.find(n.Name(), n.Value().Dtype(), n.Value().Shape())
			if err == nil {
				contents[i], err = values.Bytes(n.Value())
			}
			if err != nil {
				return fmt.Errorf("node %s: %w", n.Name(), err)
			}
		}
		for i, n := range nodes {
			p := s.byName[n.Name()]
			if p == nil {
				continue
			}
			if err := p.set(contents[i]); err != nil {
				return fmt.Errorf("node %s: %w", n.Name(), err)
			}
			if at := s.nodes[n]; at != nil {
				at.copy.set(n.Value())
				at.copy.version = p.version
			}
		}
		return nil
	})
}

// set sets a parameter that has memory.
func (p *parameter) set(contents []byte) error {
	if p.stored != p.dtype {
		contents = exec.Rounded(contents, p.stored)
	}
	if err := p.home.Write(p.offset, contents); err != nil {
		return err
	}
	p.version++
	p.spoilt = nil
	return nil
}

// Close ends the use of the Store: NewVM and Store's other methods except Push return errors. VMs of the Store run on; when the last one is
// closed, or with Close if there is none, the memory is freed. Values on the host stay. Further calls do nothing.
func (s *Store) Close() error {
	if s == nil || s.turn == nil {
		return nil
	}
	unlock, _ := s.lock(context.Background())
	defer unlock()
	s.closed = true
	return failure("cudaops: Store.Close", s.end())
}

// end frees the memory of a closed Store without VMs.
func (s *Store) end() error {
	if !s.closed || len(s.members) > 0 {
		return nil
	}
	s.copies.close()
	s.byName, s.list, s.work, s.size = nil, nil, nil, 0
	return s.homes.free()
}

func (h homes) free() error {
	var errs []error
	for m := range h {
		errs = append(errs, h.remove(m))
	}
	return driver.Join(errs...)
}

// remove frees a piece of memory and its copies in 16 bits.
func (h homes) remove(m program.Memory) error {
	errs := []error{m.Free()}
	for _, half := range h[m].halves {
		errs = append(errs, half.Free())
	}
	delete(h, m)
	return driver.Join(errs...)
}

// use calls f while no VM runs, unless the Store is closed.
func (s *Store) use(method string, f func() error) error {
	return s.between(method, func() error {
		if s.closed {
			return errors.New("the Store is closed")
		}
		return f()
	})
}

// between calls f while no VM runs.
func (s *Store) between(method string, f func() error) error {
	if s == nil || s.turn == nil {
		return fmt.Errorf("cudaops: %s of a Store that NewStore did not make", method)
	}
	leave, err := s.enter(context.Background(), nil)
	if err == nil {
		defer leave()
		err = f()
	}
	return failure("cudaops: Store."+method, err)
}

// enter waits until nothing else uses the Store, and for all work that executables other than e have queued.
func (s *Store) enter(ctx context.Context, e *exec.Executable) (leave func(), err error) {
	if leave, err = s.lock(ctx); err != nil || s.last == nil || s.last == e {
		return leave, err
	}
	if err := s.last.Settle(); err != nil {
		leave()
		return nil, fmt.Errorf("the last run of another VM of the Store: %w", err)
	}
	return leave, nil
}

// lock waits until nothing else uses the Store.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	unlock = func() { <-s.turn }
	select {
	case s.turn <- struct{}{}:
		return unlock, nil
	default:
	}
	select {
	case s.turn <- struct{}{}:
		return unlock, nil
	case <-ctx.Done():
		return nil, exec.Cancelled(ctx, "the call was cancelled while another VM of the Store ran")
	}
}

// place allocates memory for parameters. The first ones will be trained: all of one of of must be contiguous, so that one launch updates them.
func (s *Store) place(list []*parameter, of []int) error {
	groups := map[int][]*parameter{}
	for i, p := range list {
		if s.insert(p); i < len(of) {
			groups[of[i]] = append(groups[of[i]], p)
		}
	}
	for _, g := range groups {
		if !s.contiguous(g) {
			if err := s.arrange(g...); err != nil {
				return err
			}
		}
	}
	for _, p := range list[len(of):] {
		if p.home == nil {
			if err := s.arrange(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// insert adds a parameter that the Store does not have.
func (s *Store) insert(p *parameter) {
	if s.byName[p.name] == nil {
		s.byName[p.name] = p
		s.list = append(s.list, p)
	}
}

// workspace returns memory of at least that many bytes for the values of one run of a VM. If it allocates new memory, the other VMs
// compile their graphs again before their next run. A most above 0 limits the bytes.
func (s *Store) workspace(bytes, most int64) (program.Memory, error) {
	if most > 0 && bytes > most {
		return nil, fmt.Errorf("got %s for the values of a run, want at most %s", size(bytes), size(most))
	}
	if bytes <= s.size {
		return s.work, nil
	}
	if s.work != nil {
		if grown := s.size + s.size/4; most == 0 || grown <= most { // so that VMs of rising sizes seldom move it
			bytes = max(bytes, grown)
		}
		old := s.work // no VM runs with it again
		s.work, s.size = nil, 0
		if err := s.homes.remove(old); err != nil {
			return nil, err
		}
	}
	m, err := s.alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("memory of %s for the values of a run: %w", size(bytes), err)
	}
	s.homes[m] = &home{users: 1, bytes: bytes}
	s.work, s.size = m, bytes
	return m, nil
}

// layout returns the offsets of contiguous parameters of one type and the size of their memory, in bytes: a multiple of the Store's shards.
func (s *Store) layout(list []*parameter) (offsets []int64, size int64) {
	dt := list[0].stored
	offsets, size = program.Layout(dt, program.Collect(list, func(p *parameter) int64 { return kernels.Count(p.shape) })...)
	_, part := program.Layout(dt, kernels.CeilDiv(size, s.shards))
	size = part * s.shards
	for i := range offsets {
		offsets[i] *= dt.Size()
	}
	return offsets, size * dt.Size()
}

// contiguous reports whether parameters are alone in their memory, at the offsets at which arrange would put them.
func (s *Store) contiguous(list []*parameter) bool {
	home := list[0].home
	offsets, _ := s.layout(list)
	for i, p := range list {
		if p.home == nil || p.home != home || p.offset != offsets[i] {
			return false
		}
	}
	return s.homes[home].users == len(list)
}

// arrange moves parameters to new memory. VMs that use them compile their graphs again before their next run.
func (s *Store) arrange(list ...*parameter) error {
	offsets, size := s.layout(list)
	to, err := s.alloc(size)
	if err != nil {
		return fmt.Errorf("memory for the Store's parameters: %w", err)
	}
	for i, p := range list {
		if p.version == 0 {
			continue
		}
		m := make([]byte, kernels.Count(p.shape)*p.stored.Size())
		err := p.home.Read(m, p.offset)
		if err == nil {
			err = to.Write(offsets[i], m)
		}
		if err != nil {
			return driver.Join(fmt.Errorf("parameter %s: %w", p.name, err), to.Free())
		}
	}
	var errs []error
	for i, p := range list {
		errs = append(errs, s.release(p))
		p.home, p.offset = to, offsets[i]
		clear(p.rounded)
	}
	s.homes[to] = &home{users: len(list), bytes: size}
	return driver.Join(errs...)
}

// half returns the memory of copies in BF16 or F16 of the float32 parameters in a piece of memory.
func (s *Store) half(of program.Memory, d kernels.Dtype) (program.Memory, error) {
	h := s.homes[of]
	if m := h.halves[d]; m != nil {
		return m, nil
	}
	m, err := s.alloc(h.bytes / 2)
	if err != nil {
		return nil, fmt.Errorf("memory for copies of the Store's parameters in %v: %w", d, err)
	}
	if h.halves == nil {
		h.halves = map[kernels.Dtype]program.Memory{}
	}
	h.halves[d] = m
	return m, nil
}

// release frees the memory of a parameter unless others are in it.
func (s *Store) release(p *parameter) error {
	if p.home == nil {
		return nil
	}
	if h := s.homes[p.home]; h.users > 1 {
		h.users--
		return nil
	}
	return s.homes.remove(p.home)
}

// sweep removes parameters that no VM uses: those without a value and states of Transient.
func (s *Store) sweep() error {
	var errs []error
	kept := s.list[:0] // not by slices.DeleteFunc, for the reason of onUnreachable
	for _, p := range s.list {
		if p.version > 0 && !p.transient || p.users > 0 {
			kept = append(kept, p)
			continue
		}
		delete(s.byName, p.name)
		errs = append(errs, s.release(p))
	}
	clear(s.list[len(kept):])
	s.list = kept
	return driver.Join(errs...)
}
