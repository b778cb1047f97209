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
	// Calibration is the name of the calibration of the device that the choice of kernels depends on, or "". Uncalibrated is the reason not to use
	// the file that has one, or "".
	Calibration, Uncalibrated string

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
	r := newReport(s)
	r.Solver, r.Evaluates = vm.trainer.where(s.device), vm.config.eval
	r.Calibration, r.Uncalibrated = s.calibration, s.uncalibrated
	if s.runs > 0 {
		timed(r.Steps, s.graph.Program, s.times, vm.target.Device)
	}
	return r
}

// status is what a VM has compiled and run.
type status struct {
	device string // the backend's name
	why    string // why OnAny selected the host
	// The name of the calibration that plans depend on, and why a file with one is not used.
	calibration, uncalibrated string

	products string // the BLAS library for products on the host
	graph    *lower.Graph
	boundary *boundary
	exec     *exec.Executable
	runs     int           // runs without error
	began    time.Time     // start of the last run without error
	took     time.Duration // its duration
}

// shown is an immutable record of a VM after its last run.
type shown struct {
	status
	finished bool            // the run had results
	times    []time.Duration // by instruction of the program
	ranks    []rankTimes     // of a VM with a trace
}

// rankTimes are the times of a rank's instructions, and their starts relative to the start of the run.
type rankTimes struct{ times, starts []time.Duration }

// show updates the record that Report and other methods read.
func (vm *VM) show() *shown {
	s := &shown{status: vm.status, finished: !vm.exec.Pending(), times: slices.Clone(vm.exec.Times)}
	if vm.tracer != nil {
		for _, r := range vm.exec.Ranks() {
			s.ranks = append(s.ranks, rankTimes{slices.Clone(r.Times), slices.Clone(r.Starts)})
		}
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

// newReport returns the report of a VM, without times of steps.
func newReport(s *shown) Report {
	g, p := s.graph, s.graph.Program
	r := Report{Device: s.device, Why: s.why, Products: s.products, Nodes: make([]NodeReport, len(g.Nodes)), Steps: steps(s.device, p),
		Runs: s.runs, Peak: p.Peak, Arena: p.Arena + p.Workspace}
	needed := map[*program.Instr]bool{}
	for in := range p.All() {
		needed[in] = true
	}
	byNode := make(map[*gorgonia.Node]*NodeReport, len(g.Nodes))
	for i, n := range g.Nodes {
		byNode[n.Node] = &r.Nodes[i]
		r.Nodes[i] = NodeReport{Name: internal.Name(n.Node), Shape: n.Shape(), Where: where(s.device, n)}
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
	for _, n := range g.Shared { // of one in 16 bits the graph has a value in float32, too
		if n.Value.Base.Dtype != n.Value.Dtype {
			byNode[n.Node].Where, byNode[n.Node].Stored = where(s.device, n), n.Value.Base.Dtype.String()
		}
	}
	for _, in := range p.Instrs {
		if attends(in) {
			byNode[in.Nodes[0]].Note = stepwise
		}
		for _, n := range in.Nodes {
			if list := in.Kernels(); len(list) > 0 {
				byNode[n].Kernels = append(byNode[n].Kernels, list...)
			}
		}
	}
	if s.runs == 0 {
		return r
	}
	r.Time = s.took
	for i, in := range p.Instrs {
		n := byNode[in.Nodes[0]]
		switch copied := program.Is[program.Copy](in.Op); {
		case copied && in.Out[0].Space == program.OnDevice:
			n.In += in.Out[0].Bytes()
		case copied:
			n.Out += in.Out[0].Bytes()
		case program.Computes(in.Op):
			n.Time += s.times[i]
		}
	}
	return r
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
	case program.Kernel, program.Map, program.Concat, program.Collective:
		return device
	case program.Host:
		return "host"
	}
	return v.Def.Op.String() // alias, constant
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
	if r.Calibration != "" {
		fmt.Fprintf(&b, "kernels chosen by the calibration %s\n", r.Calibration)
	}
	if r.Uncalibrated != "" {
		fmt.Fprintf(&b, "calibration ignored: %s\n", r.Uncalibrated)
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
