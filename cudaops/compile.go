package cudaops

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	internals "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// kind is how a node gets its value.
type kind uint8

const (
	input     kind = iota // the user sets it
	constant              // part of the graph
	statement             // Read and Set: no value of its own
	alias                 // a reshape: another node's memory under another shape
	onDevice              // a plan on the backend
	onHost                // the op's Do
)

// A value is what the VM knows of one node.
type value struct {
	node   *gorgonia.Node
	kind   kind
	in     []*value
	base   *value        // whose memory it is: itself, or for an alias another
	dtype  kernels.Dtype // if numeric
	shape  tensor.Shape
	buffer *buffer // its memory in the arena, nil if it is never there
	report *NodeReport
	// host is the value on the host, if it is there in this run.
	host gorgonia.Value
	// numeric: of a type that kernels know and of known shape, so that it can be on
	// the device.
	numeric bool
	onHost  bool // while compiling: the host has it
}

func (v *value) elements() int64 { return int64(v.shape.TotalSize()) }

func (v *value) bytes() int64 { return v.elements() * v.dtype.Size() }

// A step runs one op, after the transfers that it needs.
type step struct {
	value     *value
	plan      *kernels.Plan // nil on the host
	scratch   *buffer
	uploads   []*value
	downloads []*value
	run       func() error // the plan on the backend
}

// An output is a value that the user finds on the host after a run: bound to
// its node, or read into a variable.
type output struct {
	value *value
	read  *gorgonia.Value // nil: bound to the node
	fresh gorgonia.Value  // of this run
}

// A gradient is that of an input. It has memory of its own beside the value of the
// derivative's node: solvers write into gradients, and several inputs can have one
// derivative.
type gradient struct{ input, derivative *value }

// A program is a graph made ready to run on a device.
type program struct {
	values    []*value // in topological order, inputs first
	steps     []*step
	outputs   []*output
	gradients []gradient
	buffers   []*buffer
	constants []*value // those that the device needs
	peak      int64
	arena     int64
}

// compile decides where each node runs, what is copied when, and where in the
// arena everything lies.
func compile(g *gorgonia.ExprGraph, c *config, dev kernels.Device) (*program, error) {
	sorted, err := internals.Sort(g)
	if err != nil {
		return nil, err
	}
	slices.Reverse(sorted) // Sort gives users before what they use
	p := &program{}
	of := map[*gorgonia.Node]*value{}
	used := map[*value]bool{}
	var wanted []*value // in order, repetitions allowed
	var fallbacks []string
	for _, n := range sorted {
		v := &value{node: n}
		v.base = v
		children, err := internals.Children(n)
		if err != nil {
			return nil, err
		}
		for _, c := range children {
			v.in = append(v.in, of[c])
		}
		v.numeric, v.dtype, v.shape = describe(n)
		of[n] = v
		p.values = append(p.values, v)
		plan, err := v.classify(dev)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name(), err)
		}
		if v.kind != statement {
			for _, child := range v.in {
				used[child] = true
			}
		}
		switch v.kind {
		case constant:
			v.host, v.onHost = values.Compact(n.Value()), true
		case input:
			v.onHost = true
		case onDevice:
			p.deviceStep(v, plan)
		case onHost:
			p.hostStep(v)
			if len(v.in) > 0 {
				fallbacks = append(fallbacks, n.Name())
			}
		case statement:
			target, err := readTarget(n.Op())
			if err != nil {
				return nil, fmt.Errorf("node %s: %w", n.Name(), err)
			}
			if target != nil && len(v.in) == 1 {
				wanted = append(wanted, v.in[0])
				p.outputs = append(p.outputs, &output{value: v.in[0], read: target})
			}
		}
	}
	if c.strict && len(fallbacks) > 0 {
		return nil, fmt.Errorf("no kernel for %d of the ops, and Strict is set: %s", len(fallbacks), strings.Join(fallbacks, "; "))
	}
	for _, n := range c.keep {
		v := of[n]
		if v == nil || v.kind == statement {
			return nil, fmt.Errorf("Keep: %v is no value of this graph", n)
		}
		wanted = append(wanted, v)
	}
	for _, v := range p.values {
		if (!used[v] || isCost(v.node)) && v.kind != statement {
			wanted = append(wanted, v) // a root, or as good as one
		}
		if v.kind != input || v.node.Deriv() == nil {
			continue
		}
		if d := of[v.node.Deriv()]; d != nil {
			wanted = append(wanted, d)
			p.gradients = append(p.gradients, gradient{v, d})
		}
	}
	for _, v := range wanted {
		if v.kind != input && v.kind != constant && !slices.ContainsFunc(p.outputs, func(o *output) bool { return o.value == v && o.read == nil }) {
			p.outputs = append(p.outputs, &output{value: v})
		}
	}
	for _, o := range p.outputs {
		if b := o.value.base; !b.onHost {
			b.buffer.death = len(p.steps) // downloaded at the end
		}
	}
	for _, v := range p.constants {
		v.buffer.birth, v.buffer.death = 0, len(p.steps)
	}
	p.peak = livePeak(p.buffers)
	p.arena = place(p.buffers)
	return p, nil
}

