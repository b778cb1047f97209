package records

import (
	"fmt"
	"strings"
)

// AllReduce is the op of the records of Ranks that are not of steps.
const AllReduce = "all-reduce"

// OneGPU is the case of a step on one GPU; those of several begin with their number, such as "2 GPUs, divided state".
const OneGPU = "1 GPU"

// scaling prints how many times as much work a time of several GPUs does as that of one.
func scaling(r, one Record) string {
	var gpus float64
	if fmt.Sscanf(r.Case, "%f", &gpus); one.Us == 0 || r.Us == 0 || r.Case == OneGPU {
		return ""
	}
	return fmt.Sprintf("%.2f", gpus*one.Us/r.Us)
}

// Scaling is the table of training steps on one and on several GPUs.
func Scaling(f *File, _ []Key) string {
	lines := [][]string{{"Step", "GPUs", "Time", "Scaling", "Peer", "Time", "Scaling", "Speed of peer's", "Solver's state", "Memory"}}
	var keys []Key
	mib := func(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }
	for _, r := range f.Of(Time) {
		if r.Op == AllReduce {
			continue
		}
		keys = append(keys, r.Key)
		base := Key{r.Op, OneGPU, r.Dtype}
		one, _ := f.Time(base)
		cells := []string{r.Op, r.Case, r.Micros(), scaling(r, one), "", "", "", ""}
		if peer, ok := f.Best(r.Key); ok {
			alone, _ := f.Best(base)
			cells = append(cells[:4], peer.By, peer.Micros(), scaling(peer, alone), f.OfPeer(r))
		}
		lines = append(lines, append(cells, mib(r.Values["solver"]), mib(r.Values["peak"])))
	}
	if len(lines) == 1 {
		return ""
	}
	usual, others := f.runs(keys)
	return f.heading(usual) + ".\n\n" + f.Since() + Grid("llrrlrrrrr", lines) + others
}

// AllReduces is the table of all-reduces within a captured graph, beside NCCL alone.
func AllReduces(f *File, _ []Key) string {
	lines := [][]string{{"float32", "GPUs", "Time", "NCCL alone", "Share", "Algorithm bandwidth"}}
	for _, r := range f.Of(Time) {
		if r.Op != AllReduce {
			continue
		}
		size, gpus, _ := strings.Cut(r.Case, ", ")
		cells := []string{size, gpus, r.Micros(), "", "", fmt.Sprintf("%.1f GB/s", r.GBs())}
		if peer, ok := f.Best(r.Key); ok {
			cells[3], cells[4] = peer.Micros(), fmt.Sprintf("%.0f %%", 100*r.Us/peer.Us)
		}
		lines = append(lines, cells)
	}
	if len(lines) == 1 {
		return ""
	}
	return f.heading(f.Head()) + ".\n\n" + Grid("llr", lines)
}
