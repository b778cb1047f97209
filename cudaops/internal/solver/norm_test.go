package solver

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	G "gorgonia.org/gorgonia"
)

// sums evaluates a function of rows on whole vectors.
func sums(t testing.TB, f expr.Func, operands ...[]byte) []float64 {
	t.Helper()
	outputs := len(f.Outputs())
	shape := []int{len(operands[0]) / int(f.Operands()[0].Size())}
	perRow := make([]bool, outputs)
	views := make([]codegen.View, len(operands))
	for i := range views {
		views[i] = codegen.Dense(shape)
	}
	out := make([][]byte, outputs)
	for k := range out {
		perRow[k], out[k] = true, make([]byte, 8)
	}
	plan := testutil.Get[*kernels.Plan](t)(codegen.Rows(kernels.HostDevice(), f, shape, []int{0}, perRow, views...))
	testutil.Do(t, kernels.Host{}.Run(plan, operands, out, make([]byte, plan.Scratch)))
	var list []float64
	for _, m := range out {
		list = append(list, get(m, expr.Float64)...)
	}
	return list
}

// number evaluates a function of numbers.
func number(t testing.TB, f expr.Func, of ...float64) float64 {
	t.Helper()
	views, operands := make([]codegen.View, len(of)), make([][]byte, len(of))
	for i, v := range of {
		views[i], operands[i] = codegen.View{Elements: 1}, make([]byte, 8)
		put(operands[i], expr.Float64, []float64{v})
	}
	plan := testutil.Get[*kernels.Plan](t)(codegen.Map(kernels.HostDevice(), f, nil, views...))
	out := make([]byte, f.Outputs()[0].Size())
	testutil.Do(t, kernels.Host{}.Run(plan, operands, [][]byte{out}, nil))
	return get(out, f.Outputs()[0])[0]
}

// barzilaiBorweins are two parameters of a quadratic function, for which the method is
// made, with steppers and as Gorgonia, which knows float64 alone, has them.
type barzilaiBorweins struct {
	t      *testing.T
	dt     expr.Dtype
	solver internal.Solver
	size   expr.Func
	ours   [2]*stepper
	slopes [2][]float64
	model  [2]pair
}

func newBarzilaiBorweins(t *testing.T, r *rand.Rand, dt expr.Dtype, opts []G.SolverOpt) *barzilaiBorweins {
	s := G.NewBarzilaiBorweinSolver(opts...)
	b := &barzilaiBorweins{t: t, dt: dt}
	b.solver, _, _ = internal.ReadSolver(s)
	b.size = testutil.Get[expr.Func](t)(StepSize(b.solver, dt))
	for i := range b.ours {
		start := make([]float64, elements/(i+1))
		b.slopes[i] = make([]float64, len(start))
		for k := range start {
			start[k], b.slopes[i][k] = r.NormFloat64(), 0.5+r.Float64()
		}
		b.ours[i] = newStepper(t, s, dt, false, start)
		b.model[i] = pair{tensorOf(expr.Float64, start), tensorOf(expr.Float64, start)}
	}
	return b
}

// step makes a step, and returns its size and the size by plain loops.
func (b *barzilaiBorweins) step(step int) (size, want float64) {
	between := testutil.Get[expr.Func](b.t)(Differences(b.dt))
	numbers := StepNumbers(b.solver, step)
	var grads [2][]float64
	var products, squares []float64
	product, square := 0.0, 0.0
	for i, s := range b.ours {
		grads[i] = get(s.state[0], b.dt)
		for k, slope := range b.slopes[i] {
			grads[i][k] *= slope
		}
		g := make([]byte, len(s.state[0]))
		put(g, b.dt, grads[i])
		grads[i] = get(g, b.dt)
		d := sums(b.t, between, g, s.state[0], s.state[2], s.state[1])
		products, squares = append(products, d[0]), append(squares, d[1])
		p, pOld, gOld := get(s.state[0], b.dt), get(s.state[1], b.dt), get(s.state[2], b.dt)
		for k := range p {
			product += (p[k] - pOld[k]) * (grads[i][k] - gOld[k])
			square += (grads[i][k] - gOld[k]) * (grads[i][k] - gOld[k])
		}
	}
	want = product / square
	if b.solver.UseClip && math.Abs(want) > b.solver.Clip {
		want = math.Copysign(b.solver.Clip, want)
	}
	if step == 1 {
		want = b.solver.Rate
	}
	total := testutil.Get[expr.Func](b.t)(Total(len(b.ours)))
	size = number(b.t, b.size, append(numbers, number(b.t, total, products...), number(b.t, total, squares...))...)
	for i, s := range b.ours {
		s.extra[Step] = size
		s.make(grads[i])
	}
	return size, want
}

func TestBarzilaiBorwein(t *testing.T) {
	r := testutil.Random(t)
	for _, opts := range [][]G.SolverOpt{nil, {G.WithLearnRate(0.05)}, {G.WithClip(0.2), G.WithLearnRate(0.01)}, {G.WithClip(0), G.WithLearnRate(0.01)}} {
		for _, dt := range []expr.Dtype{expr.Float32, expr.Float64} {
			b, theirs := newBarzilaiBorweins(t, r, dt, opts), G.NewBarzilaiBorweinSolver(opts...)
			for step := range 10 {
				size, want := b.step(step + 1)
				compare(t, fmt.Sprintf("step size %d of %v", step+1, dt), []float64{size}, []float64{want}, 1e-6)
				for i, p := range b.model {
					for k, v := range p.value.Float64s() {
						p.grad.Float64s()[k] = v * b.slopes[i][k]
					}
				}
				testutil.Do(t, theirs.Step([]G.ValueGrad{b.model[0], b.model[1]}))
				for i, s := range b.ours {
					if dt == expr.Float64 {
						compare(t, fmt.Sprintf("parameter %d after step %d", i, step+1), get(s.state[0], dt), b.model[i].value.Float64s(), 1e-6)
					}
				}
			}
		}
	}
}

// Gradients whose norm is larger than the limit have that norm afterwards, others stay.
func TestNormScale(t *testing.T) {
	r := testutil.Random(t)
	for _, dt := range []expr.Dtype{expr.Float32, expr.Float64} {
		squares, f := testutil.Get[expr.Func](t)(Squares(dt)), testutil.Get[expr.Func](t)(NormScale(dt))
		a, b := gradients(r, 400), gradients(r, 300)
		total := 0.0
		var parts []float64
		for _, x := range [][]float64{a, b} {
			m := make([]byte, int64(len(x))*dt.Size())
			put(m, dt, x)
			for _, v := range get(m, dt) {
				total += v * v
			}
			parts = append(parts, sums(t, squares, m)[0])
		}
		norm := math.Sqrt(total)
		for limit, want := range map[float64]float64{norm / 3: 1. / 3, norm * 2: 1, 0: 0} {
			compare(t, fmt.Sprintf("the scale to norm %v of %v", limit, norm), []float64{number(t, f, limit, parts[0]+parts[1])}, []float64{want}, 1e-6)
		}
		if got := number(t, f, 1, math.NaN()); !math.IsNaN(got) {
			t.Errorf("the scale of a norm that is NaN is %v", got)
		}
	}
	start, g := []float64{1, 2}, []float64{8, -4}
	s := newStepper(t, G.NewVanillaSolver(G.WithLearnRate(1)), expr.Float64, true, start)
	s.extra[Scale] = 0.25
	s.make(g)
	compare(t, "a step with scaled gradients", get(s.state[0], expr.Float64), []float64{-1, 3}, 0)
}
