package cudaops

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// VM runs an expression graph: ops that have kernels on its device, the others
// on the host, with the copies that they need between the two.
//
// It is a [gorgonia.VM]. After RunAll these values are on the host, as after a
// run of Gorgonia's tape machine: the roots of the graph, the cost of
// [gorgonia.Grad], the nodes of [gorgonia.Read] (also in their variables), the
// gradients of inputs ([gorgonia.Node.Grad]) and the nodes of [Keep]. Other nodes' values may be
// those of an earlier run or nil. A value bound to a node is new in every run
// and shares its memory with no other; a variable of Read is filled in place
// if it has a value already. Gradients are those of the last run: they are not
// added to those of earlier ones. An input's gradient and the value of the node
// that [gorgonia.Node.Deriv] returns share no memory either: a solver's step zeroes
// the first and leaves the second.
//
// Inputs are copied to the device in every run, so that they may be changed in
// place or by [gorgonia.Let] between runs.
//
// Several VMs may run at once. One VM is for one goroutine at a time: others
// wait. The graph's nodes belong to it while it runs.
type VM struct {
	mu      sync.Mutex
	backend backend
	program *program
	cleanup runtime.Cleanup
	report  Report
	timed   bool
	closed  bool
}

var _ gorgonia.VM = (*VM)(nil)

// Option is an option of [NewVM].
type Option func(*config)

type config struct {
	device        int
	auto, host    bool
	strict, timed bool
	eval          bool
	keep          []*gorgonia.Node
}

// OnDevice runs kernels on CUDA device i, numbered from 0 (the default).
func OnDevice(i int) Option { return func(c *config) { c.device, c.auto, c.host = i, false, false } }

// OnHost runs the Go bodies of the kernels instead of a GPU.
func OnHost() Option { return func(c *config) { c.auto, c.host = false, true } }

// OnAny runs kernels on CUDA device 0 if there is one that can be used, else as
// [OnHost].
func OnAny() Option { return func(c *config) { c.device, c.auto, c.host = 0, true, false } }

// Strict makes it an error of [NewVM] if an op of the graph has no kernel and
// would run on the host. Inputs, constants, statements, random values and
// reshapes need no kernel.
func Strict() Option { return func(c *config) { c.strict = true } }

// Keep adds nodes whose values are wanted on the host after a run.
func Keep(nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.keep = append(c.keep, nodes...) }
}

// Timed measures each device step, by events in its stream. Without it
// [VM.Report] has the time of host steps and of the whole run.
func Timed() Option { return func(c *config) { c.timed = true } }

// EvalMode switches ops such as dropout from training to evaluation.
func EvalMode() Option { return func(c *config) { c.eval = true } }

// NewVM makes a machine that runs g: everything is planned, all memory of the
// device reserved and all kernels loaded here. Nodes added to g later are not
// run.
//
// It runs on CUDA device 0 unless an option says otherwise. Without such a
// device the error wraps [ErrNoDevice].
func NewVM(g *gorgonia.ExprGraph, opts ...Option) (*VM, error) {
	c := &config{}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("cudaops: NewVM got a nil option")
		}
		o(c)
	}
	if g == nil || len(g.AllNodes()) == 0 {
		return nil, fmt.Errorf("cudaops: NewVM got a graph without nodes")
	}
	b, err := open(c)
	if err != nil {
		return nil, fmt.Errorf("cudaops: %w", err)
	}
	vm, err := newVM(g, c, b)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cudaops: %w", err), b.free())
	}
	return vm, nil
}

