package tape_test

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/tape"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func square() (g *gorgonia.ExprGraph, x, y *gorgonia.Node) {
	g = gorgonia.NewGraph()
	x = gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3),
		gorgonia.WithValue(tensor.New(tensor.WithBacking([]float64{1, 2, 3}))))
	return g, x, gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(x))))
}

// On any machine: right values and gradients, again after Reset and, what is
// on the host at least, after Close.
func TestNewMachine(t *testing.T) {
	for name, make := range map[string]func(*gorgonia.ExprGraph, ...gorgonia.VMOpt) (gorgonia.VM, error){
		"tape": tape.NewMachine, "lisp": tape.NewLispMachine,
	} {
		t.Run(name, func(t *testing.T) {
			g, x, y := square()
			if name == "tape" {
				if _, err := gorgonia.Grad(y, x); err != nil {
					t.Fatal(err)
				}
			}
			vm, err := make(g)
			if err != nil && tape.Available() != nil && strings.Contains(err.Error(), "stheno.NewVM") {
				t.Skip(err) // the tag without a device
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := vm.RunAll(); err != nil {
					t.Fatal(err)
				}
				if got := y.Value().Data(); got != 14.0 {
					t.Errorf("got %v, want 14", got)
				}
				grad, err := x.Grad()
				if err != nil {
					t.Fatal(err)
				}
				if got := grad.Data().([]float64); got[0] != 2 || got[2] != 6 {
					t.Errorf("gradient %v, want [2 4 6]", got)
				}
				if name == "lisp" {
					break // it adds gradients up
				}
				vm.Reset()
			}
			for range 2 {
				if err := vm.Close(); err != nil {
					t.Error(err)
				}
			}
			if got := y.Value().Data(); got != 14.0 {
				t.Errorf("after Close: got %v, want 14", got)
			}
			if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "closed") {
				t.Errorf("RunAll after Close gives %v", err)
			}
			vm.Reset()
		})
	}
}

func TestNewMachineBadInput(t *testing.T) {
	for _, make := range []func(*gorgonia.ExprGraph, ...gorgonia.VMOpt) (gorgonia.VM, error){tape.NewMachine, tape.NewLispMachine} {
		if _, err := make(nil); err == nil {
			t.Error("a nil graph gives no error")
		}
	}
	if _, err := tape.NewMachine(gorgonia.NewGraph()); err == nil {
		t.Error("an empty graph gives no error")
	}
}
