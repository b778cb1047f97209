package cudaops

import (
	"io"
	"log"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"gorgonia.org/gorgonia"
)

// Option is an option of [NewVM].
type Option func(*config)

type config struct {
	device        int
	auto, host    bool
	strict, timed bool
	eval          bool
	seed          *uint64
	keep          []*gorgonia.Node
	train         []training // each Train, ClipNorm and ReadEvery: they are wanted once
	clipNorm      []float64
	every         []int
	stepEvery     []int
	add           bool
	resident      []*gorgonia.Node
	all, forward  bool             // KeepAll, ForwardOnly
	only          []*gorgonia.Node // Outputs
	compiled      []any            // by gorgonia.Compile or CompileFunction
	watch         []FloatClass     // each Watch
	precisions    []precision      // each Precision
	logger        *log.Logger
	trace         []io.Writer
}

// wants returns which values of a run the options ask for.
func (c *config) wants() *lower.Wanted {
	w := &lower.Wanted{Evaluate: c.eval, Keep: c.keep, All: c.all, Forward: c.forward, Only: c.only, Watch: len(c.watch) > 0, Resident: c.resident}
	w.Precision, w.PrecisionOf = c.ofProducts()
	return w
}

// OnDevice runs kernels on CUDA device i, numbered from 0 (the default).
func OnDevice(i int) Option { return func(c *config) { c.device, c.auto, c.host = i, false, false } }

// OnHost runs the Go bodies of the kernels instead of a GPU. Products are made by the
// BLAS that gorgonia.Use was given when the machine is made; if none was, by an OpenBLAS,
// BLIS, MKL or Accelerate library of this machine, and by gonum's where there is none. The
// environment variable STHENO_BLAS chooses a library or switches them off: see
// docs/host.md.
func OnHost() Option { return func(c *config) { c.auto, c.host = false, true } }

// OnAny runs kernels on CUDA device 0 if there is one that can be used, else as
// [OnHost]: [VM.Device] and the first line of the report name the reason.
func OnAny() Option { return func(c *config) { c.device, c.auto, c.host = 0, true, false } }

// Strict makes it an error of [NewVM] if an op of the graph has no kernel and
// would run on the host. Inputs, constants, statements and reshapes need no kernel.
func Strict() Option { return func(c *config) { c.strict = true } }

// Keep adds nodes whose values are wanted on the host after a run.
func Keep(nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.keep = append(c.keep, nodes...) }
}

// KeepAll binds the value of every node after a run, as Gorgonia's tape machine does.
// All of them are computed, stored and copied to the host then, which takes much longer
// than a run for its results alone.
func KeepAll() Option { return func(c *config) { c.all = true } }

// Inference is [EvalMode] with [ForwardOnly]: the VM computes the graph's results as a trained model does, and no derivative.
func Inference() Option { return func(c *config) { c.eval, c.forward = true, true } }

// ForwardOnly leaves out the nodes that [gorgonia.Grad] added to the graph: no derivative is
// computed, and no input has a gradient. It does not choose a mode, so a BatchNorm that trains still updates
// its running mean and variance: see [Inference].
func ForwardOnly() Option { return func(c *config) { c.forward = true } }

// Outputs runs the part of the graph that these nodes, those of [Keep] and those of
// [gorgonia.Read] depend on. The other results of the graph are not computed. Its inputs
// need values all the same.
func Outputs(nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.only = append(c.only, nodes...) }
}

// AddGradients adds the gradients of each run to those that the inputs have, [gorgonia.Node.Grad], as a tape machine with
// [gorgonia.BindDualValues] does, until the Step of a solver or the program sets them to zero. Without it each run
// replaces them. Gradients of learnables of [Train] stay on the device: see [StepEvery].
func AddGradients() Option { return func(c *config) { c.add = true } }

// Precompiled runs the part of a graph that [gorgonia.CompileFunction] chose, instead
// of the graph that [NewVM] is given, which may be nil. It takes the results of that
// function, or of [gorgonia.Compile], as [gorgonia.WithPrecompiled] does; Stheno compiles
// the part itself.
func Precompiled(program, locations any) Option {
	return func(c *config) { c.compiled = append(c.compiled, program) }
}

// Watch ends a run with the error *[NotFinite] if an op returns a number of these classes, such as NaN | Inf, or if a step
// of [Train] makes one in a learnable. The VM, its learnables and the solver's moments then have the values from before
// the run. Every run copies the values of all nodes and the training state to the host.
//
// Watch changes no bit of the results: a training that diverged without it can be repeated with it from the last
// checkpoint.
func Watch(classes FloatClass) Option {
	return func(c *config) { c.watch = append(c.watch, classes) }
}

// Log writes a line to a logger for each step of each run, as [VM.Report] has them, and one for the
// bytes copied and the time.
func Log(to *log.Logger) Option { return func(c *config) { c.logger = to } }

// Timed measures each device step, by events in its stream. Without it
// [VM.Report] has the time of host steps and of the whole run.
func Timed() Option { return func(c *config) { c.timed = true } }

// Seed sets the seed of random numbers: those of run n follow from it, n, and the place
// of their op in the graph alone, on every device. Without it every VM has a seed of its
// own.
func Seed(seed uint64) Option { return func(c *config) { c.seed = &seed } }

// EvalMode makes a VM evaluate: a dropout keeps all elements, and a BatchNorm takes its running mean and variance
// and leaves them, whatever their SetTraining determined. Nothing changes for other VMs of the graph. A tape machine with
// [gorgonia.EvalMode] sets the graph's ops themselves.
//
// An op of another module with a SetTraining reads its own mode, so a graph with one is an error of [NewVM]: without
// EvalMode, SetTraining(false) of all its ops lets every VM of the graph evaluate.
func EvalMode() Option { return func(c *config) { c.eval = true } }
