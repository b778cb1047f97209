// Package passes rewrites programs: each pass takes a program that [program.Verify]
// accepts and leaves one that computes the same.
package passes

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
)

// Target describes the device that a program is compiled for.
type Target struct {
	Device kernels.Device
	// Replay keeps the device buffers of copied values until the end of the run, so that the launches can be repeated
	// without the copies.
	Replay bool
	// DoubleBufferMin, if not 0, double-buffers inputs of more bytes, up to doubleBufferMax: the next run's value is
	// copied to one buffer while a run reads the other.
	DoubleBufferMin int64
	// Workspace, if not nil, returns memory for the values that no other run needs, which several programs use one after the other.
	Workspace func(bytes int64) (program.Memory, error)
	// Halves, if not nil, returns the memory that holds copies in BF16 or F16 of the float32 states in a Home, at half their offsets.
	Halves func(home program.Memory, d kernels.Dtype) (program.Memory, error)
	// Planned, if not nil, is called with the plan of each instruction as soon as it is made, and before the passes with a plan that the program may not
	// have, so that its kernels are loaded meanwhile.
	Planned func(*kernels.Plan)
	// Mixed, if it is BF16 or F16, stores values between products in it: see package cudaops.
	Mixed kernels.Precision
}

// Pass is one rewriting step of the compiler.
type Pass struct {
	Name string
	Run  func(*program.Program, Target) error
}

// All lists the passes in the order in which they run. They decide what is computed, then how, where, and at
// which address.
var All = []Pass{
	{"prune", prune},
	{"windows", windows},
	{"epilogue", epilogues}, // after vectors of vectors.go and onto
	{"fuse", fuse},          // before prologues of vectors.go
	{"mixed", mixed},        // if the target asks for it; with caches.go and channels.go
	{"channels", channels},
	{"layout", layout},
	{"round", round}, // with chunks.go and splits.go
	{"plan", plan},   // with states.go and rematerialize.go
	{"transfer", transfer},
	{"place", place},
}

// plain lists them without mixed, which programs with no Mixed do not link, 0.05 MB.
var plain = []Pass{
	{"prune", prune}, {"windows", windows}, {"epilogue", epilogues}, {"fuse", fuse}, {"channels", channels}, {"layout", layout}, {"round", round},
	{"plan", plan}, {"transfer", transfer}, {"place", place},
}

// Runner is [Run] or [RunPlain].
type Runner func(p *program.Program, t Target, watch func(pass string, p *program.Program) error) error

// Run applies all passes to a program. It calls watch, unless nil, before the first pass with the name "lower", and after
// each pass with the pass's name. A panic of a pass is an error that names it.
func Run(p *program.Program, t Target, watch func(pass string, p *program.Program) error) error {
	if t.Mixed == kernels.FullPrecision {
		return RunPlain(p, t, watch)
	}
	return run(All, p, t, watch)
}

// RunPlain is Run for targets without Mixed.
func RunPlain(p *program.Program, t Target, watch func(pass string, p *program.Program) error) error {
	return run(plain, p, t, watch)
}

func run(list []Pass, p *program.Program, t Target, watch func(pass string, p *program.Program) error) error {
	if watch == nil {
		watch = func(string, *program.Program) error { return nil }
	}
	if err := watch("lower", p); err != nil {
		return err
	}
	if err := guard.Own("pass plan", func() error { foresee(p, t); return nil }); err != nil {
		return err
	}
	for _, pass := range list {
		if err := guard.Own("pass "+pass.Name, func() error { return pass.Run(p, t) }); err != nil {
			return err
		}
		if err := watch(pass.Name, p); err != nil {
			return err
		}
	}
	return nil
}
