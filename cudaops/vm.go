package cudaops

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/hostblas"
	"github.com/stheno-ml/stheno/internal/hostmem"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// VM runs an expression graph: ops with kernels on its device, other ops on the host, with the necessary copies.
//
// It is a [gorgonia.VM]. As with Gorgonia's tape machine, RunAll returns these values on the host: the roots of the graph,
// the cost of [gorgonia.Grad], the nodes of [gorgonia.Read] and their variables, the gradients of inputs
// ([gorgonia.Node.Grad]) and the nodes of [Keep]. Values of other nodes may be nil or from an earlier run.
//
// [gorgonia.Grad] also makes derivatives w.r.t. inputs that were not passed to it. They are roots of the graph, but are
// computed only if they are read or kept, or if the graph has several costs.
//
// A value bound to a node is new in every run and shares its memory with no other value; a variable of Read is overwritten
// in place if possible. Gradients are those of the last run; only [AddGradients] accumulates them. The gradient of
// an input, [gorgonia.Node.Grad], and the value of its derivative, [gorgonia.Node.Deriv], are separate too: solvers
// zero the first and not the second.
//
// Inputs are copied to the device in every run, so they may be changed in place or by [gorgonia.Let] between runs.
// Exceptions are the learnables of [Train], the parameters of [In] and the inputs of [State] and [Resident]. The running mean and variance of a
// [gorgonia.BatchNormOp] are copied too: a run that trains stores them in the op, where Stats reads them.
//
// The next run uses a slice set by [gorgonia.UnsafeLet]. The first such slice of an op causes the graph to be recompiled with
// a copy of the slice's elements instead of a view; later ones cost nothing. A slice must have as many elements as the
// node's shape, all within the tensor.
//
// Ops with a training and an evaluation mode, such as Dropout, use the mode set by their SetTraining when a run starts, and
// train by default. The first run after a change recompiles the graph. Under [EvalMode] all of them evaluate. Unlike a
// tape machine, a VM never calls SetTraining. Random numbers differ in every run: see [Seed].
//
// Several VMs may run concurrently. Calls on one VM wait for each other. A VM reserves the nodes that it uses while it runs:
// a run of another VM that reads or writes nodes it writes, or writes nodes it reads, is an error.
//
// An op may call the VM's Report, Memory and Device during a run. All other methods except Stage wait for the end of the
// run.
type VM struct {
	status
	mu       sync.Mutex
	source   *gorgonia.ExprGraph
	config   config
	target   passes.Target
	trainer  *trainer // nil without Train
	tracer   *tracer  // nil without Trace
	resident residents
	params   *parameters
	lists    []*deviceCopies
	every    int // every this many runs, results are copied to the host
	cleanup  runtime.Cleanup
	nodes    *footprint
	shown    atomic.Pointer[shown] // readable during a run
	seed     uint64                // of random numbers
	next     int                   // number of the next run, counted from 0 or from the restored snapshot
	broken   bool                  // rebuild failed
	closed   bool
}

var _ gorgonia.VM = (*VM)(nil)

// NewVM compiles g, allocates device memory and loads all kernels. The VM does not run nodes that are added to g later.
//
// It runs on CUDA device 0 unless an option selects another device. If there is no such device, the error wraps
// [ErrNoDevice].
func NewVM(g *gorgonia.ExprGraph, opts ...Option) (*VM, error) {
	c := &config{}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("cudaops: NewVM got a nil option")
		}
		o(c)
	}
	if len(c.compiled) > 0 {
		var err error
		if g, err = internal.Compiled(c.compiled[len(c.compiled)-1]); err != nil {
			return nil, fmt.Errorf("cudaops: Precompiled %w", err)
		}
	}
	if g == nil || len(g.AllNodes()) == 0 {
		return nil, fmt.Errorf("cudaops: NewVM got a graph without nodes")
	}
	err := errors.Join(c.checkPrecisions(), c.checkMixed(g), c.checkWatches(), c.checkStates())
	if err == nil {
		err = c.findDevices()
	}
	if err != nil {
		return nil, fmt.Errorf("cudaops: %w", err)
	}
	b, why, err := open(c)
	if err != nil {
		return nil, fmt.Errorf("cudaops: %w", err)
	}
	vm, err := newVM(g, c, b)
	if err != nil {
		return nil, driver.Join(fmt.Errorf("cudaops: %w", err), b.Close())
	}
	vm.why = why
	vm.show()
	return vm, nil
}

