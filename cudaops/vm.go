package cudaops

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/hostblas"
	"github.com/stheno-ml/stheno/internal/hostmem"
	"gorgonia.org/gorgonia"
)

// VM runs an expression graph: ops that have kernels on its device, the others
// on the host, with the copies that they need between the two.
//
// It is a [gorgonia.VM]. After RunAll these values are on the host, as after a
// run of Gorgonia's tape machine: the roots of the graph, the cost of
// [gorgonia.Grad], the nodes of [gorgonia.Read] (also in their variables), the
// gradients of inputs ([gorgonia.Node.Grad]) and the nodes of [Keep]. Other nodes' values may be
// those of an earlier run or nil. [gorgonia.Grad] makes derivatives by inputs that it was
// not asked for, too: roots of the graph that are not computed unless they are read
// or kept, or the graph has several costs. A value bound to a node is new in every run
// and shares its memory with no other; a variable of Read is filled in place
// if it has a value already. Gradients are those of the last run: they are
// added to those of earlier ones under [AddGradients] alone. The gradient of an input, [gorgonia.Node.Grad], and the
// value of its derivative, [gorgonia.Node.Deriv], share no memory either: solvers zero
// the first and leave the second.
//
// Inputs are copied to the device in every run, so that they may be changed in
// place or by [gorgonia.Let] between runs. The learnables of [Train] and the inputs of
// [Resident] are not. The
// running mean and variance of a [gorgonia.BatchNormOp] are: a run that trains leaves
// them in the op, where Stats finds them.
//
// A slice that [gorgonia.UnsafeLet] sets is that of the next run. The first one that an op gets has the graph compiled
// again, with a copy of the slice's elements in place of a view; later ones cost a run nothing. A slice has as many
// elements as the node's shape, all within the tensor.
//
// Ops that train in one way and evaluate in another, such as dropout, do as their
// SetTraining determines when a run begins, and train if it was never called; the first run after a change
// compiles the graph again. Under [EvalMode] they evaluate. No VM calls SetTraining, as a tape machine
// does when it is made. Random numbers are others in every run: see [Seed].
//
// Several VMs may run at once. One VM is for one goroutine at a time: others
// wait. The graph's nodes belong to it while it runs: a run of another VM that would read
// what it writes, or write what it reads, is an error.
//
// An op that a run calls may ask the VM for its Report, its Memory and its Device. All other
// methods but Stage wait for the end of the run.
type VM struct {
	mu       sync.Mutex
	source   *gorgonia.ExprGraph
	config   config
	target   passes.Target
	device   string // the backend's name
	why      string // it is the host under OnAny
	products string // the library that multiplies matrices on the host
	graph    *lower.Graph
	boundary *boundary
	trainer  *trainer // nil without Train
	tracer   *tracer  // nil without Trace
	resident residents
	every    int // one run in this many hands its results to the host
	exec     *exec.Executable
	cleanup  runtime.Cleanup
	nodes    *footprint
	shown    atomic.Pointer[shown] // for those who ask while it runs
	seed     uint64                // of random numbers
	next     int                   // number of the next run, from 0 on, or from that of a state that was set
	runs     int                   // that ended without error
	began    time.Time             // the last of them
	took     time.Duration
	broken   bool // rebuild failed
	closed   bool
}

var _ gorgonia.VM = (*VM)(nil)

