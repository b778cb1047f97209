package tape_test

import (
	"errors"
	"hash"
	"io"
	"strings"
	"testing"

	"github.com/chewxy/hm"
	"github.com/stheno-ml/stheno/cudaops/tape"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var errFaulty = errors.New("no number")

// faulty is an op of one vector that panics.
type faulty struct{ with any }

func (faulty) Arity() int    { return 1 }
func (faulty) Type() hm.Type { a := hm.TypeVariable('a'); return hm.NewFnType(a, a) }
func (faulty) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	return in[0].(tensor.Shape), nil
}
func (f faulty) Do(...gorgonia.Value) (gorgonia.Value, error) { panic(f.with) }
func (faulty) ReturnsPtr() bool                               { return true }
func (faulty) CallsExtern() bool                              { return false }
func (faulty) OverwritesInput() int                           { return -1 }
func (faulty) WriteHash(h hash.Hash)                          { io.WriteString(h, "faulty") }
func (faulty) Hashcode() uint32                               { return 1 }
func (faulty) String() string                                 { return "faulty" }

// faultyPrealloc and faultyUnsafe panic in the other ways that a machine has to
// run an op.
type faultyPrealloc struct{ faulty }

func (faultyPrealloc) CallsExtern() bool { return true } // so that the output is allocated
func (f faultyPrealloc) UsePreallocDo(gorgonia.Value, ...gorgonia.Value) (gorgonia.Value, error) {
	panic(f.with)
}

type faultyUnsafe struct{ faulty }

func (faultyUnsafe) OverwritesInput() int                                 { return 0 }
func (f faultyUnsafe) UnsafeDo(...gorgonia.Value) (gorgonia.Value, error) { panic(f.with) }

// An op that panics is an error of RunAll that names it, and the machine can be
// closed.
func TestOpPanics(t *testing.T) {
	for name, op := range map[string]gorgonia.Op{
		"Do": faulty{errFaulty}, "UsePreallocDo": faultyPrealloc{faulty{errFaulty}}, "UnsafeDo": faultyUnsafe{faulty{errFaulty}},
		"a text": faulty{"no number"},
	} {
		t.Run(name, func(t *testing.T) {
			g := gorgonia.NewGraph()
			x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3),
				gorgonia.WithValue(tensor.New(tensor.WithBacking([]float64{1, 2, 3}))))
			gorgonia.Must(gorgonia.ApplyOp(op, x))
			vm, err := tape.NewMachine(g)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the machine's thread lives on
				err = vm.RunAll()
				if err == nil || !strings.Contains(err.Error(), "faulty panicked: no number") {
					t.Errorf("RunAll gives %v, want the panic of the op", err)
				}
				vm.Reset()
			}
			if err := vm.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
