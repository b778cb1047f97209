package cudaops

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestReport(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 2)
		h := testutil.Get[*G.Node](t)(foreign(z))
		testutil.Do(t, G.Let(a, vector(1, 2)))
		testutil.Do(t, G.Let(b, vector(1, 2)))
		vm := machine(t, g, on, Timed())
		for range 2 { // the figures are of the last run, not sums
			testutil.Do(t, vm.RunAll())
		}
		r := vm.Report()
		if r.In() != 32 || r.Out() != 16 || r.Runs != 2 || r.Time <= 0 || r.Peak != 512 || r.Arena != 512 {
			t.Errorf("in %d, out %d, runs %d, time %v, peak %d, arena %d", r.In(), r.Out(), r.Runs, r.Time, r.Peak, r.Arena)
		}
		for _, n := range r.Nodes {
			switch n.Name {
			case z.Name():
				if n.Where != r.Device || len(n.Kernels) != 1 || n.Kernels[0] != "map" || n.Time <= 0 || n.Out != 16 {
					t.Errorf("z: %+v", n)
				}
			case h.Name():
				if n.Where != "host" || len(n.Kernels) != 0 || n.Time <= 0 {
					t.Errorf("h: %+v", n)
				}
			}
		}
		if len(r.Steps) != 2 || r.Steps[0].Where != r.Device || r.Steps[0].Bytes != 48 || r.Steps[1].Where != "host" || r.Steps[1].Reason == "" || r.Steps[0].Time <= 0 || r.Steps[0].Op != "map f64, f64: x0 + x1" {
			t.Errorf("steps %+v", r.Steps)
		}
		text := r.String()
		for _, word := range []string{"map", r.Device, "1 by ops' own code on the host", "copied 32 B in, 16 B out", "512 B"} {
			if !strings.Contains(text, word) {
				t.Errorf("report does not say %q:\n%s", word, text)
			}
		}
	})
}

// A node that is lowered to several instructions, such as a softmax, is once in the step
// that all of them are fused into.
func TestReportOfSoftmax(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float32, G.WithShape(3, 4), G.WithName("x"))
		softmax := testutil.Get[*G.Node](t)(G.SoftMax(x))
		out := testutil.Get[*G.Node](t)(G.Tanh(softmax))
		r := machine(t, g, on).Report()
		if len(r.Steps) != 1 || !slices.Equal(r.Steps[0].Nodes, []string{internal.Name(softmax), internal.Name(out)}) {
			t.Errorf("got steps %+v, want one of two nodes", r.Steps)
		}
		for _, n := range r.Nodes {
			if n.Where == r.Device && len(n.Kernels) != 1 {
				t.Errorf("node %s: kernels %q, want one", n.Name, n.Kernels)
			}
		}
	})
}

// Explain shows the program after every pass, and the report of the
// graph is there too.
// A SoftMax that Log has changed, as BinaryXent does, is marked, as is a LogSoftMax; a SoftMax is not.
func TestReportOfLogSoftMax(t *testing.T) {
	node := testutil.Get[*G.Node](t)
	for name, c := range map[string]struct {
		of     func(p, y *G.Node) *G.Node
		marked bool
	}{
		"SoftMax":    {func(p, y *G.Node) *G.Node { return node(G.HadamardProd(p, y)) }, false},
		"Log":        {func(p, y *G.Node) *G.Node { return node(G.HadamardProd(node(G.Log(p)), y)) }, true},
		"BinaryXent": {func(p, y *G.Node) *G.Node { return node(G.BinaryXent(p, y)) }, true},
	} {
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(2, 3), G.WithInit(G.RangedFrom(0)))
		y := G.NewMatrix(g, tensor.Float64, G.WithName("y"), G.WithShape(2, 3), G.WithInit(G.ValuesOf(0.25)))
		p := node(G.SoftMax(x))
		loss := node(G.Sum(c.of(p, y)))
		testutil.Get[G.Nodes](t)(G.Grad(loss, x))
		vm := machine(t, g, OnHost())
		testutil.Do(t, vm.RunAll())
		var marked []string
		for _, n := range vm.Report().Nodes {
			if n.Note != "" {
				marked = append(marked, n.Name)
			}
		}
		if want := []string{internal.Name(p)}; c.marked && !slices.Equal(marked, want) || !c.marked && marked != nil {
			t.Errorf("%s: the report marks %q, want %q: %v", name, marked, want, c.marked)
		}
		if strings.Contains(vm.Report().String(), "node "+internal.Name(p)+": a LogSoftMax") != c.marked {
			t.Errorf("%s: got the report\n%v", name, vm.Report())
		}
		if name == "BinaryXent" && floats(t, loss.Value())[0] >= 0 {
			t.Errorf("BinaryXent of a SoftMax is %v, want less than 0 as docs/gorgonia-ops.md says", loss.Value())
		}
	}
}

