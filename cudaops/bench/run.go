package bench

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// Run runs a plan once on a CUDA device. inputs and out have the plan's sizes; out receives the output. It is for tests of
// kernels: output and scratch memory are filled with NaN before, and Run returns an error if the plan writes its inputs
// or memory around an operand.
//
// The error wraps cudaops.ErrNoDevice if there is no such device.
func Run(device int, p *kernels.Plan, inputs [][]byte, out []byte) error {
	_, err := onGPU(device, p.Op, func(g *exec.GPUBackend) (any, error) { return nil, runGuarded(g, p, inputs, out) })
	return err
}

// RunOnto is [Run] of a plan that changes what its output has instead of writing all of it: out.
func RunOnto(device int, p *kernels.Plan, inputs [][]byte, out []byte) error {
	_, err := onGPU(device, p.Op, func(g *exec.GPUBackend) (any, error) { return nil, runOnto(g, p, inputs, out, out) })
	return err
}

// onGPU calls do with a device, which it closes. An error of do names what was done.
func onGPU[T any](device int, what string, do func(g *exec.GPUBackend) (T, error)) (result T, err error) {
	g, err := exec.OpenGPU(device)
	if err != nil {
		return result, err
	}
	result, err = do(g)
	if err = errors.Join(err, g.Close()); err != nil {
		err = fmt.Errorf("bench: %s: %w", what, err)
	}
	return result, err
}

// guard is the number of bytes between operands. poison fills these bytes and output and scratch memory: NaN in any float type.
const (
	guard  = 2 * program.Alignment
	poison = 0xff
)

// checkInputs returns an error if inputs do not have the plan's sizes.
func checkInputs(p *kernels.Plan, inputs [][]byte) error {
	if len(inputs) != len(p.Inputs) {
		return fmt.Errorf("got %d inputs, want %d", len(inputs), len(p.Inputs))
	}
	for i, m := range inputs {
		if int64(len(m)) != p.Inputs[i] {
			return fmt.Errorf("input %d has %d bytes, want %d", i, len(m), p.Inputs[i])
		}
	}
	return nil
}

// runGuarded runs a plan with guards around each operand.
func runGuarded(b exec.Backend, p *kernels.Plan, inputs [][]byte, out []byte) error {
	return runOnto(b, p, inputs, out, nil)
}

// runOnto is runGuarded with an output that first has the bytes of first, or is poisoned if that is nil.
func runOnto(b exec.Backend, p *kernels.Plan, inputs [][]byte, out, first []byte) error {
	if err := checkInputs(p, inputs); err != nil {
		return err
	}
	if int64(len(out)) != p.Out {
		return fmt.Errorf("got %d bytes for the output, want %d", len(out), p.Out)
	}
	end := int64(guard)
	var spans []exec.Span // of the inputs, the output and scratch memory
	var names []kernels.Operand
	for i, size := range append(slices.Clone(p.Inputs), p.Out, p.Scratch) {
		spans, names = append(spans, exec.Span{Offset: end, Size: size}), append(names, kernels.Operand(i))
		end += padded(size) + guard
	}
	n := len(inputs)
	names[n], names[n+1] = kernels.Out, kernels.Scratch
	if err := b.Alloc(end); err != nil {
		return err
	}
	before := bytes.Repeat([]byte{poison}, int(end))
	for i, m := range inputs {
		copy(before[spans[i].Offset:], m)
	}
	copy(before[spans[n].Offset:], first)
	arena := exec.Span{Offset: 0, Size: end}
	if err := b.Upload(arena, before); err != nil {
		return err
	}
	run, err := b.Bind(p, spans[:n], exec.Outputs(p, spans[n]), spans[n+1])
	if err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	after := make([]byte, end)
	if err := b.Download(after, arena); err != nil {
		return err
	}
	if err := b.Sync(); err != nil {
		return err
	}
	copy(out, after[spans[n].Offset:])
	for _, s := range spans[n:] { // memory that the plan writes
		copy(after[s.Offset:s.Offset+s.Size], before[s.Offset:])
	}
	if bytes.Equal(before, after) {
		return nil
	}
	at := int64(0)
	for before[at] == after[at] {
		at++
	}
	for i, s := range spans {
		switch {
		case at < s.Offset:
			return fmt.Errorf("the plan wrote %d bytes before the start of %v", s.Offset-at, names[i])
		case at < s.Offset+s.Size:
			return fmt.Errorf("the plan wrote its input %v, at byte %d", names[i], at-s.Offset)
		case at < s.Offset+s.Size+guard/2:
			return fmt.Errorf("the plan wrote %d bytes past the end of %v", at-s.Offset-s.Size+1, names[i])
		}
	}
	return fmt.Errorf("the plan wrote outside its operands")
}