// open finds the backend that the options ask for.
func open(c *config) (backend, error) {
	if c.host {
		return &host{}, nil
	}
	g, err := openGPU(c.device)
	if c.auto && errors.Is(err, driver.ErrNoDevice) {
		return &host{}, nil
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

func newVM(g *gorgonia.ExprGraph, c *config, b backend) (*VM, error) {
	p, err := compile(g, c, b.device())
	if err != nil {
		return nil, err
	}
	if err := b.alloc(p.arena); err != nil {
		return nil, fmt.Errorf("memory for the graph's values on %s: %w", b.name(), err)
	}
	steps := 0
	for _, s := range p.steps {
		if s.plan == nil {
			continue
		}
		in := make([]span, len(s.value.in))
		for i, v := range s.value.in {
			in[i] = v.base.buffer.span
		}
		if s.run, err = b.bind(s.plan, in, s.value.buffer.span, s.scratch.span); err != nil {
			return nil, fmt.Errorf("node %s: %w", s.value.node.Name(), err)
		}
		steps++
	}
	for _, v := range p.constants {
		if err := upload(b, v); err != nil {
			return nil, err
		}
	}
	if err := b.sync(); err != nil {
		return nil, err
	}
	if c.timed {
		if err := b.clock(2 * steps); err != nil {
			return nil, err
		}
	}
	for _, v := range p.values {
		if op, ok := v.node.Op().(gorgonia.TrainModeOp); ok {
			if err := op.SetTraining(!c.eval); err != nil {
				return nil, fmt.Errorf("node %s: %w", v.node.Name(), err)
			}
		}
	}
	vm := &VM{backend: b, program: p, timed: c.timed, report: newReport(b.name(), p)}
	// The backend does not point to the VM, so a VM that is dropped without
	// Close still gives its memory back.
	vm.cleanup = runtime.AddCleanup(vm, func(b backend) { b.free() }, b)
	return vm, nil
}

// RunAll runs the graph once. Nothing on the host has changed if it gives an
// error.
func (vm *VM) RunAll() (err error) {
	if vm == nil || vm.program == nil {
		return fmt.Errorf("cudaops: RunAll of a VM that NewVM did not make")
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.closed {
		return fmt.Errorf("cudaops: RunAll after Close")
	}
	start := time.Now()
	vm.report.reset()
	defer vm.drop()
	if err := vm.run(); err != nil {
		// What is under way still uses host memory.
		return fmt.Errorf("cudaops: %w", errors.Join(err, vm.backend.sync()))
	}
	vm.report.Time = time.Since(start)
	vm.report.Runs++
	return nil
}

// drop forgets the host values of a run.
func (vm *VM) drop() {
	for _, v := range vm.program.values {
		if v.kind != constant {
			v.host = nil
		}
	}
	for _, o := range vm.program.outputs {
		o.fresh = nil
	}
}

func (vm *VM) run() error {
	p := vm.program
	for _, v := range p.values {
		if v.kind == input {
			if err := v.fetch(); err != nil {
				return err
			}
		}
	}
	mark := 0
	for _, s := range p.steps {
		var err error
		if s.plan == nil {
			err = vm.hostStep(s)
		} else {
			err = vm.deviceStep(s, &mark)
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", s.value.node.Name(), err)
		}
	}
	if err := vm.collect(); err != nil {
		return err
	}
	if vm.timed {
		mark = 0
		for _, s := range p.steps {
			if s.plan == nil {
				continue
			}
			d, err := vm.backend.elapsed(mark, mark+1)
			if err != nil {
				return err
			}
			s.value.report.Time = d
			mark += 2
		}
	}
	return vm.deliver()
}

// fetch takes and checks the value of an input.
func (v *value) fetch() error {
	h := v.node.Value()
	if h == nil {
		return fmt.Errorf("input %s has no value: set it with gorgonia.Let", v.node.Name())
	}
	if !v.numeric {
		v.host = h
		return nil
	}
	if want := values.Tensor(v.dtype); h.Dtype() != want || !h.Shape().Eq(v.shape) {
		return fmt.Errorf("input %s has a value of %v and shape %v, want %v and shape %v", v.node.Name(), h.Dtype(), h.Shape(), want, v.shape)
	}
	v.host = values.Compact(h)
	return nil
}

func (vm *VM) deviceStep(s *step, mark *int) error {
	for _, v := range s.uploads {
		if err := upload(vm.backend, v); err != nil {
			return err
		}
		v.report.In += v.bytes()
	}
	if !vm.timed {
		return s.run()
	}
	if err := vm.backend.mark(*mark); err != nil {
		return err
	}
	if err := s.run(); err != nil {
		return err
	}
	*mark += 2
	return vm.backend.mark(*mark - 1)
}

func upload(b backend, v *value) error {
	if v.host == nil {
		return fmt.Errorf("node %s has no value", v.node.Name())
	}
	m, err := values.Bytes(v.host)
	if err != nil {
		return fmt.Errorf("node %s has %w", v.node.Name(), err)
	}
	if v.host.Dtype() != values.Tensor(v.dtype) || int64(len(m)) != v.bytes() {
		return fmt.Errorf("node %s has a value of %v and shape %v, want %v and shape %v",
			v.node.Name(), v.host.Dtype(), v.host.Shape(), values.Tensor(v.dtype), v.shape)
	}
	return b.upload(v.buffer.span, m)
}

// download makes a host value of v's memory on the device.
func (vm *VM) download(v *value) (gorgonia.Value, error) {
	h, m := values.New(v.dtype, v.shape)
	v.report.Out += v.bytes()
	return h, vm.backend.download(m, v.base.buffer.span)
}

func (vm *VM) hostStep(s *step) (err error) {
	for _, v := range s.downloads {
		if v.host, err = vm.download(v); err != nil {
			return err
		}
	}
	if len(s.downloads) > 0 {
		if err := vm.backend.sync(); err != nil {
			return err
		}
	}
	start := time.Now()
	in := make([]gorgonia.Value, len(s.value.in))
	for i, v := range s.value.in {
		if in[i], err = v.onTheHost(); err != nil {
			return err
		}
	}
	out, err := do(s.value.node.Op(), in...)
	s.value.host = values.Compact(out)
	s.value.report.Time = time.Since(start)
	return err
}

// onTheHost is the value as an argument of a host op. A reshape is done here,
// where it is needed.
func (v *value) onTheHost() (gorgonia.Value, error) {
	if v.kind != alias {
		return v.host, nil
	}
	h, err := v.in[0].onTheHost()
	if err != nil {
		return nil, err
	}
	return do(v.node.Op(), h)
}

// do runs an op on the host. Ops of Gorgonia panic on what they cannot do.
func do(op gorgonia.Op, in ...gorgonia.Value) (out gorgonia.Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("op %v panicked: %v", op, r)
		}
	}()
	if out, err = op.Do(in...); err == nil && out == nil {
		err = fmt.Errorf("op %v gave no value", op)
	}
	return out, err
}

// collect makes new host values of all outputs and waits for them.
func (vm *VM) collect() (err error) {
	for _, o := range vm.program.outputs {
		v := o.value
		if v.base.host != nil {
			if o.fresh, err = fresh(v.base.host, v.node.IsScalar(), v.shape); err != nil {
				err = fmt.Errorf("node %s: %w", v.node.Name(), err)
			}
		} else {
			o.fresh, err = vm.download(v)
		}
		if err != nil {
			return err
		}
	}
	return vm.backend.sync()
}

// fresh copies a value: row-major, in memory of its own, and in the node's
// shape, from which ops of Gorgonia deviate at times.
func fresh(v gorgonia.Value, scalar bool, shape tensor.Shape) (gorgonia.Value, error) {
	dt, ok := values.Dtype(v.Dtype())
	if !ok {
		return gorgonia.CloneValue(v)
	}
	m, err := values.Bytes(v)
	if err != nil {
		return gorgonia.CloneValue(v)
	}
	if !scalar && len(shape) == 0 || int64(shape.TotalSize())*dt.Size() != int64(len(m)) {
		shape = v.Shape()
	}
	out, to := values.New(dt, shape)
	copy(to, m)
	return out, nil
}

// deliver hands the outputs to the user: the only place where a run changes
// anything on the host.
func (vm *VM) deliver() error {
	for _, o := range vm.program.outputs {
		if o.read == nil {
			if err := set(o.value.node, o.fresh); err != nil {
				return err
			}
			continue
		}
		if dt, ok := values.Dtype(o.fresh.Dtype()); ok {
			if to, ok := values.Own(*o.read, dt, o.fresh.Shape()); ok {
				from, err := values.Bytes(o.fresh)
				if err != nil {
					return err
				}
				copy(to, from)
				continue
			}
		}
		*o.read = o.fresh
	}
	for _, g := range vm.program.gradients {
		n, d := g.input.node, g.derivative.node.Value()
		if d == nil {
			continue
		}
		own, err := copyLike(n.Value(), d)
		if err != nil {
			return fmt.Errorf("gradient of %s: %w", n.Name(), err)
		}
		if err := apply(n, gorgonia.WithGrad(own)); err != nil {
			return fmt.Errorf("gradient of %s: %w", n.Name(), err)
		}
	}
	return nil
}

// copyLike copies a gradient to memory of its own, with the type and shape of the
// input's value: solvers combine the two in place.
func copyLike(value, gradient gorgonia.Value) (gorgonia.Value, error) {
	own, err := fresh(gradient, value.Shape().IsScalar(), value.Shape())
	if err != nil {
		return nil, err
	}
	if _, dense := value.(*tensor.Dense); dense && value.Shape().IsScalar() {
		return tensor.New(tensor.FromScalar(own.Data())), nil
	}
	return own, nil
}

// set binds a value to a node.
func set(n *gorgonia.Node, v gorgonia.Value) error {
	if gorgonia.UnsafeLet(n, v) == nil {
		return nil
	}
	// The node has no shape, or one that its op does not keep to.
	if err := apply(n, gorgonia.WithValue(v)); err != nil {
		return fmt.Errorf("node %s: %w", n.Name(), err)
	}
	return nil
}

// apply applies Gorgonia's construction option to a node; such options panic
// where they do not fit.
func apply(n *gorgonia.Node, o gorgonia.NodeConsOpt) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	o(n)
	return nil
}

// Reset does nothing: a VM can be run again at any time. It is there for
// programs written for Gorgonia's tape machine.
func (vm *VM) Reset() {}

// Close gives the VM's device memory back; values on the host stay. Further
// calls do nothing.
func (vm *VM) Close() error {
	if vm == nil || vm.program == nil {
		return nil
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.closed {
		return nil
	}
	vm.closed = true
	vm.cleanup.Stop()
	if err := vm.backend.free(); err != nil {
		return fmt.Errorf("cudaops: Close: %w", err)
	}
	return nil
}

// Report says where each node ran, what was copied and how long it took in the
// last run.
func (vm *VM) Report() Report {
	if vm == nil {
		return Report{}
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	r := vm.report
	r.Nodes = slices.Clone(r.Nodes)
	return r
}
