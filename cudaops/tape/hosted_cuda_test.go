//go:build cuda

package tape

import (
	"fmt"
	"reflect"
	"testing"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Ops that are wrong on a device run on the host, with right values, and need no
// device; the graph keeps its ops.
func TestHosted(t *testing.T) {
	g := gorgonia.NewGraph()
	in := func(v any) *gorgonia.Node {
		return gorgonia.NodeFromAny(g, v, gorgonia.WithName(fmt.Sprint("in", len(g.AllNodes()))))
	}
	vector := func(backing any) *tensor.Dense { return tensor.New(tensor.WithBacking(backing)) }
	a, b := in(6), in(7)
	x, y := in(vector([]float32{1, 2, 3})), in(vector([]float32{2, 2, 2}))
	k := in(vector([]int64{1 << 40, 2, 3}))
	s := in(2.5)
	out := gorgonia.Nodes{
		gorgonia.Must(gorgonia.Mul(a, b)),
		gorgonia.Must(gorgonia.HadamardProd(k, k)),
		gorgonia.Must(gorgonia.Lt(x, y, false)),
		gorgonia.Must(gorgonia.Gte(s, s, false)),
	}
	want := []any{42, []int64{0, 4, 9}, []bool{true, false, false}, true}
	ops := make([]gorgonia.Op, len(out))
	for i, n := range out {
		ops[i] = n.Op()
	}
	option, err := compile(g)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range out {
		if n.Op() != ops[i] {
			t.Errorf("%v: the graph's op is now %#v", n, n.Op())
		}
	}
	vm := gorgonia.NewTapeMachine(g, option)
	for range 2 {
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		for i, n := range out {
			if got := n.Value().Data(); !reflect.DeepEqual(got, want[i]) {
				t.Errorf("%v: got %v, want %v", ops[i], got, want[i])
			}
		}
		vm.Reset()
	}
	if err := vm.Close(); err != nil {
		t.Error(err)
	}
}

// Ops that are right on a device stay there, and their results are copied to an op on
// the host.
func TestHostedBetween(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3))
	y := gorgonia.Must(gorgonia.Tanh(x))
	same, less := gorgonia.Must(gorgonia.Lt(x, y, true)), gorgonia.Must(gorgonia.Lt(y, x, false))
	restore, err := host(g)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[*gorgonia.Node]bool{x: false, y: false, same: false, less: true} {
		if _, got := n.Op().(hosted); got != want {
			t.Errorf("%v on the host: %v, want %v", n, got, want)
		}
	}
	program, _, err := gorgonia.Compile(g)
	restore()
	if err != nil {
		t.Fatal(err)
	}
	tape, err := internal.OpenTape(program)
	if err != nil {
		t.Fatal(err)
	}
	copies, onHost := 0, 0
	for _, i := range tape.Instructions() {
		if i.ToHost() {
			copies++
		}
		if i.Kind() == "execOp" && !i.OnDevice() {
			onHost++
		}
	}
	if copies != 1 || onHost != 1 {
		t.Errorf("%d copies to the host and %d ops there, want 1 and 1:\n%v", copies, onHost, program)
	}
	if _, ok := less.Op().(gorgonia.CUDADoer); !ok {
		t.Errorf("the graph's op is now %#v", less.Op())
	}
}
