package cudaops

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
)

// PassReport describes the size of a program after a pass of the compiler.
type PassReport struct {
	Pass         string // name of the pass in [VM.Explain]; "lower" before the first pass
	Instructions int    // instructions of a run, including inputs and views
	Steps        int    // instructions that compute: launches on the device, or an op's Do on the host
	Copies       int    // copies between host and device
	// Traffic is the minimum number of bytes that the launches read and write, the sum of [Step.Bytes].
	Traffic int64
	// Values is the sum of the sizes of all values on the device in bytes, including constants and copied inputs, without
	// views.
	Values int64
}

// Explain writes the lowered program, the program after each pass of the compiler, and the notes of [VM.Report]. It compiles the graph in its
// current state for the VM's device.
func (vm *VM) Explain(w io.Writer) error {
	if guard.IsNil(w) {
		return fmt.Errorf("cudaops: Explain got no writer")
	}
	var text bytes.Buffer
	err := vm.compileAgain("Explain", func(pass string, p *program.Program) error {
		_, err := fmt.Fprintf(&text, "== %s\n%v\n", pass, p)
		return err
	})
	if err != nil {
		return err
	}
	vm.Report().printNotes(&text)
	return failure("cudaops: Explain", guard.Recover("the writer", func() error { _, err := text.WriteTo(w); return err }))
}

// compileAgain compiles the graph between runs, for a method.
func (vm *VM) compileAgain(method string, watch func(pass string, p *program.Program) error) error {
	if vm == nil || vm.exec == nil {
		return fmt.Errorf("cudaops: %s of a VM that NewVM did not make", method)
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	leave, err := vm.enter(context.Background())
	if err == nil {
		defer leave()
		_, err = vm.compile(watch)
	}
	return failure("cudaops: "+method, err)
}

// Passes returns the size of the lowered program and of the program after each pass of the compiler. It compiles the graph
// in its current state for the VM's device.
func (vm *VM) Passes() ([]PassReport, error) {
	var list []PassReport
	err := vm.compileAgain("Passes", func(pass string, p *program.Program) error {
		r, err := newPassReport(pass, p, vm.target.Device)
		list = append(list, r)
		return err
	})
	return list, err
}

// newPassReport measures a program.
func newPassReport(pass string, p *program.Program, dev kernels.Device) (PassReport, error) {
	r := PassReport{Pass: pass, Instructions: len(p.Instrs)}
	for in := range p.All() {
		for _, v := range in.Out {
			if v.Numeric && v.Base == v && v.Space != program.OnHost {
				r.Values += v.Bytes()
			}
		}
	}
	for _, in := range p.Instrs {
		if program.Computes(in.Op) {
			r.Steps++
		}
		if program.Is[program.Copy](in.Op) {
			r.Copies++
		}
		if !program.Launches(in.Op) {
			continue
		}
		plan := in.Plan
		if plan == nil {
			var err error
			if plan, err = in.PlanFor(dev); err != nil {
				return r, in.InNode(err)
			}
		}
		r.Traffic += in.Traffic(plan)
	}
	return r, nil
}