// NewVM makes a machine that runs g: everything is planned, all memory of the
// device reserved and all kernels loaded here. Nodes added to g later are not
// run.
//
// It runs on CUDA device 0 unless an option chooses another. Without such a
// device the error wraps [ErrNoDevice].
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
	if err := errors.Join(c.checkPrecisions(), c.checkWatches()); err != nil {
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

// open returns the backend that the options ask for and, where it is the host for want
// of a device, why.
func open(c *config) (b exec.Backend, why string, err error) {
	if !c.host {
		g, err := exec.OpenGPU(c.device)
		if err == nil {
			return g, "", nil
		}
		if !c.auto || !errors.Is(err, driver.ErrNoDevice) {
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

// Device returns the name of the device that runs kernels; "host backend" if the host
// does, and then, under [OnAny], why.
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
	vm := &VM{source: g, config: *c, every: 1, target: passes.Target{Device: b.Device()}, device: b.Name(), seed: rand.Uint64()}
	if len(c.every) > 0 {
		vm.every = c.every[0]
	}
	if c.seed != nil {
		vm.seed = *c.seed
	}
	var err error
	if vm.trainer, err = newTrainer(c); err != nil {
		return nil, err
	}
	vm.resident.copies = vm.copies(len(c.resident))
	if vm.trainer != nil {
		vm.trainer.copies = vm.copies(len(vm.trainer.learnables))
	}
	if vm.tracer, err = newTracer(c); err != nil {
		return nil, err
	}
	if err := vm.build(b); err != nil {
		return nil, err
	}
	return vm, nil
}

// build compiles the graph as it is and makes it ready to run on a backend.
func (vm *VM) build(b exec.Backend) error {
	if _, ok := b.(exec.AsyncCopier); ok && vm.trainer != nil && !vm.config.timed && vm.tracer == nil {
		vm.target.DoubleBufferMin = exec.CopyLimit
	}
	graph, err := vm.compile(nil)
	if err != nil {
		return err
	}
	if vm.config.strict {
		if err := onlyKernels(graph.Program); err != nil {
			return err
		}
	}
	if err := hostmem.Check(exec.OnHost(graph.Program, b.Device())); err != nil {
		return fmt.Errorf("memory for the graph's values on the host: %w", err)
	}
	e, err := exec.New(graph.Program, b, vm.config.timed || vm.tracer != nil)
	if err != nil {
		return err
	}
	if err := vm.trainer.built(e, graph.Trained); err != nil {
		return err
	}
	vm.resident.built(graph)
	vm.graph, vm.boundary, vm.exec, vm.broken = graph, newBoundary(graph), e, false
	vm.products = productsBy(graph.Program, b)
	vm.nodes = newFootprint(graph, vm.trainer.nodes())
	vm.show()
	// The executable does not point to the VM, so a VM that is dropped without
	// Close still releases its memory.
	vm.cleanup = runtime.AddCleanup(vm, func(e *exec.Executable) { e.Close() }, e)
	return nil
}

// copies returns a list of n copies on the device, which ends with the VM.
func (vm *VM) copies(n int) *deviceCopies {
	c := newDeviceCopies(n)
	runtime.AddCleanup(vm, (*deviceCopies).close, c)
	return c
}

// rebuild builds again if, since the graph was compiled, gorgonia.UnsafeLet set the slice of an op for the first time,
// or SetTraining whether an op trains. Nothing is lost: ops keep their own states, and those of
// training are saved.
func (vm *VM) rebuild() error {
	if !vm.broken && !vm.graph.Stale() {
		return nil
	}
	if !vm.broken {
		if err := vm.trainer.save(vm.exec); err != nil {
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

// mend builds again if that has failed: there is no device memory then.
func (vm *VM) mend() error {
	if !vm.broken {
		return nil
	}
	return vm.rebuild()
}

// compile lowers the graph and takes it through the passes.
func (vm *VM) compile(watch func(pass string, p *program.Program) error) (*lower.Graph, error) {
	wanted := vm.config.wants()
	wanted.Train = vm.trainer.lowered()
	if vm.graph != nil {
		wanted.Moving = vm.graph.Moving()
	}
	graph, err := lower.New(vm.source, wanted)
	if err != nil {
		return nil, err
	}
	return graph, passes.Run(graph.Program, vm.target, watch)
}

// onlyKernels returns an error that names the ops which would run on the host for
// want of a kernel.
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

// Reset does nothing: a VM can be run again at any time. It is there for
// programs written for Gorgonia's tape machine.
func (vm *VM) Reset() {}

// Close releases the VM's device memory; values on the host stay. With [Train], the
// learnables get the values that they have on the device. Further calls do nothing.
func (vm *VM) Close() error {
	if vm == nil || vm.exec == nil {
		return nil
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.closed {
		return nil
	}
	newer, failed := vm.trainer.newer()
	if len(newer) > 0 {
		release, err := vm.nodes.claim()
		if err != nil {
			return fmt.Errorf("cudaops: Close: %w", err)
		}
		defer release()
	}
	vm.closed = true
	vm.cleanup.Stop()
	err := vm.mend()
	if err == nil && len(newer) > 0 {
		err = vm.trainer.pull(vm.exec, newer)
	}
	vm.trainer.close()
	vm.resident.copies.close()
	if err := driver.Join(failed, err, vm.exec.Close(), vm.tracer.end()); err != nil {
		return fmt.Errorf("cudaops: Close: %w", err)
	}
	return nil
}