// The last product of attention that is written in steps, and no other one, is marked with what to use instead.
func TestReportOfAttention(t *testing.T) {
	node := testutil.Get[*G.Node](t)
	scaled := func(s *G.Node) *G.Node { return node(ops.Map("a * 0.5", s)) }
	for name, c := range map[string]struct {
		of     func(q, k, v *G.Node) *G.Node // (2, 3, 4) each
		marked bool
	}{
		"ops": {func(q, k, v *G.Node) *G.Node {
			return node(ops.MatMul(node(ops.SoftMax(scaled(node(ops.MatMul(q, k, ops.TransB()))), -1)), v))
		}, true},
		"Gorgonia's": {func(q, k, v *G.Node) *G.Node {
			row := func(x *G.Node) *G.Node { return node(ops.Reshape(x, 6, 4)) }
			scores := node(G.Mul(row(q), node(G.Transpose(row(k)))))
			return node(G.Mul(node(G.SoftMax(scores)), row(v)))
		}, true},
		"SoftMax of an input": {func(q, k, v *G.Node) *G.Node {
			return node(ops.MatMul(node(ops.SoftMax(node(ops.Map("a + b", q, k)), -1)), v, ops.TransB()))
		}, false},
		"LogSoftMax": {func(q, k, v *G.Node) *G.Node {
			return node(ops.MatMul(node(ops.LogSoftMax(node(ops.MatMul(q, k, ops.TransB())), -1)), v))
		}, false},
		"Attention": {func(q, k, v *G.Node) *G.Node {
			heads := func(x *G.Node) *G.Node { return node(ops.Reshape(x, 2, 1, 3, 4)) }
			return node(ops.Attention(heads(q), heads(k), heads(v)))
		}, false},
	} {
		g := G.NewGraph()
		var in G.Nodes
		for i := range 3 {
			in = append(in, G.NewTensor(g, tensor.Float32, 3, G.WithName("qkv"[i:i+1]), G.WithShape(2, 3, 4), G.WithInit(G.RangedFrom(i))))
		}
		y := c.of(in[0], in[1], in[2])
		testutil.Get[G.Nodes](t)(G.Grad(node(ops.Mean(node(ops.Map("a * a", y)))), in...))
		vm := machine(t, g, OnHost(), Keep(y))
		testutil.Do(t, vm.RunAll())
		var marked, want []string
		for _, n := range vm.Report().Nodes {
			if n.Note != "" {
				marked = append(marked, n.Name)
			}
		}
		if c.marked {
			want = []string{internal.Name(y)}
		}
		var text strings.Builder
		testutil.Do(t, vm.Explain(&text))
		if !slices.Equal(marked, want) || strings.Contains(text.String(), "ops.Attention and nn.Attention") != c.marked {
			t.Errorf("%s: the report marks %q, want %q:\n%v", name, marked, want, vm.Report())
		}
	}
}

func TestExplain(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		m := newMLP(t, tensor.Float64, 3, 4, 5, 2)
		testutil.Get[*G.Node](t)(foreign(m.hidden))
		vm := machine(t, m.g, on)
		var b strings.Builder
		testutil.Do(t, vm.Explain(&b))
		text := b.String()
		for _, word := range []string{"== lower", "== plan", "== transfer", "== place", "kernel MatMul", "host tanh", "no kernel", "tanh(x0)", "copy", "input", "alive at once"} {
			if !strings.Contains(text, word) {
				t.Errorf("Explain does not say %q:\n%s", word, text)
			}
		}
		var again strings.Builder
		testutil.Do(t, vm.Explain(&again))
		if again.String() != text {
			t.Error("Explain says something else the second time")
		}
		testutil.Do(t, vm.RunAll())
	})
	if err := (*VM)(nil).Explain(io.Discard); err == nil {
		t.Error("Explain of no VM gives no error")
	}
}

// Passes of a sum of two vectors of two float64, counted by hand.
func TestPassesOfSum(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, _, _, _ := sum2(t, 2)
		passes := testutil.Get[[]PassReport](t)(machine(t, g, on).Passes())
		first, last := passes[0], passes[len(passes)-1]
		if want := (PassReport{Pass: "lower", Instructions: 3, Steps: 1, Traffic: 48, Values: 48}); first != want {
			t.Errorf("got %+v first, want %+v", first, want)
		}
		if want := (PassReport{Pass: "place", Instructions: 6, Steps: 1, Copies: 3, Traffic: 48, Values: 48}); last != want {
			t.Errorf("got %+v at last, want %+v", last, want)
		}
	})
}

