package cudaops

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
)

// Step is a part of a run: the launches of one instruction of the compiled program, which may compute many nodes, a collective of
// ranks, or an op's Do on the host.
type Step struct {
	Nodes   []string // names of the nodes that it computes
	Op      string   // the instruction as printed by [VM.Explain]: "map f32, f32: tanh(x0 * x1)"
	Where   string   // Report.Device or "host"
	Kernels []string // entry points in launch order
	Reason  string   // why it runs on the host
	// Precision is the precision to which this step's matmul operands are rounded, by the step or before it.
	Precision kernels.Precision
	// Bytes is the minimum traffic of the launches, with each input read once and each output written once. Flops is the
	// number of floating-point operations.
	Bytes, Flops int64
	Time         time.Duration // on the device only under [Timed]
	// Roofline is the share of the device's limit that the launches reach. The limit is the time of Bytes at the peak memory
	// bandwidth or of Flops at the peak float32 FMA rate, whichever is longer. Roofline is 0 if the times are unknown.
	Roofline float64
}

// steps returns the steps of a program, without times.
func steps(device string, p *program.Program) []Step {
	var list []Step
	for _, in := range p.Instrs {
		if !program.Computes(in.Op) {
			continue
		}
		h, host := in.Op.(program.Host)
		s := Step{Nodes: nodeNames(in), Op: in.Op.String(), Where: device, Kernels: in.Kernels(), Reason: h.Reason}
		if host {
			s.Where = "host"
		}
		if plan := in.Plan; plan != nil {
			s.Bytes, s.Flops, s.Precision = in.Traffic(plan), plan.Flops, plan.Precision
		}
		list = append(list, s)
	}
	return list
}

// nodeNames returns the names of the nodes that an instruction computes.
func nodeNames(in *program.Instr) []string { return program.Collect(in.Nodes, internal.Name) }

// timed sets the times of a run.
func timed(list []Step, p *program.Program, times []time.Duration, dev kernels.Device) {
	at := 0
	for i, in := range p.Instrs {
		if !program.Computes(in.Op) {
			continue
		}
		s := &list[at]
		at++
		if s.Time = times[i]; s.Time > 0 && in.Plan != nil && dev.Bandwidth > 0 && dev.FMAs > 0 {
			limit := max(float64(s.Bytes)/dev.Bandwidth, float64(s.Flops)/2/dev.FMAs)
			s.Roofline = limit / s.Time.Seconds()
		}
	}
}

// printSteps writes a table, one step a line.
func printSteps(out io.Writer, list []Step) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "step\tnodes\twhere\tkernels\tbytes\ttime\troofline")
	for i, s := range list {
		how := strings.Join(s.Kernels, " ")
		if s.Reason != "" {
			how = "(" + s.Reason + ")"
		}
		roofline := "-"
		if s.Roofline > 0 {
			roofline = fmt.Sprintf("%.0f %%", 100*s.Roofline)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", i+1, shorten(covered(s.Nodes), 60), s.Where, shorten(how, 60), amount(s.Bytes), duration(s.Time), roofline)
	}
	w.Flush()
}

// covered returns the names of nodes, preceded by their count if there are several.
func covered(nodes []string) string {
	if len(nodes) < 2 {
		return strings.Join(nodes, "")
	}
	return fmt.Sprintf("%d: %s", len(nodes), strings.Join(nodes, ", "))
}
