package exec

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"gorgonia.org/tensor"
)

// Graphs with programmatic edges compute the same bits as graphs with full edges. The graphs are random: launches of all kinds on
// ranges of one memory, with read-after-write and write-after-read dependencies. A run reads the results of the previous one,
// by functions that amplify small differences.
func TestStartedEarly(t *testing.T) {
	graphs, runs := 12, 40
	if testing.Short() {
		graphs, runs = 3, 2
	}
	seeds := testutil.Random(t)
	for range graphs {
		seed := seeds.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var memory [2][]byte
			early, late := drawGraph(t, seed, false), drawGraph(t, seed, true)
			for run := range runs {
				for k, g := range []*drawnGraph{early, late} {
					testutil.Do(t, g.launch())
					memory[k] = make([]byte, arenaBytes)
					if (run+1)%8 == 0 || run+1 == runs {
						testutil.Do(t, g.backend.Download(memory[k], Span{Size: arenaBytes}))
						testutil.Do(t, g.backend.Sync())
					}
				}
				if !bytes.Equal(memory[0], memory[1]) {
					t.Fatalf("after %d runs memory differs", run+1)
				}
			}
			if x := kernels.Elements[float32](memory[0]); slices.Min(x) == slices.Max(x) {
				t.Errorf("the numbers are all %g", x[0])
			}
		})
	}
}

const arenaBytes = 32 << 20

// drawnGraph is random work on a separate backend.
type drawnGraph struct {
	backend *GPUBackend
	launch  func() error
}

// drawGraph returns a random graph that depends only on the seed.
func drawGraph(t *testing.T, seed uint64, late bool) *drawnGraph {
	g, err := OpenGPU(0)
	testutil.SkipUnless(t, "GPU", err)
	t.Cleanup(func() { testutil.Do(t, g.Close()) })
	g.fullEdges = late
	testutil.Do(t, g.Alloc(arenaBytes))
	r := rand.New(rand.NewPCG(seed, 1))
	numbers := make([]float32, arenaBytes/4)
	for i := range numbers {
		numbers[i] = r.Float32()
	}
	testutil.Do(t, g.Upload(Span{Size: arenaBytes}, kernels.Bytes(numbers)))
	testutil.Do(t, g.Sync())
	var work []Work
	var o order
	for len(work) < 40 {
		for _, d := range drawPlans(t, g.Device(), r) {
			run, err := g.Bind(d.plan, d.in, []Span{d.out}, d.scratch)
			testutil.Do(t, err)
			i := &program.Instr{Out: []*program.Value{valueAt(d.out)}, Scratch: valueAt(d.scratch).Buffer}
			for _, s := range d.in {
				i.In = append(i.In, valueAt(s))
			}
			work = append(work, Work{run, o.add(len(work), i)})
		}
	}
	reduced(work)
	launch, err := g.Capture(work)
	testutil.Do(t, err)
	return &drawnGraph{g, launch}
}

// valueAt returns a value with that span.
func valueAt(s Span) *program.Value {
	v := &program.Value{Type: program.Type{Numeric: true, Shape: tensor.Shape{1}}, Buffer: &program.Buffer{Offset: s.Offset, Size: s.Size}}
	v.Base = v
	return v
}

// drawnPlan is a plan with the spans of its operands.
type drawnPlan struct {
	plan         *kernels.Plan
	in           []Span
	out, scratch Span
}

// drawPlans returns a random plan, or several that together map numbers in [0, 1) to numbers in [0, 1).
func drawPlans(t *testing.T, dev kernels.Device, r *rand.Rand) []drawnPlan {
	pick := func(list ...int64) int64 { return list[r.IntN(len(list))] }
	switch r.IntN(6) {
	case 0, 1:
		return []drawnPlan{drawPlaces(mapOf(t, dev, "(a+b)", int(pick(1, 100, 5000, 1<<17, 1<<18)), "a", "b"), r)}
	case 2: // a kernel that does not wait by itself
		add := drawPlaces(basic.Add(dev, kernels.Float32, pick(100, 1<<16)), r)
		return []drawnPlan{add, inPlace(t, dev, add)}
	case 3:
		rows := drawPlaces(rowsOf(t, dev, []int{int(pick(1, 16, 128)), int(pick(10, 512, 1000))}), r)
		return []drawnPlan{rows, inPlace(t, dev, rows)}
	}
	m, n, k := pick(2, 10, 128, 300), pick(1, 10, 128, 512), pick(3, 128, 512)
	if r.IntN(10) == 0 {
		m, n, k = 1024, 1024, 512
	}
	matmul := gemm.Product{Dtype: kernels.Float32, Batch: 1, M: m, N: n, K: k, A: gemm.Operand{Trans: r.IntN(2) == 0}, B: gemm.Operand{Trans: r.IntN(2) == 0}}
	product := drawPlaces(testutil.Get[*kernels.Plan](t)(matmul.Plan(dev)), r)
	return []drawnPlan{product, inPlace(t, dev, product)}
}

// drawPlaces returns random spans for the operands of a plan, such that its output overlaps no input.
func drawPlaces(p *kernels.Plan, r *rand.Rand) drawnPlan {
	const slot = 1 << 18 // bytes
	place := func(bytes int64) Span {
		return Span{Offset: int64(r.IntN(int(arenaBytes/slot-(bytes-1)/slot))) * slot, Size: bytes}
	}
	apart := func(a, b Span) bool { return a.Offset+a.Size <= b.Offset || b.Offset+b.Size <= a.Offset }
	d := drawnPlan{plan: p}
	for placed := false; !placed; placed = apart(d.out, d.scratch) { // both again: an output in the middle may leave no room for scratch memory
		d.out, d.scratch = place(p.Out), place(max(p.Scratch, 1))
	}
	for _, bytes := range p.Inputs {
		in := place(bytes)
		for !apart(in, d.out) || !apart(in, d.scratch) {
			in = place(bytes)
		}
		d.in = append(d.in, in)
	}
	return d
}

// inPlace is a Map that overwrites a plan's output.
func inPlace(t *testing.T, dev kernels.Device, d drawnPlan) drawnPlan {
	return drawnPlan{mapOf(t, dev, "a", int(d.out.Size/4), "a"), []Span{d.out}, d.out, Span{}}
}

// mapOf plans a function of vectors whose sum is not negative. Its result is in [0, 1), and small changes of the sum become
// larger ones.
func mapOf(t *testing.T, dev kernels.Device, sum string, n int, names ...string) *kernels.Plan {
	part := "(" + sum + "-floor(" + sum + "))"
	f := testutil.Get[expr.Func](t)(expr.Parse("3.9*"+part+"*(1-"+part+")", kernels.Float32, names...))
	shape := []int{n}
	return testutil.Get[*kernels.Plan](t)(codegen.Map(dev, f, shape, slices.Repeat([]codegen.View{codegen.Dense(shape)}, len(names))...))
}

// rowsOf plans the sum of a number and those of its row.
func rowsOf(t *testing.T, dev kernels.Device, shape []int) *kernels.Plan {
	b := expr.NewBuilder(kernels.Float32)
	f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.Add, b.Operand(0), b.Apply(expr.RowSum, b.Operand(0)))))
	return testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, f, shape, []int{1}, []bool{false}, codegen.Dense(shape)))
}