// Passes counts what Explain prints and, after the last pass, the steps of Report. The graph has a chain, which becomes one step,
// an unneeded derivative and a host op.
func TestPasses(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g := G.NewGraph()
		const n = 64
		a := G.NewVector(g, tensor.Float32, G.WithShape(n), G.WithName("a"))
		b := G.NewVector(g, tensor.Float32, G.WithShape(n), G.WithName("b"))
		testutil.Get[*G.Node](t)(foreign(a))
		cost := testutil.Get[*G.Node](t)(G.Sum(G.Must(G.Sigmoid(G.Must(G.Tanh(G.Must(G.HadamardProd(a, b))))))))
		testutil.Get[G.Nodes](t)(G.Grad(cost, b)) // adds the gradient w.r.t. a too
		vm := machine(t, g, on)
		passes := testutil.Get[[]PassReport](t)(vm.Passes())
		var text strings.Builder
		testutil.Do(t, vm.Explain(&text))
		by := map[string]PassReport{}
		for i, p := range passes {
			by[p.Pass] = p
			head := fmt.Sprintf("== %s\nprogram, ", p.Pass)
			_, rest, shown := strings.Cut(text.String(), head)
			if first, _, _ := strings.Cut(rest, "\n"); !shown || !strings.Contains(first, fmt.Sprintf(" %d instructions", p.Instructions)) {
				t.Errorf("pass %d is %+v, which Explain does not show: %q", i, p, first)
			}
		}
		if got := strings.Count(text.String(), "== "); got != len(passes) {
			t.Errorf("Explain shows %d programs, Passes %d", got, len(passes))
		}
		for _, order := range [][2]string{{"prune", "lower"}, {"fuse", "prune"}} {
			less, more := by[order[0]], by[order[1]]
			if less.Steps >= more.Steps || less.Instructions >= more.Instructions || less.Traffic >= more.Traffic || less.Values >= more.Values {
				t.Errorf("after %s: %+v, want less of everything than after %s: %+v", order[0], less, order[1], more)
			}
		}
		r, last := vm.Report(), passes[len(passes)-1]
		traffic := int64(0)
		for _, s := range r.Steps {
			traffic += s.Bytes
		}
		if last.Steps != len(r.Steps) || last.Traffic != traffic || last.Copies != 4 {
			t.Errorf("after the last pass: %+v, want %d steps, traffic %d and 4 copies", last, len(r.Steps), traffic)
		}
	})
	if _, err := (*VM)(nil).Passes(); err == nil {
		t.Error("Passes of no VM gives no error")
	}
}

// The share of the roofline that the launches of a step reach: the greater of the times that a device's memory
// and its arithmetic need at the least, of the time that was measured.
func TestRoofline(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithShape(64, 64), G.WithName("x"))
	y := G.NewMatrix(g, tensor.Float32, G.WithShape(64, 64), G.WithName("y"))
	testutil.Get[*G.Node](t)(G.Tanh(testutil.Get[*G.Node](t)(foreign(testutil.Get[*G.Node](t)(G.Mul(x, y))))))
	p := machine(t, g, OnHost()).graph.Program
	list, times := steps("a device", p), make([]time.Duration, len(p.Instrs))
	if len(list) != 3 || list[0].Bytes != 3*64*64*4 || list[0].Flops != 2*64*64*64 || list[2].Bytes != 2*64*64*4 {
		t.Fatalf("got steps %+v, want a product, an op of the host and a map", list)
	}
	for i := range times {
		times[i] = time.Millisecond
	}
	timed(list, p, times, kernels.Device{Bandwidth: 1e9, FMAs: 1e9}) // of the product 49 us of traffic, 262 of arithmetic
	for i, want := range []float64{0.262144, 0, 0.032768} {
		if got := list[i].Roofline; math.Abs(got-want) > 1e-9 {
			t.Errorf("step %d reaches %v of the roofline, want %v", i, got, want)
		}
	}
	var text strings.Builder
	printSteps(&text, list)
	for _, word := range []string{"26 %", "3 %", "48.0 KiB", "no kernel", "roofline"} {
		if !strings.Contains(text.String(), word) {
			t.Errorf("the table does not say %q:\n%s", word, text.String())
		}
	}
}
