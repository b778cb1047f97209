package program_test

import (
	"hash"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	. "github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// graph is one with every kind of instruction: inputs, a constant, kernels with
// and without scratch memory, a host op, aliases on both sides, copies, random numbers.
func graph() *G.ExprGraph {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(6, 1000), G.WithInit(G.Uniform(-1, 1)))
	y := G.NewMatrix(g, tensor.Float64, G.WithName("y"), G.WithShape(6, 1000), G.WithInit(G.Uniform(-1, 1)))
	one := g.AddNode(G.NewConstant(tensor.Ones(tensor.Float64, 6, 1000)))
	sum := G.Must(ops.Add(G.Must(ops.Add(x, y)), one))
	flat := G.Must(G.Reshape(sum, tensor.Shape{6000}))
	tanh := G.Must(G.Tanh(G.Must(G.Reshape(flat, tensor.Shape{3, 2000}))))
	hosted := G.Must(G.ApplyOp(foreign{tanh.Op()}, tanh))
	G.Must(ops.WindowSum(G.Must(G.Reshape(hosted, tensor.Shape{6000})), 1000))
	G.Must(ops.Dot(flat, flat))
	G.Must(G.Dropout(y, 0.5))
	return g
}

// foreign is an op of another module, which only the host has.
type foreign struct{ G.Op }

// WriteHash distinguishes the op from the one that it wraps.
func (f foreign) WriteHash(h hash.Hash) { h.Write([]byte("foreign")); f.Op.WriteHash(h) }

