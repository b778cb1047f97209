//go:build !cuda

package tape

import (
	"errors"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"gorgonia.org/gorgonia"
)

// compile sets the machine's program, the graph's with its ops guarded.
func compile(g *gorgonia.ExprGraph) (gorgonia.VMOpt, error) {
	program, registers, err := gorgonia.Compile(g)
	if err != nil {
		return nil, err
	}
	t, err := internal.OpenTape(program)
	if err != nil {
		return nil, err
	}
	if err := t.EachOp(guard); err != nil {
		return nil, err
	}
	return gorgonia.WithPrecompiled(program, registers), nil
}

// closable has nothing to wait for here.
func closable(gorgonia.VM) error { return nil }

// inOrder has nothing to do here: the host's ops handle strides.
func inOrder(*gorgonia.ExprGraph, gorgonia.VM) (restore func(), err error) { return func() {}, nil }

// keep has nothing to do here: all values are in Go's memory.
func keep(*gorgonia.ExprGraph, gorgonia.VM) error { return nil }

// rewind makes the machine ready for another run.
func rewind(vm gorgonia.VM) { vm.Reset() }

// A binder has nothing to do here: the machine binds gradients itself.
type binder struct{}

func takeBinding(*gorgonia.ExprGraph, gorgonia.VM) (*binder, error) { return nil, nil }

func (*binder) bind() error { return nil }

// watch has nothing to do here: the machine sees all values.
func watch(gorgonia.VM) error { return nil }

// toHostOnly has nothing to do here.
func toHostOnly(gorgonia.VM) error { return nil }

// Available returns why Gorgonia's machines cannot run kernels: the program was
// built without the tag cuda.
func Available() error {
	return errors.New("tape: this program was built without the tag cuda")
}

// check has no device to ask for.
func check(*gorgonia.ExprGraph) error { return nil }
