// Package passes rewrites programs: each pass takes a program that [program.Verify]
// accepts and leaves one that computes the same.
package passes

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// Target describes the device that a program is compiled for.
type Target struct {
	Device kernels.Device
	// Replay leaves values that are copied to the device in place until the end of the run, so that
	// the launches can be repeated without the copies.
	Replay bool
	// DoubleBufferMin, if it is not 0, reserves two places on the device for inputs of more bytes, up to a limit: the value
	// of the next run is copied to one of them while a run works on the other.
	DoubleBufferMin int64
}

// Pass is one rewriting step.
type Pass struct {
	Name string
	Run  func(*program.Program, Target) error
}

// All are the passes in the order in which they run. They decide what is computed, then how, where, and at
// which address.
var All = []Pass{
	{"prune", prune},
	{"windows", windows},
	{"epilogue", epilogues},
	{"fuse", fuse},
	{"layout", layout},
	{"round", castOperands},
	{"plan", plan},
	{"transfer", transfer},
	{"place", place},
}

// Run applies all passes to a program. watch, which may be nil, sees it before the first pass,
// called "lower", and after each.
func Run(p *program.Program, t Target, watch func(pass string, p *program.Program) error) error {
	if watch == nil {
		watch = func(string, *program.Program) error { return nil }
	}
	if err := watch("lower", p); err != nil {
		return err
	}
	for _, pass := range All {
		if err := pass.Run(p, t); err != nil {
			return err
		}
		if err := watch(pass.Name, p); err != nil {
			return err
		}
	}
	return nil
}
