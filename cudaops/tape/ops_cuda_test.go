//go:build cuda

package tape_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/internal/test/suite"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// This file runs every op of package opspec on Gorgonia's own machines, on a device.

func lispForward(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
	return tape.NewLispMachine(g, gorgonia.ExecuteFwdOnly())
}

// lockedMachine is Gorgonia's unmodified machine, used as docs/cuda-tag.md prescribes: it must stay on its thread, here the thread of
// the test's goroutine.
func lockedMachine(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
	runtime.LockOSThread()
	return gorgonia.NewTapeMachine(g), nil
}

const (
	valueElements    = 1 << 18 // of a case's inputs, for values
	gradientElements = 5000    // for gradients
)

// TestGorgoniaMachine: values on Gorgonia's tape machine, put right by package
// tape.
func TestGorgoniaMachine(t *testing.T) {
	eachBatch(t, valueElements, everyOp, func(t *testing.T, b batch) {
		b.checkValues(t, func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return tape.NewMachine(g) })
	})
}

// TestGorgoniaMachineGradients: Grad there, in a graph with ops of Gorgonia's,
// with and without BindDualValues.
func TestGorgoniaMachineGradients(t *testing.T) {
	eachBatch(t, gradientElements, withGradient, func(t *testing.T, b batch) {
		var got [2][][][]float64
		for i := range got {
			g, err := b.differentiated()
			if err != nil {
				t.Fatal(err)
			}
			var opts []gorgonia.VMOpt
			if i == 1 {
				opts = append(opts, gorgonia.BindDualValues(g.all...))
			}
			vm, err := tape.NewMachine(g.graph, opts...)
			if err != nil {
				t.Fatal(err)
			}
			if got[i], err = g.gradients(vm); err != nil {
				t.Fatalf("BindDualValues %v: %v", i == 1, err)
			}
		}
		b.checkGradients(t, got[0], got[1])
	})
}

// TestGorgoniaMachineLocked: values on Gorgonia's tape machine as it is.
func TestGorgoniaMachineLocked(t *testing.T) {
	eachBatch(t, valueElements, everyOp, func(t *testing.T, b batch) { b.checkValues(t, lockedMachine) })
}

// TestGorgoniaMachineLockedGradients: SymDiff there. No op of Gorgonia's is in the
// graph, since more than 20 of them in a row go wrong there, and nothing is bound
// by BindDualValues, which returns zeros there (docs/cuda-tag.md describes both): the
// derivatives by the outputs are given to Backpropagate, which Grad calls with a 1
// for a loss.
func TestGorgoniaMachineLockedGradients(t *testing.T) {
	eachBatch(t, gradientElements, withGradient, func(t *testing.T, b batch) {
		g, err := b.bundle()
		if err != nil {
			t.Fatal(err)
		}
		g.weigh()
		if _, err := gorgonia.Backpropagate(g.outputs, g.weights, g.all); err != nil {
			t.Fatal(err)
		}
		vm, err := lockedMachine(g.graph)
		if err != nil {
			t.Fatal(err)
		}
		got, err := g.gradients(vm)
		if err != nil {
			t.Fatal(err)
		}
		b.checkGradients(t, got)
	})
}

// TestGorgoniaMachineLisp: values on Gorgonia's LispMachine, on the host with the
// ops of a device's graph. gorgonia.NewLispMachine itself, on the device, has too
// small a pool, and gradients that start from undefined memory.
func TestGorgoniaMachineLisp(t *testing.T) {
	eachBatch(t, valueElements, floatOp, func(t *testing.T, b batch) { b.checkValues(t, lispForward) })
}

// TestGorgoniaMachineLispGradients: DoDiff there.
func TestGorgoniaMachineLispGradients(t *testing.T) {
	eachBatch(t, gradientElements, withGradient, func(t *testing.T, b batch) {
		g, err := b.bundle()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.loss(); err != nil {
			t.Fatal(err)
		}
		vm, err := tape.NewLispMachine(g.graph)
		if err != nil {
			t.Fatal(err)
		}
		got, err := g.gradients(vm)
		if err != nil {
			t.Fatal(err)
		}
		b.checkGradients(t, got)
	})
}

// A preallocated op keeps the value that the machine passed it for its output, and the one
// that it returned.
type preallocated struct {
	gorgonia.Op
	given, gave gorgonia.Value
}

func (p *preallocated) CUDADo(extern gorgonia.External, dev gorgonia.Device, prealloc gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	do, ok := p.Op.(gorgonia.CUDADoer)
	if !ok {
		return nil, fmt.Errorf("%v is a %T, no gorgonia.CUDADoer", p.Op, p.Op)
	}
	out, err := do.CUDADo(extern, dev, prealloc, in...)
	p.given, p.gave = prealloc, out
	return out, err
}

// TestGorgoniaMachinePreallocated: an op writes into the value that the machine
// passes it for its output, and returns that value, no other one on its memory.
func TestGorgoniaMachinePreallocated(t *testing.T) {
	eachBatch(t, gradientElements, everyOp, func(t *testing.T, b batch) {
		seen := make([]*preallocated, len(b.cases))
		for i, c := range b.cases {
			if c.Composed {
				continue
			}
			_, out, err := c.Nodes(b.dt, nil)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			seen[i] = &preallocated{Op: out.Op()}
			b.cases[i].Build = func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.ApplyOp(seen[i], in...) }
		}
		b.checkValues(t, func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return tape.NewMachine(g) })
		for i, c := range b.cases {
			if p := seen[i]; p != nil && (p.given == nil || p.gave != p.given) {
				t.Errorf("%s: CUDADo gave %T %p for the preallocated %T %p", c.Name, p.gave, p.gave, p.given, p.given)
			}
		}
	})
}

// doubled returns the graph of a vector, 1 to 3, added to itself.
func doubled() (*gorgonia.ExprGraph, *gorgonia.Node, error) {
	g := gorgonia.NewGraph()
	a := gorgonia.NewVector(g, gorgonia.Float32, gorgonia.WithName("a"), gorgonia.WithShape(3), gorgonia.WithInit(gorgonia.RangedFrom(1)))
	sum, err := ops.Add(a, a)
	return g, sum, err
}

// TestGorgoniaMachineLoop makes, runs and closes machines consecutively,
// within a time limit.
func TestGorgoniaMachineLoop(t *testing.T) {
	suite.GPU(t)
	if err := tape.Available(); err != nil {
		t.Fatal(err)
	}
	turns := 10
	if testing.Short() {
		turns = 3
	}
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			for range turns {
				g, out, err := doubled()
				if err != nil {
					return err
				}
				vm, err := tape.NewMachine(g)
				if err != nil {
					return err
				}
				if err := vm.RunAll(); err != nil {
					return err
				}
				if err := vm.Close(); err != nil {
					return err
				}
				if x, err := suite.Numbers(out.Value()); err != nil || x[2] != 6 {
					return fmt.Errorf("got %v (%v), want 6 last", x, err)
				}
			}
			return nil
		}()
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(60 * time.Second):
		fmt.Fprintln(os.Stderr, "a machine hangs")
		panic("a machine hangs: the stacks follow")
	}
}
