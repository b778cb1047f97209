package cudaops

import "gorgonia.org/gorgonia"

// Option is an option of [NewVM].
type Option func(*config)

type config struct {
	device        int
	auto, host    bool
	strict, timed bool
	eval          bool
	seed          *uint64
	keep          []*gorgonia.Node
}

// OnDevice runs kernels on CUDA device i, numbered from 0 (the default).
func OnDevice(i int) Option { return func(c *config) { c.device, c.auto, c.host = i, false, false } }

// OnHost runs the Go bodies of the kernels instead of a GPU. Products are made by the
// BLAS that gorgonia.Use was given when the machine is made, gonum's if none was.
func OnHost() Option { return func(c *config) { c.auto, c.host = false, true } }

// OnAny runs kernels on CUDA device 0 if there is one that can be used, else as
// [OnHost]: [VM.Device] and the first line of the report say why.
func OnAny() Option { return func(c *config) { c.device, c.auto, c.host = 0, true, false } }

// Strict makes it an error of [NewVM] if an op of the graph has no kernel and
// would run on the host. Inputs, constants, statements and reshapes need no kernel.
func Strict() Option { return func(c *config) { c.strict = true } }

// Keep adds nodes whose values are wanted on the host after a run.
func Keep(nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.keep = append(c.keep, nodes...) }
}

// Timed measures each device step, by events in its stream. Without it
// [VM.Report] has the time of host steps and of the whole run.
func Timed() Option { return func(c *config) { c.timed = true } }

// Seed sets the seed of random numbers: those of run n follow from it, n, and the place
// of their op in the graph alone, on every device. Without it every VM has a seed of its
// own.
func Seed(seed uint64) Option { return func(c *config) { c.seed = &seed } }

// EvalMode switches ops such as dropout from training to evaluation.
func EvalMode() Option { return func(c *config) { c.eval = true } }
