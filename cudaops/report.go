package cudaops

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/hostblas"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Report describes the last run of a VM.
type Report struct {
	Device string // the device that runs kernels, or "host backend"
	Why    string // why OnAny selected the host, or ""
	Solver string // where the steps of Train are made, and why if on the host
	// Evaluates reports whether ops evaluate by [EvalMode] or [Inference].
	Evaluates bool
	// Products names the BLAS library for products on the host, and why it is gonum's. It is "" on a GPU and without
	// such products.
	Products string
	Nodes    []NodeReport  // in the order of the graph
	Steps    []Step        // in the order of the run
	Runs     int           // runs without error
	Time     time.Duration // wall time of the last run without error
	Peak     int64         // maximum bytes of values and scratch memory alive at once, each rounded up to 256
	Arena    int64         // bytes of device memory allocated: the peak and gaps; with In partly shared with the Store's other VMs
}

// NodeReport describes a VM's work for one node.
type NodeReport struct {
	Name  string
	Shape tensor.Shape
	// Where is the origin of the node's value: Report.Device, "host" (the op's Do), "alias" (a view of another value),
	// "input", "constant", "state" (a learnable of Train, a parameter of In or an input of Resident, on the device between runs),
	// "statement", or "unneeded" for a node that no result depends on.
	Where string
	// Stored is the element type in memory, such as f32, or bf16 or f16 under [Mixed]; "" for a value that is not in memory.
	Stored  string
	Kernels []string // entry points in launch order; they may compute other nodes too
	In, Out int64    // bytes copied to and from the device
	// Note is a remark, or "": about a LogSoftMax, which gorgonia.Log of a SoftMax makes of the SoftMax's node, and about the last product of attention that is
	// written as products and a SoftMax.
	Note string
	// Time is the time of the step that computes the node; on the device it needs [Timed]. Only the first node of a step
	// has a time.
	Time time.Duration
}

// Report describes the last run without error: where each node ran, the copies and the times.
func (vm *VM) Report() Report {
	if vm == nil || vm.exec == nil {
		return Report{}
	}
	return vm.report(vm.shown.Load())
}

func (vm *VM) report(s *shown) Report {
	r := newReport(vm.device, s.graph)
	r.Why, r.Solver, r.Products, r.Evaluates = s.why, vm.trainer.where(vm.device), s.products, vm.config.eval
	if s.runs > 0 {
		r.measured(s.graph, vm.target.Device, s.times, s.runs, s.took)
	}
	return r
}

// shown is an immutable record of a VM after its last run.
type shown struct {
	device        string
	graph         *lower.Graph
	why, products string
	runs          int
	began         time.Time
	took          time.Duration
	finished      bool            // the run had results
	times, starts []time.Duration // by instruction of the program

	exec     *exec.Executable
	boundary *boundary
}

// show updates the record that Report and other methods read.
func (vm *VM) show() *shown {
	s := &shown{device: vm.device, graph: vm.graph, why: vm.why, products: vm.products, runs: vm.runs, began: vm.began, took: vm.took,
		finished: !vm.exec.Pending(), times: slices.Clone(vm.exec.Times), exec: vm.exec, boundary: vm.boundary}
	if vm.tracer != nil {
		s.starts = slices.Clone(vm.exec.Starts)
	}
	vm.shown.Store(s)
	return s
}

// productsBy names the library of a program's matrix products on the host, or returns "" if it has none.
func productsBy(p *program.Program, b exec.Backend) string {
	host, is := b.(*exec.HostBackend)
	if !is {
		return ""
	}
	for _, in := range p.Instrs {
		if in.Plan != nil && in.Plan.Multiplies() {
			return hostblas.Describe(host.BLAS)
		}
	}
	return ""
}

// logSoftMax is the note of a LogSoftMax. The node does not tell whether gorgonia.LogSoftMax made it.
const logSoftMax = "a LogSoftMax: by gorgonia.LogSoftMax, or a SoftMax that gorgonia.Log has changed"

// stepwise is the note of attention in steps.
const stepwise = "attention by MatMul, SoftMax and MatMul: ops.Attention and nn.Attention compute the same without weights in memory"

// attends reports whether an instruction multiplies the SoftMax of a product: attention in steps.
func attends(in *program.Instr) bool {
	product, ok := program.ProductOf(in.Op)
	if !ok || product.A.Trans || len(in.In) == 0 { // with a transpose it is a gradient
		return false
	}
	weights := in.In[0].Base.Def
	soft := slices.ContainsFunc(weights.Nodes, func(n *gorgonia.Node) bool {
		_, log, derivative, ok := internal.SoftMax(n.Op())
		own, isOwn := n.Op().(interface{ SoftMax() bool })
		return ok && !log && !derivative || isOwn && own.SoftMax()
	})
	return soft && slices.ContainsFunc(weights.In, func(v *program.Value) bool {
		_, ok := program.ProductOf(v.Base.Def.Op)
		return ok
	})
}