// open returns the backend that the options select. why explains why OnAny selected the host.
func open(c *config) (b exec.Backend, why string, err error) {
	if !c.host {
		g, err := exec.StartGPU(c.device)
		if err == nil {
			return g, "", nil
		}
		switch none := errors.Is(err, driver.ErrNoDevice); {
		case none && !c.auto:
			return nil, "", fmt.Errorf("%w; the options OnAny and OnHost run on the host", err)
		case !none:
			return nil, "", err
		}
		why = err.Error()
	}
	by, err := hostblas.For(gorgonia.WhichBLAS())
	if err != nil {
		return nil, "", err
	}
	return &exec.HostBackend{BLAS: by}, why, nil
}

// Device returns the name of the device that runs kernels. For the host it is "host backend", followed under [OnAny] by the
// reason.
func (vm *VM) Device() string {
	if vm == nil || vm.exec == nil {
		return ""
	}
	if why := vm.shown.Load().why; why != "" {
		return vm.device + ": " + why
	}
	return vm.device
}

func newVM(g *gorgonia.ExprGraph, c *config, b exec.Backend) (*VM, error) {
	vm := &VM{source: g, config: *c, every: one(c.every, 1), target: passes.Target{Device: c.beside(b.Device()), Mixed: c.stored()},
		status: status{device: b.Name()}, seed: rand.Uint64()}
	if c.seed != nil {
		vm.seed = *c.seed
	}
	var err error
	if vm.trainer, err = c.trainer(g); err != nil {
		return nil, err
	}
	if vm.config.ranks > 1 {
		vm.device = fmt.Sprintf("%d ranks of %s", vm.config.ranks, vm.device)
	} else if w := vm.config.world; w != nil {
		vm.device = fmt.Sprintf("rank %d of %d processes, %s", w.Rank, w.Size, vm.device)
	}
	residents := vm.copies()
	for range c.resident {
		vm.resident.copies = append(vm.resident.copies, residents.add())
	}
	if vm.tracer, err = newTracer(c); err != nil {
		return nil, err
	}
	build := vm.build
	if len(c.stores) > 0 {
		build = vm.buildIn
	} else {
		vm.own(newParameters(vm.trainer.onDevice(), &vm.config, vm.copies()))
	}
	if err := build(b); err != nil {
		return nil, err
	}
	return vm, nil
}

// own sets the parameters.
func (vm *VM) own(p *parameters) {
	if vm.params = p; vm.trainer != nil {
		vm.trainer.parameters = p
	}
}