// isCost says that gorgonia.Grad or Backpropagate began at the node: its
// derivative is the constant 1, or an input. It is no root of the graph if its
// own gradient uses it, as that of a square root does.
func isCost(n *gorgonia.Node) bool {
	d := n.Deriv()
	return n.Op() != nil && d != nil && (d.Op() == nil || n.IsScalar() && isConstant(d.Op()))
}

func isConstant(op gorgonia.Op) bool {
	_, ok := op.(interface{ Value() gorgonia.Value })
	return ok && op.Arity() == 0
}

// describe gives a node's element type and shape if kernels can take it.
func describe(n *gorgonia.Node) (numeric bool, dt kernels.Dtype, shape tensor.Shape) {
	var of tensor.Dtype
	switch t := n.Type().(type) {
	case tensor.Dtype:
		of = t
	case gorgonia.TensorType:
		of, _ = t.Of.(tensor.Dtype)
	}
	dt, numeric = values.Dtype(of)
	shape = n.Shape()
	return numeric && (n.IsScalar() || len(shape) > 0), dt, shape
}

// classify says how the node gets its value. The plan is that of an op that
// runs on the device.
func (v *value) classify(dev kernels.Device) (*kernels.Plan, error) {
	op := v.node.Op()
	if op == nil {
		v.kind = input
		return nil, nil
	}
	if isConstant(op) {
		v.kind = constant
		return nil, nil
	}
	v.kind = onHost
	switch gorgoniaOp(op) {
	case "letOp", "readOp":
		v.kind = statement
	case "reshapeOp":
		if len(v.in) == 1 && v.numeric && v.in[0].numeric && v.dtype == v.in[0].dtype && v.elements() == v.in[0].elements() {
			v.kind, v.base = alias, v.in[0].base
		}
	}
	planner, ok := op.(kernels.Planner)
	if v.kind != onHost || !ok {
		return nil, nil
	}
	v.kind = onDevice
	plan, err := planner.Plan(dev)
	if err != nil {
		return nil, err
	}
	if len(plan.Inputs) != len(v.in) {
		return nil, fmt.Errorf("its plan takes %d inputs, the node has %d", len(plan.Inputs), len(v.in))
	}
	for i, in := range v.in {
		if !in.numeric || in.bytes() != plan.Inputs[i] {
			return nil, fmt.Errorf("input %d is %v of shape %v, its plan wants %d bytes", i, in.node.Type(), in.shape, plan.Inputs[i])
		}
	}
	if !v.numeric || v.bytes() != plan.Out {
		return nil, fmt.Errorf("the node is %v of shape %v, its plan gives %d bytes", v.node.Type(), v.shape, plan.Out)
	}
	return plan, nil
}

func (p *program) buffer(bytes int64, birth int) *buffer {
	b := &buffer{span{0, bytes}, birth, birth}
	p.buffers = append(p.buffers, b)
	return b
}

// deviceStep adds a step that runs a plan. What it reads is uploaded right
// before its first use, so that it takes device memory no longer than needed.
func (p *program) deviceStep(v *value, plan *kernels.Plan) {
	s := &step{value: v, plan: plan}
	now := len(p.steps)
	for _, in := range v.in {
		b := in.base
		if b.buffer == nil {
			b.buffer = p.buffer(b.bytes(), now)
			if b.kind == constant {
				p.constants = append(p.constants, b)
			} else {
				s.uploads = append(s.uploads, b)
			}
		}
		b.buffer.death = now
	}
	v.buffer = p.buffer(plan.Out, now)
	s.scratch = p.buffer(plan.Scratch, now)
	p.steps = append(p.steps, s)
}

// hostStep adds a step that calls an op's Do. What it reads is downloaded once.
func (p *program) hostStep(v *value) {
	s := &step{value: v}
	for _, in := range v.in {
		if b := in.base; !b.onHost {
			b.onHost = true
			b.buffer.death = len(p.steps)
			s.downloads = append(s.downloads, b)
		}
	}
	v.onHost = true
	p.steps = append(p.steps, s)
}

// gorgoniaOp is the type name of an op of Gorgonia's own; the types of
// statements and shape ops are not exported.
func gorgoniaOp(op gorgonia.Op) string {
	t := reflect.TypeOf(op)
	if t.PkgPath() != reflect.TypeFor[gorgonia.Node]().PkgPath() {
		return ""
	}
	return t.Name()
}

// readTarget is the variable that a Read statement fills, nil for another
// statement. Gorgonia keeps it in an unexported field.
func readTarget(op gorgonia.Op) (*gorgonia.Value, error) {
	if gorgoniaOp(op) != "readOp" {
		return nil, nil
	}
	v := reflect.ValueOf(op)
	if v.Kind() != reflect.Struct || v.NumField() != 1 || v.Field(0).Type() != reflect.TypeFor[*gorgonia.Value]() {
		return nil, fmt.Errorf("this version of Gorgonia keeps the target of Read elsewhere")
	}
	return (*gorgonia.Value)(unsafe.Pointer(v.Field(0).UnsafePointer())), nil
}
