//go:build go1.26

package sthenohook

import (
	"os"
	"runtime"
	"time"

	"gorgonia.org/gorgonia"
)

// timed is a machine whose first run is repeated and timed.
type timed struct {
	gorgonia.VM
	made time.Duration
	runs int
}

// machines counts the timed ones. A program ends when it has made enough of them.
var machines int

const (
	mostMachines = 4
	timedFor     = time.Second / 2 // each
	warmFor      = timedFor / 5
)

// newTimed makes a tape machine or, if STHENO_CONFORMANCE asks for it, one of Stheno's that keeps the
// values that a user of the tape machine finds.
func newTimed(g *gorgonia.ExprGraph, o gorgonia.TapeOptions) *timed {
	start := time.Now()
	var vm gorgonia.VM
	if os.Getenv("STHENO_CONFORMANCE") == "time-tape" {
		vm = o.Plain()
	} else {
		vm = newMachine(g, o)
	}
	return &timed{VM: vm, made: time.Since(start)}
}

// RunAll implements gorgonia.VM. Its results are those of one run: inputs stay as they
// are, and the gradients, which the tape machine adds up, are not used.
func (t *timed) RunAll() error {
	if t.runs++; t.runs > 1 {
		return t.VM.RunAll()
	}
	entry := record{Event: "timed", Test: caller(), Made: t.made.Seconds(), Cores: runtime.GOMAXPROCS(0)}
	for start := time.Now(); entry.Runs == 0 || time.Since(start) < warmFor; entry.Runs++ {
		if err := t.VM.RunAll(); err != nil {
			entry.Error = err.Error()
			write(entry)
			return err
		}
		t.VM.Reset()
	}
	entry.Runs = 0
	start := time.Now()
	for entry.Runs == 0 || time.Since(start) < timedFor {
		if err := t.VM.RunAll(); err != nil {
			return err
		}
		t.VM.Reset()
		entry.Runs++
	}
	entry.Seconds = time.Since(start).Seconds()
	write(entry)
	if machines++; machines == mostMachines {
		os.Exit(0)
	}
	return nil
}

// Let and Set are those of the machine.
func (t *timed) Let(n *gorgonia.Node, be interface{}) error { return t.VM.(letter).Let(n, be) }

// Set binds the value of one node to another.
func (t *timed) Set(a, b *gorgonia.Node) error { return t.VM.(letter).Set(a, b) }

type letter interface {
	Let(n *gorgonia.Node, be interface{}) error
	Set(a, b *gorgonia.Node) error
}