// buildIn builds a VM in a Store.
func (vm *VM) buildIn(b exec.Backend) error {
	s, named := vm.config.stores[0].store, vm.config.stateNodes()
	for _, in := range vm.config.stores {
		if in.store != s {
			return errors.New("got the option In of two Stores, want one")
		}
		named = append(named, in.nodes...)
	}
	switch {
	case s == nil || s.turn == nil:
		return errors.New("In got a Store that NewStore did not make")
	case vm.trainer != nil && vm.trainer.onHost:
		return fmt.Errorf("In wants one of Gorgonia's solvers, got a %T", vm.trainer.sets[0].solver)
	}
	leave, err := s.enter(context.Background(), nil)
	if err != nil {
		return err
	}
	defer leave()
	v := joining{graph: vm.source, learnables: vm.trainer.onDevice(), groups: vm.trainer.groups(), named: named, stateOf: vm.config.state, halfOf: vm.config.halfOf, device: "the host", shards: int64(vm.config.total())}
	if b.Device().Kind == kernels.GPU {
		v.device = fmt.Sprintf("CUDA device %d", vm.config.device)
	}
	v.changes = len(v.learnables) > 0 || slices.ContainsFunc(vm.config.states, func(s state) bool { return !s.transient })
	if err := exec.Open(b); err != nil {
		return err
	}
	if v.ranks, v.alloc, err = vm.config.rankMemory(b); err != nil {
		return fmt.Errorf("In: %w", err)
	}
	p, err := s.join(v)
	if err != nil {
		return fmt.Errorf("In: %w", err)
	}
	p.findStates(&vm.config)
	vm.own(p)
	if err = vm.build(b); err == nil {
		err = errors.Join(p.push(p.fresh()), vm.shareParameters(p))
		p.begin()
	}
	if err != nil {
		return driver.Join(err, s.part(p))
	}
	onUnreachable(&vm.closed, func() { go p.drop() }) // does nothing after Close
	return nil
}

// build compiles the graph in its current state and makes it ready to run on a backend.
func (vm *VM) build(b exec.Backend) (err error) {
	if _, ok := b.(exec.AsyncCopier); ok && vm.trainer != nil && !vm.config.timed && vm.tracer == nil && vm.config.total() < 2 {
		vm.target.DoubleBufferMin = exec.CopyLimit
	}
	peers, err := vm.join(b)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && peers != nil {
			peers.Close()
		}
	}()
	var loaded func() error
	vm.target.Planned, loaded = exec.Preloads(b)
	defer func() {
		vm.target.Planned = nil
		err = driver.Join(err, loaded())
	}()
	graph, err := vm.compile(nil)
	if err != nil {
		return err
	}
	if vm.config.strict {
		if err := onlyKernels(graph.Program); err != nil {
			return err
		}
	}
	if err := hostmem.Check(int64(vm.config.ranksOrOne()) * exec.OnHost(graph.Program, b.Device())); err != nil {
		return fmt.Errorf("memory for the graph's values on the host: %w", err)
	}
	var e *exec.Executable
	err = guard.Own("the start of the program", func() (err error) { e, err = vm.executable(graph.Program, b, peers); return err })
	if err != nil {
		return err
	}
	if err := vm.params.built(e, graph); err != nil {
		return err
	}
	if err := vm.trainer.begin(e); err != nil {
		return err
	}
	vm.resident.built(graph)
	vm.graph, vm.boundary, vm.exec, vm.broken = graph, newBoundary(graph, &vm.config), e, false
	vm.products = productsBy(graph.Program, b)
	vm.nodes = newFootprint(graph, slices.Concat(vm.trainer.nodes(), vm.params.nodes))
	vm.show()
	// The executable does not refer to the VM, so an unreachable VM that was not closed still releases its memory.
	vm.cleanup = onUnreachable(&vm.closed, func() { e.Close() })
	return nil
}

// onUnreachable calls f, which must not refer to it, once an object with this field is unreachable. [runtime.AddCleanup] of the object itself would make its type, and
// all types within it, those of interfaces: a program that uses package reflect links all their exported methods.
func onUnreachable(field *bool, f func()) runtime.Cleanup {
	return runtime.AddCleanup(field, func(f func()) { f() }, f)
}

// copies returns a list of copies on the device, which is removed when the VM becomes unreachable.
func (vm *VM) copies() *deviceCopies {
	c := newDeviceCopies()
	vm.lists = append(vm.lists, c)
	onUnreachable(&vm.closed, c.close)
	return c
}

