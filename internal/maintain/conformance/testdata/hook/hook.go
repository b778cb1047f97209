//go:build go1.26

// Package sthenohook makes Gorgonia's tape machine run graphs on Stheno, if the variable
// STHENO_CONFORMANCE is stheno; beside Stheno, comparing the values of all nodes, if it is compare;
// or times the runs of either, for time-tape or time-stheno. It serves only the conformance tests,
// and is compiled in a copy of Gorgonia.
package sthenohook

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"gorgonia.org/gorgonia"
)

func init() {
	switch os.Getenv("STHENO_CONFORMANCE") {
	case "stheno":
		gorgonia.StandIn = func(g *gorgonia.ExprGraph, o gorgonia.TapeOptions) gorgonia.VM {
			return newMachine(g, o, cudaops.KeepAll())
		}
	case "compare":
		gorgonia.StandIn = func(g *gorgonia.ExprGraph, o gorgonia.TapeOptions) gorgonia.VM { return newPair(g, o) }
	case "time-tape", "time-stheno":
		gorgonia.StandIn = func(g *gorgonia.ExprGraph, o gorgonia.TapeOptions) gorgonia.VM { return newTimed(g, o) }
	}
}

// machine is Stheno's in the place of a tape machine. Errors of NewVM are returned by RunAll, as
// they are on the tape.
type machine struct {
	*cudaops.VM
	err error
}

func newMachine(g *gorgonia.ExprGraph, o gorgonia.TapeOptions, options ...cudaops.Option) *machine {
	if os.Getenv("STHENO_REQUIRE_GPU") != "" {
		options = append(options, cudaops.OnDevice(0))
	}
	if o.EvalMode {
		options = append(options, cudaops.EvalMode())
	}
	if o.NaN {
		options = append(options, cudaops.Watch(cudaops.NaN))
	}
	if o.Inf {
		options = append(options, cudaops.Watch(cudaops.Inf))
	}
	if o.Logger != nil {
		options = append(options, cudaops.Log(o.Logger))
	}
	if o.Program != nil {
		options = append(options, cudaops.Precompiled(o.Program, nil))
	}
	m := &machine{}
	// Ops without a kernel run on the host; the log lists them.
	if m.VM, m.err = stheno.NewVM(g, append(options, cudaops.Strict())...); m.err != nil {
		m.VM, m.err = stheno.NewVM(g, options...)
	}
	entry := record{Event: "machine", Test: caller(), Nodes: len(g.AllNodes())}
	if m.err != nil {
		entry.Error = m.err.Error()
	} else {
		for _, s := range m.Report().Steps {
			if s.Reason != "" {
				entry.Host = append(entry.Host, s.Op)
			}
		}
	}
	write(entry)
	return m
}

// RunAll implements gorgonia.VM.
func (m *machine) RunAll() error {
	if m.err != nil {
		return m.err
	}
	return m.VM.RunAll()
}

// Let binds a value to an input.
func (m *machine) Let(n *gorgonia.Node, value interface{}) error {
	if m.err != nil {
		return gorgonia.Let(n, value)
	}
	return m.VM.Let(n, value)
}

// record is a line of the log.
type record struct {
	Event   string   // machine, compared or timed
	Test    string   // the test that made the machine
	Error   string   `json:",omitempty"` // of NewVM or of a run
	Host    []string `json:",omitempty"` // steps on the host for want of a kernel
	Nodes   int      // of the graph, or that were compared
	Worst   float64  `json:",omitempty"` // of the differences
	Node    string   `json:",omitempty"` // whose it is
	Apart   []string `json:",omitempty"` // nodes beyond the tolerance
	Missing []string `json:",omitempty"` // nodes without a value
	Made    float64  `json:",omitempty"` // seconds that a machine took to be made
	Runs    int      `json:",omitempty"` // that were timed
	Seconds float64  `json:",omitempty"` // that they took
	Cores   int      `json:",omitempty"`
}

var log struct {
	sync.Mutex
	file *os.File
}

// write adds a line to the log that STHENO_CONFORMANCE_LOG names.
func write(r record) {
	path := os.Getenv("STHENO_CONFORMANCE_LOG")
	if path == "" {
		return
	}
	log.Lock()
	defer log.Unlock()
	if log.file == nil {
		var err error
		if log.file, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666); err != nil {
			panic(err)
		}
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, err = fmt.Fprintf(log.file, "%s\n", line)
	}
	if err != nil {
		panic(err)
	}
}

// caller returns the name of the test or example that is under way, main for a program.
func caller() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		for _, part := range strings.Split(f.Function[strings.LastIndex(f.Function, "/")+1:], ".")[1:] {
			if strings.HasPrefix(part, "Test") || strings.HasPrefix(part, "Example") || part == "main" {
				return part
			}
		}
		if !more {
			return ""
		}
	}
}
