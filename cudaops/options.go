package cudaops

import (
	"io"
	"log"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/cudaops/internal/world"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Option configures a VM in [NewVM].
type Option func(*config)

// Options returns an option that applies several in order.
func Options(list ...Option) Option {
	return func(c *config) {
		for _, o := range list {
			o(c)
		}
	}
}

type config struct {
	device        int
	auto, host    bool
	ranks         int   // of OnHosts or OnDevices, 0 without
	devices       []int // of OnDevices
	allDevices    bool
	join          func(world.World, time.Duration, kernels.Calibration) (*world.Peers, kernels.Calibration, error) // of Processes, or nil
	onRanks       func(*VM, *program.Program, exec.Backend, *world.Peers, bool) (*exec.Executable, error)          // of several ranks
	world         *world.World                                                                                     // of Processes, or nil
	split         []*gorgonia.Node
	sumRanks      bool
	rankTimeout   []time.Duration
	sharded       bool                // ShardSolver
	reduced       []kernels.Precision // each GradientsIn
	strict, timed bool
	eval          bool
	seed          *uint64
	keep          []*gorgonia.Node
	train         []training                                           // each Train
	newTrainer    func(*config, *gorgonia.ExprGraph) (*trainer, error) // with a Train
	stores        []stored                                             // each In
	states        []state                                              // each State
	clipNorm      []float64
	ema           []float64
	scaler        []GradScaler // each LossScaling
	every         []int
	stepEvery     []int
	add           bool
	resident      []*gorgonia.Node
	all, forward  bool                // KeepAll, ForwardOnly
	only          []*gorgonia.Node    // Outputs
	compiled      []any               // by gorgonia.Compile or CompileFunction
	watch         []FloatClass        // each Watch
	precisions    []precision         // each Precision
	mixed         []kernels.Precision // each Mixed
	passes        passes.Runner       // with a Mixed
	workspaceMax  int64               // maximum bytes of the Store's workspace for this VM, set by a Cache; 0: no limit
	logger        *log.Logger
	trace         []io.Writer
}

// wants returns the values of a run that the options require on the host.
func (c *config) wants() *lower.Wanted {
	w := &lower.Wanted{Ranks: c.total(), Local: c.ranks, Split: c.split, SumRanks: c.sumRanks, Evaluate: c.eval, Keep: c.keep, All: c.all, Forward: c.forward, Only: c.only, Watch: len(c.watch) > 0, Resident: c.resident}
	w.Precision, w.PrecisionOf = c.ofProducts()
	return w
}

// OnDevice runs kernels on CUDA device i, numbered from 0 (the default).
func OnDevice(i int) Option {
	return func(c *config) {
		c.device, c.auto, c.host, c.ranks, c.devices, c.allDevices = i, false, false, 0, nil, false
	}
}

// OnHost runs the Go bodies of the kernels instead of a GPU. Products use the BLAS passed to gorgonia.Use before [NewVM].
// Otherwise they use an OpenBLAS, BLIS, MKL or Accelerate library of the machine, or else gonum's BLAS. The
// environment variable STHENO_BLAS selects a library or disables them: see docs/host.md.
func OnHost() Option {
	return func(c *config) { c.auto, c.host, c.ranks, c.devices, c.allDevices = false, true, 0, nil, false }
}

// OnAny runs kernels on CUDA device 0 if it is usable, otherwise as [OnHost]. [VM.Device] and the first line of the report
// then give the reason.
func OnAny() Option {
	return func(c *config) {
		c.device, c.auto, c.host, c.ranks, c.devices, c.allDevices = 0, true, false, 0, nil, false
	}
}

// Strict makes [NewVM] return an error if an op of the graph has no kernel and would run on the host. Inputs, constants,
// statements and reshapes need no kernel.
func Strict() Option { return func(c *config) { c.strict = true } }

// Keep adds nodes whose values a run copies to the host.
func Keep(nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.keep = append(c.keep, nodes...) }
}

// KeepAll binds the value of every node after a run, as Gorgonia's tape machine does. Every value is then computed, stored
// and copied to the host, which takes much longer than a run with only its results.
func KeepAll() Option { return func(c *config) { c.all = true } }

// Inference combines [EvalMode] and [ForwardOnly]: ops evaluate, and no derivative is computed.
func Inference() Option { return func(c *config) { c.eval, c.forward = true, true } }

// ForwardOnly omits the nodes that [gorgonia.Grad] added to the graph: no derivative is computed, and no input gets a
// gradient. It does not change the mode of ops, so a BatchNorm that trains still updates its running mean and variance: see
// [Inference].
func ForwardOnly() Option { return func(c *config) { c.forward = true } }

// Outputs runs only the part of the graph that these nodes and the nodes of [Keep] and [gorgonia.Read] depend on. Other
// results of the graph are not computed. All inputs still need values.
func Outputs(nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.only = append(c.only, nodes...) }
}

// AddGradients accumulates the gradients of inputs ([gorgonia.Node.Grad]) over runs, as a tape machine with
// [gorgonia.BindDualValues] does, until the Step of a solver or the program zeroes them. Without it each run replaces
// them. Gradients of learnables of [Train] stay on the device: see [StepEvery].
func AddGradients() Option { return func(c *config) { c.add = true } }

// Precompiled runs the part of a graph that [gorgonia.CompileFunction] selected, instead of the graph passed to [NewVM], which
// may be nil. Its arguments are the results of that function or of [gorgonia.Compile], as for
// [gorgonia.WithPrecompiled]. Stheno compiles the part itself.
func Precompiled(program, locations any) Option {
	return func(c *config) { c.compiled = append(c.compiled, program) }
}

// Watch ends a run with the error *[NotFinite] if an op returns a number of these classes, such as NaN | Inf, or if a step
// of [Train] makes one in a learnable. The VM, its learnables and the solver's moments then have the values from before
// the run. Every run copies the values of all nodes and the training state to the host. [LossScaling] looks at derivatives in place of Watch.
//
// Watch changes no bit of the results: a training that diverged without it can be repeated with it from the last
// checkpoint.
func Watch(classes FloatClass) Option {
	return func(c *config) { c.watch = append(c.watch, classes) }
}

// Log writes a line for each step of each run, as listed in [VM.Report], and a line with the copied bytes and the time of the
// run.
func Log(to *log.Logger) Option { return func(c *config) { c.logger = to } }

// Timed measures each device step by events in its stream. Without it [VM.Report] contains only the times of host steps and of
// the whole run.
func Timed() Option { return func(c *config) { c.timed = true } }

// Seed sets the seed of random numbers. The numbers of a run depend only on the seed, the number of the run and the position
// of the op in the graph, on every device. Without Seed every VM has a different seed.
func Seed(seed uint64) Option { return func(c *config) { c.seed = &seed } }

// EvalMode makes the ops of a VM evaluate, regardless of their SetTraining: Dropout keeps all elements, and a BatchNorm
// uses its running mean and variance without updating them. Other VMs of the graph are not affected. A tape machine
// with [gorgonia.EvalMode] changes the mode of the graph's ops instead.
//
// [NewVM] returns an error if the graph has an op of another module with a SetTraining method, because such an op reads its
// own mode. Without EvalMode, SetTraining(false) of all ops makes every VM of the graph evaluate.
func EvalMode() Option { return func(c *config) { c.eval = true } }
