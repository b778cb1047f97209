package bench

import (
	"fmt"
	"maps"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// GraphTiming is the result of [TimeGraph].
type GraphTiming struct {
	// Runs holds the times of the graph's launches on the device, as one CUDA graph without copies from and to the host. Each
	// is the mean over consecutive runs that take a millisecond together. It is nil if the graph has no launches.
	Runs     []time.Duration
	Launches int
	// Host lists the ops that run on the host because they have no kernel; Runs does not include them.
	Host []string
	// Kernels holds the digests of the launched kernels, by source.
	Kernels map[string]string
	// Parts lists the instructions in launch order, if requested.
	Parts []Part
}

// Part describes what an instruction adds to the time of a graph.
type Part struct {
	Op    string
	Shape []int // of its first result
	// Time is the time of a graph of the launches up to this one, minus the time of a graph of the launches before it. It is
	// less than the time of the launch alone, since kernels overlap.
	Time time.Duration
	// Least is a lower bound: the time of its bytes at the device's peak memory bandwidth or of its operations at the peak
	// float32 FMA rate, whichever is longer.
	Least time.Duration
}

// Training holds the training of a machine with the option cudaops.Train.
type Training struct {
	Solver     gorgonia.Solver // one of Gorgonia's
	Learnables gorgonia.Nodes
	// UpdateAlone omits all nodes that the update does not depend on, such as the loss.
	UpdateAlone bool
	Precision   kernels.Precision // of the products
	Parts       bool              // return GraphTiming.Parts
}

// TimeGraph runs a graph once on a device, as a machine of cudaops.NewVM does. After a warm-up it repeats the launches on the
// same inputs, timed by the device's clock. Inputs must have values; no other node is bound. runs, at least 1, is the
// number of timed runs; if these exceed the budget there are fewer, but at least five.
//
// If train is not nil, training steps are timed: forward, backward and update. All timed steps are step 1, which does not affect the times.
//
// The inputs are not moved between runs, so small ones are read from the L2 cache.
//
// The error wraps cudaops.ErrNoDevice if there is no such device.
func TimeGraph(device int, g *gorgonia.ExprGraph, train *Training, runs int, budget time.Duration) (*GraphTiming, error) {
	return onGPU(device, "graph", func(b *exec.GPUBackend) (*GraphTiming, error) { return timeGraph(b, g, train, runs, budget) })
}

// lowered lowers a graph.
func lowered(g *gorgonia.ExprGraph, train *Training) (*lower.Graph, error) {
	if train == nil {
		return lower.New(g, nil)
	}
	options, ok, err := internal.ReadSolver(train.Solver)
	if err == nil && !ok {
		err = fmt.Errorf("got a solver %T, want one of Gorgonia's", train.Solver)
	}
	if err != nil {
		return nil, err
	}
	graph, err := lower.New(g, &lower.Wanted{Train: &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: options, Learnables: train.Learnables}}}, Precision: train.Precision})
	if err == nil && train.UpdateAlone {
		graph.Program.Outputs = nil
	}
	return graph, err
}

// start sets the learnables to their values and returns the numbers of the first step, which follow the inputs.
func start(e *exec.Executable, graph *lower.Graph, train *Training) ([]gorgonia.Value, error) {
	if train == nil {
		return nil, nil
	}
	for i, n := range train.Learnables {
		m, err := values.Bytes(n.Value())
		if err == nil {
			err = e.SetState(graph.Trained.Learned[i].Value, m)
		}
		if err != nil {
			return nil, fmt.Errorf("learnable %s: %w", internal.Name(n), err)
		}
	}
	return graph.Trained.Numbers(graph.Trained.Solvers(), 1, 0), nil
}

func timeGraph(b exec.Backend, g *gorgonia.ExprGraph, train *Training, runs int, budget time.Duration) (*GraphTiming, error) {
	graph, err := lowered(g, train)
	if err != nil {
		return nil, err
	}
	if err := passes.Run(graph.Program, passes.Target{Device: b.Device(), Replay: true}, nil); err != nil {
		return nil, err
	}
	t := &GraphTiming{Kernels: map[string]string{}}
	for _, in := range graph.Program.Instrs {
		if err := t.add(in); err != nil {
			return nil, in.InNode(err)
		}
	}
	e, err := exec.New(graph.Program, b, false)
	if err != nil {
		return nil, err
	}
	inputs := make([]gorgonia.Value, len(graph.Inputs))
	for i, in := range graph.Inputs {
		if inputs[i] = in.Value(); inputs[i] == nil {
			return nil, fmt.Errorf("input %s has no value", internal.Name(in.Node))
		}
	}
	numbers, err := start(e, graph, train)
	if err != nil {
		return nil, err
	}
	if _, err := e.Run(append(inputs, numbers...)); err != nil {
		return nil, err
	}
	if t.Launches == 0 {
		return t, nil
	}
	if train != nil && train.Parts {
		if err := t.timeParts(b, e); err != nil {
			return nil, err
		}
	}
	t.Runs, err = replayed(b, e, len(e.Launching()), runs, budget)
	return t, err
}

// replayed times the launches of the first n instructions.
func replayed(b exec.Backend, e *exec.Executable, n, runs int, budget time.Duration) ([]time.Duration, error) {
	replay, err := e.Replay(n)
	if err != nil {
		return nil, err
	}
	return repeat(b, runs, budget, func(int) error { return replay() })
}

// timeParts times the launches of each prefix of the instructions.
func (t *GraphTiming) timeParts(b exec.Backend, e *exec.Executable) error {
	const runs, budget = 25, 50 * time.Millisecond
	before, dev := time.Duration(0), b.Device()
	for i, in := range e.Launching() {
		times, err := replayed(b, e, i+1, runs, budget)
		if err != nil {
			return err
		}
		until := median(times)
		p := Part{Op: in.Op.String(), Shape: in.Out[0].Shape, Time: until - before}
		if dev.Bandwidth > 0 && dev.FMAs > 0 {
			limit := max(float64(in.Plan.Bytes())/dev.Bandwidth, float64(in.Plan.Flops)/2/dev.FMAs)
			p.Least = time.Duration(limit * float64(time.Second))
		}
		t.Parts, before = append(t.Parts, p), until
	}
	return nil
}

// add records an instruction.
func (t *GraphTiming) add(in *program.Instr) error {
	if host, ok := in.Op.(program.Host); ok && host.Reason != "" {
		t.Host = append(t.Host, internal.Name(in.Nodes[0]))
	}
	if in.Plan == nil {
		return nil
	}
	t.Launches += len(in.Plan.Launches)
	digests, err := in.Plan.Digests()
	maps.Copy(t.Kernels, digests)
	return err
}