// placed returns the graph's program, placed, and the values of its inputs.
func placed(t *testing.T) (*Program, []G.Value) {
	t.Helper()
	g, err := lower.New(graph(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := passes.Run(g.Program, passes.Target{Device: kernels.HostDevice()}, nil); err != nil {
		t.Fatal(err)
	}
	var in []G.Value
	for _, n := range g.Inputs {
		in = append(in, n.Value())
	}
	return g.Program, in
}

// find returns the first instruction that f takes, and its index.
func find(t *testing.T, p *Program, f func(*Instr) bool) (int, *Instr) {
	t.Helper()
	i := slices.IndexFunc(p.Instrs, f)
	if i < 0 {
		t.Fatalf("no such instruction in\n%v", p)
	}
	return i, p.Instrs[i]
}

func isKernel(in *Instr) bool { return Launches(in.Op) }
func isHost(in *Instr) bool   { _, ok := in.Op.(Host); return ok }
func isCopy(in *Instr) bool   { _, ok := in.Op.(Copy); return ok }
func isRandom(in *Instr) bool { return len(in.Out) > 0 && in.Out[0].IsRandom() }
func isAlias(in *Instr) bool  { _, ok := in.Op.(Alias); return ok }

// faults are faults of a pass, with words of the error that must report each.
var faults = map[string]struct {
	want  string
	plant func(t *testing.T, p *Program)
}{
	"use before definition": {"before it is defined", func(t *testing.T, p *Program) {
		i, in := find(t, p, isKernel)
		p.Instrs = slices.Insert(slices.Delete(p.Instrs, i, i+1), 0, in)
	}},
	"instruction lost": {"before it is defined", func(t *testing.T, p *Program) {
		i, _ := find(t, p, isCopy)
		p.Instrs = slices.Delete(p.Instrs, i, i+1)
	}},
	"defined twice": {"defined twice", func(t *testing.T, p *Program) {
		_, in := find(t, p, isKernel)
		p.Instrs = append(p.Instrs, in)
	}},
	"wrong definition": {"names another instruction", func(t *testing.T, p *Program) {
		_, in := find(t, p, isKernel)
		in.Out[0].Def = p.Instrs[0]
	}},
	"kernel reads the host": {"is on the host, want the device", func(t *testing.T, p *Program) {
		_, copied := find(t, p, isCopy)
		_, in := find(t, p, isKernel)
		in.In[0] = copied.In[0]
	}},
	"host reads the device": {"is on the device, want the host", func(t *testing.T, p *Program) {
		_, in := find(t, p, isHost)
		_, k := find(t, p, isKernel)
		in.In[0] = k.Out[0]
	}},
	"random numbers before the first": {"random numbers of f64 from -1 on", func(t *testing.T, p *Program) {
		_, in := find(t, p, isRandom)
		in.Out[0].View.Offset = -1
	}},
	"random numbers of no state": {"has for its state", func(t *testing.T, p *Program) {
		_, in := find(t, p, isRandom)
		in.In[0].Base.Shape = tensor.Shape{3}
	}},
	"copy to nowhere": {"moves nothing", func(t *testing.T, p *Program) {
		_, in := find(t, p, isCopy)
		in.Out[0].Space = OnHost
	}},
	"kernel without plan": {"has no plan", func(t *testing.T, p *Program) {
		_, in := find(t, p, isKernel)
		in.Plan = nil
	}},
	"plan of another size": {"its plan wants", func(t *testing.T, p *Program) {
		_, in := find(t, p, isKernel)
		in.Plan.Inputs[1] += 8
	}},
	"plan of another output": {"its plan", func(t *testing.T, p *Program) {
		_, in := find(t, p, isKernel)
		in.Plan.Out -= 8
	}},
	"plan of another number of inputs": {"takes 1 inputs", func(t *testing.T, p *Program) {
		_, in := find(t, p, isKernel)
		plan := in.Plan
		plan.Inputs = plan.Inputs[:1]
	}},
	"view outside its base": {"is not within its base", func(t *testing.T, p *Program) {
		_, in := find(t, p, isAlias)
		in.Out[0].View.Offset = 1
	}},
	"view backwards": {"is not within its base", func(t *testing.T, p *Program) {
		_, in := find(t, p, isAlias)
		in.Out[0].View.Strides[0] *= -1
	}},
	"view of another rank": {"strides", func(t *testing.T, p *Program) {
		_, in := find(t, p, isAlias)
		in.Out[0].View.Strides = append(in.Out[0].View.Strides, 1)
	}},
	"alias of nothing": {"no alias", func(t *testing.T, p *Program) {
		_, in := find(t, p, isAlias)
		in.Out[0].Base = in.Out[0]
	}},
	"strided operand of a plan": {"row-major", func(t *testing.T, p *Program) {
		_, in := find(t, p, func(in *Instr) bool { return isKernel(in) && in.In[0].Base != in.In[0] })
		in.In[0].View.Strides[0] = 0
	}},
	"output that nobody defines": {"defined nowhere", func(t *testing.T, p *Program) {
		p.Outputs = append(p.Outputs, &Value{ID: 99})
	}},
	"output on the device": {"want the host", func(t *testing.T, p *Program) {
		_, in := find(t, p, isKernel)
		p.Outputs = append(p.Outputs, in.Out[0])
	}},
	"no buffer": {"has no buffer", func(t *testing.T, p *Program) {
		_, in := find(t, p, isKernel)
		in.Out[0].Buffer = nil
	}},
	"buffer too small": {"its buffer has", func(t *testing.T, p *Program) {
		_, in := find(t, p, isKernel)
		in.Out[0].Buffer.Size--
	}},
	"buffer dies early": {"is alive from", func(t *testing.T, p *Program) {
		_, in := find(t, p, isKernel)
		in.Out[0].Buffer.Death = in.Out[0].Buffer.Birth
	}},
	"constant dies": {"is alive from", func(t *testing.T, p *Program) {
		p.Setup[len(p.Setup)-1].Out[0].Buffer.Death = 0
	}},
	"buffers share memory": {"share memory", func(t *testing.T, p *Program) {
		_, in := find(t, p, isKernel)
		in.Out[0].Buffer.Offset = in.In[0].Base.Buffer.Offset
	}},
	"buffer beyond the arena": {"in memory of", func(t *testing.T, p *Program) { p.Arena -= Alignment }},
	"no scratch memory": {"has no buffer", func(t *testing.T, p *Program) {
		_, in := find(t, p, func(in *Instr) bool { return in.Scratch != nil })
		in.Scratch = nil
	}},
	"scratch memory too small": {"bytes of scratch memory", func(t *testing.T, p *Program) {
		_, in := find(t, p, func(in *Instr) bool { return in.Scratch != nil })
		in.Scratch.Size = 1
	}},
	"no op": {"without op", func(t *testing.T, p *Program) { p.Instrs[0].Op = nil }},
	"two outputs": {"2 outputs", func(t *testing.T, p *Program) {
		_, in := find(t, p, isHost)
		p.NewValue(in, "second", in.Out[0].Type).Space = OnHost
	}},
}

// Each fault that a pass could make is found, and named.
func TestVerifyFindsFaults(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			p, _ := placed(t)
			if err := Verify(p); err != nil {
				t.Fatalf("before the fault: %v", err)
			}
			f.plant(t, p)
			if err := Verify(p); err == nil || !strings.Contains(err.Error(), f.want) {
				t.Errorf("got %v, want an error with %q", err, f.want)
			}
		})
	}
}

