package cudaops

import (
	"bytes"
	"fmt"
	"io"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
)

// PassReport has the size of a program after a pass of the compiler, in numbers that show what the
// pass changed.
type PassReport struct {
	Pass         string // its name in [VM.Explain], "lower" for the program before the first pass
	Instructions int    // of a run, inputs and views included
	Steps        int    // those that compute: as launches on the device, or an op's Do on the host
	Copies       int    // those that copy between host and device
	// Traffic is the least number of bytes that the launches of all steps read and write,
	// as [Step.Bytes] has it for one.
	Traffic int64
	// Values is the size of all values on the device in bytes, constants and copied inputs
	// included, if each had memory of its own; views have none.
	Values int64
}

// Explain writes the program to which the graph was lowered, and the program after each pass of the
// compiler. It compiles the graph as it is now, for the device of the VM.
func (vm *VM) Explain(w io.Writer) error {
	if vm == nil || vm.exec == nil {
		return fmt.Errorf("cudaops: Explain of a VM that NewVM did not make")
	}
	if guard.IsNil(w) {
		return fmt.Errorf("cudaops: Explain got no writer")
	}
	var text bytes.Buffer
	err := vm.explain(&text)
	if err == nil {
		err = guard.Recover("the writer", func() error { _, err := text.WriteTo(w); return err })
	}
	if err != nil {
		return fmt.Errorf("cudaops: Explain: %w", err)
	}
	return nil
}

func (vm *VM) explain(w io.Writer) error {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	_, err := vm.compile(func(pass string, p *program.Program) error {
		_, err := fmt.Fprintf(w, "== %s\n%v\n", pass, p)
		return err
	})
	return err
}

// Passes returns the program's size as the graph was lowered and after each pass of the
// compiler. It compiles the graph as it is now, for the device of the VM.
func (vm *VM) Passes() ([]PassReport, error) {
	if vm == nil || vm.exec == nil {
		return nil, fmt.Errorf("cudaops: Passes of a VM that NewVM did not make")
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	var list []PassReport
	_, err := vm.compile(func(pass string, p *program.Program) error {
		r, err := newPassReport(pass, p, vm.target.Device)
		list = append(list, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cudaops: %w", err)
	}
	return list, nil
}

// newPassReport counts the parts of a program.
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
		if isStep(in) {
			r.Steps++
		}
		if _, copied := in.Op.(program.Copy); copied {
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
		r.Traffic += plan.Bytes()
	}
	return r, nil
}
