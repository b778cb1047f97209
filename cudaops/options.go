package cudaops

import "gorgonia.org/gorgonia"

// Option is an option of [NewVM].
type Option func(*config)

type config struct {
	device        int
	auto, host    bool
	strict, timed bool
	eval          bool
	keep          []*gorgonia.Node
	train         []training // each Train, ClipNorm and ReadEvery: they are wanted once
	clipNorm      []float64
	every         []int
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
