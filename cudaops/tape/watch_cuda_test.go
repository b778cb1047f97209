//go:build cuda

package tape

import (
	"math"
	"strings"
	"testing"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestLook(t *testing.T) {
	op := watched{}.Op
	vector := func(x ...float64) gorgonia.Value { return tensor.New(tensor.WithBacking(x)) }
	for _, c := range []struct {
		nan, inf bool
		value    gorgonia.Value
		want     string // in the error, "" for none
	}{
		{true, false, vector(1, math.NaN()), "NaN found"},
		{true, false, vector(1, math.Inf(1)), ""},
		{false, true, vector(1, math.NaN()), ""},
		{false, true, vector(1, 2, math.Inf(-1)), "-Inf found"},
		{true, true, vector(1, 2), ""},
		{true, true, tensor.New(tensor.WithBacking([]float32{1, float32(math.Inf(1))})), "element 1 of 2"},
		{true, true, tensor.New(tensor.WithBacking([]int64{1, 2})), ""},
		{true, true, gorgonia.NewF32(float32(math.NaN())), "NaN found"},
	} {
		err := watched{op, c.nan, c.inf}.look(c.value)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("NaN %v, Inf %v, %v: got %v, want %q", c.nan, c.inf, c.value, err, c.want)
		}
	}
}

// The fields and bits of a machine that watch reads are those that Gorgonia's
// options set, and every op for CUDA of its program is watched.
func TestWatch(t *testing.T) {
	for name, c := range map[string]struct {
		opts     []gorgonia.VMOpt
		nan, inf bool
	}{
		"none": {},
		"NaN":  {[]gorgonia.VMOpt{gorgonia.WithNaNWatch()}, true, false},
		"Inf":  {[]gorgonia.VMOpt{gorgonia.WithInfWatch()}, false, true},
		"both": {[]gorgonia.VMOpt{gorgonia.WithNaNWatch(), gorgonia.WithInfWatch()}, true, true},
	} {
		vm := gorgonia.NewTapeMachine(gorgonia.NewGraph(), append(c.opts, emptyProgram(t))...)
		g := gorgonia.NewGraph()
		x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3))
		gorgonia.Must(gorgonia.Tanh(x))
		program, _, err := gorgonia.Compile(g)
		if err != nil {
			t.Fatal(err)
		}
		// A machine made with it would ask for a device.
		if err := internal.SetMachineTape(vm, program); err != nil {
			t.Fatal(err)
		}
		if err := watch(vm); err != nil {
			t.Fatal(err)
		}
		ops := 0
		tape, err := internal.OpenTape(program)
		if err != nil {
			t.Fatal(err)
		}
		err = tape.EachOp(func(op gorgonia.Op) gorgonia.Op {
			ops++
			w, ok := op.(watched)
			if ok != (c.nan || c.inf) || w.nan != c.nan || w.inf != c.inf {
				t.Errorf("%s: the op is %#v", name, op)
			}
			return op
		})
		if err != nil {
			t.Fatal(err)
		}
		if ops != 1 {
			t.Errorf("%s: %d ops in the program, want 1", name, ops)
		}
	}
}

// emptyProgram is the program of a graph that needs no device.
func emptyProgram(t *testing.T) gorgonia.VMOpt {
	g := gorgonia.NewGraph()
	gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3))
	program, registers, err := gorgonia.Compile(g)
	if err != nil {
		t.Fatal(err)
	}
	return gorgonia.WithPrecompiled(program, registers)
}