// newReport returns the report of a graph that has not run.
func newReport(device string, g *lower.Graph) Report {
	p := g.Program
	r := Report{Device: device, Nodes: make([]NodeReport, len(g.Nodes)), Steps: steps(device, p), Peak: p.Peak, Arena: p.Arena + p.Workspace}
	needed := map[*program.Instr]bool{}
	for in := range p.All() {
		needed[in] = true
	}
	for i, n := range g.Nodes {
		r.Nodes[i] = NodeReport{Name: internal.Name(n.Node), Shape: n.Shape(), Where: where(device, n)}
		if n.Value != nil && !needed[n.Value.Base.Def] {
			r.Nodes[i].Where = "unneeded"
		}
		if _, log, derivative, ok := internal.SoftMax(n.Op()); ok && log && !derivative {
			r.Nodes[i].Note = logSoftMax
		}
		if n.Value != nil && needed[n.Value.Base.Def] && n.Value.Numeric {
			r.Nodes[i].Stored = n.Value.Dtype.String()
		}
	}
	nodeReports := r.byNode(g)
	for _, in := range p.Instrs {
		if attends(in) {
			nodeReports[in.Nodes[0]].Note = stepwise
		}
		if in.Plan == nil {
			continue
		}
		for _, n := range in.Nodes {
			for _, l := range in.Plan.Launches {
				nodeReports[n].Kernels = append(nodeReports[n].Kernels, l.Kernel.Entry)
			}
		}
	}
	return r
}

// byNode returns the report's entries, keyed by node.
func (r *Report) byNode(g *lower.Graph) map[*gorgonia.Node]*NodeReport {
	byNode := make(map[*gorgonia.Node]*NodeReport, len(g.Nodes))
	for i, n := range g.Nodes {
		byNode[n.Node] = &r.Nodes[i]
	}
	return byNode
}

// where returns the origin of a node's value.
func where(device string, n lower.Node) string {
	v := n.Value
	switch {
	case v == nil:
		return "statement"
	case n.Op() == nil:
		return v.Base.Def.Op.String() // input, state
	}
	switch v.Def.Op.(type) {
	case program.Kernel, program.Map, program.Rows, program.Concat, program.Collective:
		return device
	case program.Host:
		return "host"
	}
	return v.Def.Op.String() // alias, constant
}

// measured adds the copies of a run and its times.
func (r *Report) measured(g *lower.Graph, dev kernels.Device, times []time.Duration, runs int, took time.Duration) {
	timed(r.Steps, g.Program, times, dev)
	r.Runs, r.Time = runs, took
	nodeReports := r.byNode(g)
	for i, in := range g.Program.Instrs {
		n := nodeReports[in.Nodes[0]]
		switch in.Op.(type) {
		case program.Copy:
			if out := in.Out[0]; out.Space == program.OnDevice {
				n.In += out.Bytes()
			} else {
				n.Out += out.Bytes()
			}
		case program.Host, program.Kernel, program.Map, program.Rows, program.Concat, program.Collective:
			n.Time += times[i]
		}
	}
}

// In returns the number of bytes copied to the device in the last run.
func (r Report) In() (bytes int64) {
	for _, n := range r.Nodes {
		bytes += n.In
	}
	return bytes
}

// Out returns the number of bytes copied from the device in the last run.
func (r Report) Out() (bytes int64) {
	for _, n := range r.Nodes {
		bytes += n.Out
	}
	return bytes
}

// String returns a table with one step per line, the notes of nodes, and totals.
func (r Report) String() string {
	var b strings.Builder
	if r.Why != "" {
		fmt.Fprintf(&b, "%s: %s\n", r.Device, r.Why)
	}
	if r.Solver != "" {
		fmt.Fprintln(&b, r.Solver)
	}
	if r.Products != "" {
		fmt.Fprintf(&b, "products of matrices by %s\n", r.Products)
	}
	printSteps(&b, r.Steps)
	for _, d := range []kernels.Dtype{expr.BF16, expr.F16} {
		half := 0
		for _, n := range r.Nodes {
			if n.Stored == d.String() {
				half++
			}
		}
		if half > 0 {
			fmt.Fprintf(&b, "nodes stored in %v: %d\n", d, half)
		}
	}
	r.printNotes(&b)
	device, host := 0, 0
	for _, s := range r.Steps {
		if s.Where == "host" {
			host++
		} else {
			device++
		}
	}
	fmt.Fprintf(&b, "steps: %d by kernels on %s, %d by ops' own code on the host; copied %s in, %s out; run %d took %v; memory %s (%s alive at once)\n",
		device, r.Device, host, size(r.In()), size(r.Out()), r.Runs, r.Time.Round(time.Microsecond), size(r.Arena), size(r.Peak))
	return b.String()
}

// printNotes writes the notes of nodes.
func (r Report) printNotes(w io.Writer) {
	for _, n := range r.Nodes {
		if n.Note != "" {
			fmt.Fprintf(w, "node %s: %s\n", n.Name, n.Note)
		}
	}
}

func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func amount(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return size(bytes)
}

func size(bytes int64) string {
	switch {
	case bytes < 1<<10:
		return fmt.Sprintf("%d B", bytes)
	case bytes < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	case bytes < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
}

func duration(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.Round(100 * time.Nanosecond).String()
}
