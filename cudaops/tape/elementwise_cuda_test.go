//go:build cuda

package tape

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Every element-wise op of Gorgonia's, in every form, finds the kernel that
// Gorgonia's engine asks for, with the operands in their places.
func TestElementWise(t *testing.T) {
	out, in := kernels.Ref{Operand: kernels.Out}, func(i kernels.Operand) kernels.Ref { return kernels.Ref{Operand: i} }
	asked := append(askedBinary(t), askedUnary(t)...)
	used := map[string]bool{}
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		suffix := fmt.Sprintf("_f%d", dt.Size()*8)
		g := gorgonia.NewGraph()
		vector := func(name string) *gorgonia.Node {
			return gorgonia.NewVector(g, dt, gorgonia.WithName(name), gorgonia.WithShape(1000))
		}
		scalar := func(name string) *gorgonia.Node { return gorgonia.NewScalar(g, dt, gorgonia.WithName(name)) }
		value := func(n *gorgonia.Node) gorgonia.Value {
			switch {
			case !n.IsScalar():
				return tensor.New(tensor.Of(dt), tensor.WithShape(1000))
			case dt == tensor.Float32:
				return gorgonia.NewF32(0)
			}
			return gorgonia.NewF64(0)
		}
		check := func(n *gorgonia.Node, module, name string, args []any, operands ...*gorgonia.Node) {
			t.Helper()
			o, ok := substitute(n.Op()).(elementWise)
			if !ok {
				t.Fatalf("%v is a %T", n, substitute(n.Op()))
			}
			var values []gorgonia.Value
			for _, x := range operands {
				values = append(values, value(x))
			}
			p, ok := o.inPlace(value(n), values)
			if !ok {
				t.Errorf("%v has no kernel, want %s", n.Op(), name)
				return
			}
			plan, err := p.Plan(kernels.HostDevice())
			if err != nil {
				t.Fatal(err)
			}
			l := plan.Launches[0]
			if l.Kernel.Image != kernels.Builtin().Image(module) || l.Kernel.Entry != name || !slices.Equal(l.Args, args) || l.Grid[0]*l.Block[0] < n.Shape().TotalSize() {
				t.Errorf("%v plans %v of %s, want %s(%v)", n.Op(), l, l.Kernel.Image.Name(), name, args)
			}
			if full := module + "." + l.Kernel.Entry; !slices.Contains(asked, full) {
				t.Errorf("Gorgonia never asks for %s", full)
			} else {
				used[full] = true
			}
		}
		x, y, s, r := vector("x"), vector("y"), scalar("s"), scalar("r")
		for name, f := range map[string]func(a, b *gorgonia.Node) (*gorgonia.Node, error){
			"add": gorgonia.Add, "sub": gorgonia.Sub, "mul": gorgonia.HadamardProd, "div": gorgonia.HadamardDiv, "pow": gorgonia.Pow,
			"lt": same(gorgonia.Lt), "lte": same(gorgonia.Lte), "gt": same(gorgonia.Gt), "gte": same(gorgonia.Gte), "eq": same(gorgonia.Eq), "ne": same(gorgonia.Ne),
		} {
			check(gorgonia.Must(f(x, y)), "elembinop", name+"_vv"+suffix, []any{out, in(1), int64(1000)}, x, y)
			check(gorgonia.Must(f(x, s)), "elembinop", name+"_vs"+suffix, []any{out, in(1), int64(1000)}, x, s)
			check(gorgonia.Must(f(s, y)), "elembinop", name+"_sv"+suffix, []any{in(0), out, int64(1000)}, s, y)
			check(gorgonia.Must(f(s, r)), "elembinop", name+"_ss"+suffix, []any{out, in(1), int64(1)}, s, r)
		}
		for _, f := range unaryFunctions {
			n := gorgonia.Must(f(x))
			check(n, "elemunaryop", fmt.Sprint(n.Op())+suffix, []any{out, int64(1000)}, x)
		}
	}
	for _, name := range asked {
		if !used[name] && !slices.Contains(noOp, name[:len(name)-len("_vv_f32")]) {
			t.Errorf("no op of Gorgonia's uses %s", name)
		}
	}
}

// noOp are kernels that the engine asks for and no op of a graph does.
var noOp = []string{"elembinop.mod"}

func same(f func(a, b *gorgonia.Node, retSame bool) (*gorgonia.Node, error)) func(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return f(a, b, true) }
}

// Values that do not fit a kernel are left to Gorgonia.
func TestElementWiseRefuses(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3))
	o := elementWise{gorgonia.Must(gorgonia.Add(x, x)).Op()}
	v := func(shape ...int) gorgonia.Value {
		return tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(shape...))
	}
	ints := tensor.New(tensor.Of(tensor.Int), tensor.WithShape(3))
	for name, c := range map[string]struct{ out, a, b gorgonia.Value }{
		"no output":     {nil, v(3), v(3)},
		"other shapes":  {v(3), v(3), v(4)},
		"other output":  {v(4), v(3), v(3)},
		"integers":      {ints, ints, ints},
		"two types":     {v(3), v(3), ints},
		"to a Bool":     {tensor.New(tensor.Of(tensor.Bool), tensor.WithShape(3)), v(3), v(3)},
		"out of scalar": {v(3), gorgonia.NewF64(1), gorgonia.NewF64(1)},
	} {
		if p, ok := o.inPlace(c.out, []gorgonia.Value{c.a, c.b}); ok {
			t.Errorf("%s: got the kernel %s", name, p.kernel.Entry)
		}
	}
}