// rebuild recompiles the graph if UnsafeLet has set the slice of an op for the first time, SetTraining has changed a mode, or
// its Store has moved a parameter, since it was compiled. It preserves states; ops keep their own.
func (vm *VM) rebuild() error {
	if !vm.broken && !vm.graph.Stale() && !vm.params.moved() {
		return nil
	}
	if !vm.broken {
		if err := vm.params.save(); err != nil {
			return err
		}
	}
	vm.broken = true
	vm.cleanup.Stop()
	if err := vm.exec.Close(); err != nil {
		return err
	}
	b, why, err := open(&vm.config)
	if err != nil {
		return err
	}
	if err := vm.build(b); err != nil {
		return driver.Join(err, b.Close())
	}
	vm.why = why
	return nil
}

// mend rebuilds after a failed rebuild, which has released the device memory, and if its Store has moved a parameter.
func (vm *VM) mend() error {
	if !vm.broken && !vm.params.moved() {
		return nil
	}
	return vm.rebuild()
}

// compile lowers the graph and runs the passes. A panic in them is an error.
func (vm *VM) compile(watch func(pass string, p *program.Program) error) (graph *lower.Graph, err error) {
	err = guard.Own("the compiler", func() (err error) { graph, err = vm.compileUnguarded(watch); return err })
	return graph, err
}

func (vm *VM) compileUnguarded(watch func(pass string, p *program.Program) error) (*lower.Graph, error) {
	wanted := vm.config.wants()
	wanted.Train, wanted.Shared = vm.trainer.lowered(), vm.params.shared()
	if vm.graph != nil {
		wanted.Moving = vm.graph.Moving()
	}
	graph, err := lower.New(vm.source, wanted)
	if err != nil {
		return nil, err
	}
	target := vm.target
	if s := vm.params.store; s != nil {
		target.Workspace = func(bytes int64) (program.Memory, error) { return s.workspace(bytes, vm.config.workspaceMax) }
		target.Halves = s.half
		if watch != nil { // the program does not run
			target.Workspace = func(int64) (program.Memory, error) { return vm.params.work, nil }
			target.Halves = func(home program.Memory, _ kernels.Dtype) (program.Memory, error) { return home, nil }
		}
	}
	run := passes.RunPlain
	if vm.config.passes != nil {
		run = vm.config.passes
	}
	return graph, run(graph.Program, target, watch)
}

// onlyKernels returns an error that names the ops that would run on the host because they have no kernel.
func onlyKernels(p *program.Program) error {
	var names []string
	for _, in := range p.Instrs {
		if h, ok := in.Op.(program.Host); ok && h.Reason != "" {
			names = append(names, fmt.Sprintf("node %s, op %v: %s", in.Out[0].Name, h.Op, h.Reason))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("no kernel for %d of the ops, and Strict is set: %s", len(names), strings.Join(names, "; "))
}

// Reset does nothing: a VM can always run again. It exists for programs written for Gorgonia's tape machine.
func (vm *VM) Reset() {}

// Close releases the VM's device memory; values on the host and in a [Store] stay. With [Train] it first pulls the learnables.
// Further calls do nothing.
func (vm *VM) Close() error {
	if vm == nil || vm.exec == nil {
		return nil
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.closed {
		return nil
	}
	if s := vm.params.store; s != nil {
		unlock, _ := s.lock(context.Background())
		defer unlock()
	}
	newer, failed := vm.params.newer()
	if len(newer) > 0 {
		release, err := vm.nodes.claim()
		if err != nil {
			return fmt.Errorf("cudaops: Close: %w", err)
		}
		defer release()
	}
	vm.closed = true
	vm.cleanup.Stop()
	var err error
	if len(newer) > 0 {
		if err = vm.mend(); err == nil {
			err = vm.params.pull(newer)
		}
	}
	for _, l := range vm.lists {
		l.close()
	}
	errs := []error{failed, err, vm.exec.Close(), vm.tracer.end()}
	if s := vm.params.store; s != nil {
		errs = append(errs, s.part(vm.params))
	}
	return failure("cudaops: Close", driver.Join(errs...))
}