// A program whose buffers share memory wrongly computes something else: Eval runs
// in the places that the program names.
func TestEvalRunsInPlace(t *testing.T) {
	p, in := placed(t)
	want, err := p.Eval(in)
	if err != nil {
		t.Fatal(err)
	}
	_, k := find(t, p, func(in *Instr) bool { return in.Scratch != nil })
	k.Scratch.Offset = k.In[0].Base.Buffer.Offset // its input
	got, err := p.Eval(in)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		a, _ := values.Bytes(want[i])
		b, _ := values.Bytes(got[i])
		if string(a) != string(b) {
			return
		}
	}
	t.Error("scratch memory over an input changes nothing")
}

func TestEvalErrors(t *testing.T) {
	p, in := placed(t)
	if _, err := p.Eval(in[:1]); err == nil || !strings.Contains(err.Error(), "got 1 inputs, want 3") {
		t.Errorf("too few inputs give %v", err)
	}
	bad := tensor.New(tensor.WithShape(2), tensor.WithBacking([]string{"a", "b"}))
	if _, err := p.Eval([]G.Value{bad, in[1], in[2]}); err == nil {
		t.Error("an input of strings gives no error")
	}
}

// The parts of a concatenation make its output.
func TestConcat(t *testing.T) {
	joined := func(out Type, types ...Type) *Program {
		p := new(Program)
		def := &Instr{Op: Concat{Axis: 1}}
		for _, of := range types {
			in := &Instr{Op: Input{}}
			p.Instrs, def.In = append(p.Instrs, in), append(def.In, p.NewValue(in, "part", of))
		}
		p.Instrs = append(p.Instrs, def)
		p.Outputs = []*Value{p.NewValue(def, "out", out)}
		return p
	}
	of := func(dt kernels.Dtype, shape ...int) Type { return Type{Numeric: true, Dtype: dt, Shape: shape} }
	p := joined(of(kernels.Float64, 2, 3), of(kernels.Float64, 2, 1), of(kernels.Float64, 2, 2))
	if err := Verify(p); err != nil {
		t.Fatal(err)
	}
	x := tensor.New(tensor.WithShape(2, 1), tensor.WithBacking([]float64{1, 2}))
	y := tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{3, 4, 5, 6}))
	out, err := p.Eval([]G.Value{x, y})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := out[0].Data().([]float64), []float64{1, 3, 4, 2, 5, 6}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, c := range []struct {
		p    *Program
		want string
	}{
		{joined(of(kernels.Float64, 2, 4), of(kernels.Float64, 2, 1), of(kernels.Float64, 2, 2)), "makes 3 elements"},
		{joined(of(kernels.Float64, 2, 3), of(kernels.Float64, 3, 1), of(kernels.Float64, 2, 2)), "concat along 1 puts"},
		{joined(of(kernels.Float64, 2, 3), of(kernels.Float32, 2, 1), of(kernels.Float64, 2, 2)), "concat along 1 puts"},
		{joined(of(kernels.Float64, 2, 3)), "makes 0 elements"},
	} {
		if err := Verify(c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

// A view of a large state counts with the elements that are read.
func TestTraffic(t *testing.T) {
	p := new(Program)
	f := Type{Numeric: true, Dtype: kernels.Float32, Shape: tensor.Shape{1000}}
	all := p.NewValue(&Instr{Op: State{}}, "all", f)
	f.Shape = tensor.Shape{10}
	x := p.EmitAlias(nil, "x", f, all, View{Strides: []int64{1}, Offset: 512})
	in := testutil.Get[*Instr](t)(p.Copied(x))
	plan := testutil.Get[*kernels.Plan](t)(in.PlanFor(kernels.HostDevice()))
	if got := in.Traffic(plan); got != 80 {
		t.Errorf("got %d bytes, want 80: 40 read and 40 written", got)
	}
	// A gather reads the rows at its indices, at most as many as the table has.
	for rows, want := range map[int]int64{50_000: 8*3 + 2*3*4*7, 2: 8*3 + (2+3)*4*7} {
		table, index := f, f
		table.Shape, index.Shape, index.Dtype = tensor.Shape{rows, 7}, tensor.Shape{3}, kernels.Int64
		in := &Instr{In: []*Value{p.NewValue(&Instr{Op: State{}}, "table", table), p.NewValue(&Instr{Op: State{}}, "index", index)}}
		plan := testutil.Get[*kernels.Plan](t)(basic.Gather(kernels.HostDevice(), kernels.Float32, table.Shape, 0, 3))
		if got := in.Traffic(plan); got != want {
			t.Errorf("3 of %d rows: got %d bytes, want %d", rows, got, want)
		}
	}
}
