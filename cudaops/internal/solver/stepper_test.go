package solver

import (
	"math/rand/v2"
	"testing"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// pair is a parameter with its gradient.
type pair struct{ value, grad *tensor.Dense }

func (p pair) Value() G.Value         { return p.value }
func (p pair) Grad() (G.Value, error) { return p.grad, nil }

// tensorOf returns a vector of elements.
func tensorOf(dt expr.Dtype, x []float64) *tensor.Dense {
	v, m := values.New(dt, tensor.Shape{len(x)})
	put(m, dt, x)
	return v.(*tensor.Dense)
}

// put writes elements into memory.
func put(m []byte, dt expr.Dtype, x []float64) {
	for i, v := range x {
		if dt == expr.Float32 {
			kernels.Elements[float32](m)[i] = float32(v)
		} else {
			kernels.Elements[float64](m)[i] = v
		}
	}
}

// get reads elements of memory.
func get(m []byte, dt expr.Dtype) []float64 {
	x := make([]float64, len(m)/int(dt.Size()))
	for i := range x {
		if dt == expr.Float32 {
			x[i] = float64(kernels.Elements[float32](m)[i])
		} else {
			x[i] = kernels.Elements[float64](m)[i]
		}
	}
	return x
}

// stepper makes the steps of a rule on the host.
type stepper struct {
	t        testing.TB
	rule     Rule
	solver   G.Solver
	plan     *kernels.Plan
	operands [][]byte
	state    [][]byte // of parameters and moments
	next     [][]byte
	step     int
	extra    map[Operand]float64
}

func newStepper(t testing.TB, s G.Solver, dt expr.Dtype, scaled bool, start []float64) *stepper {
	t.Helper()
	read, ok, err := internal.ReadSolver(s)
	if testutil.Do(t, err); !ok {
		t.Fatalf("%T is not known", s)
	}
	st := &stepper{t: t, rule: testutil.Get[Rule](t)(NewRule(read, dt, Options{Scaled: scaled})), solver: s, extra: map[Operand]float64{}}
	whole := []int{len(start)}
	for range 1 + st.rule.Moments {
		st.state, st.next = append(st.state, make([]byte, int64(len(start))*dt.Size())), append(st.next, make([]byte, int64(len(start))*dt.Size()))
	}
	put(st.state[0], dt, start)
	var views []codegen.View
	for _, o := range st.rule.Operands {
		if o <= Moment2 {
			st.operands, views = append(st.operands, make([]byte, len(st.state[0]))), append(views, codegen.Dense(whole))
		} else {
			st.operands, views = append(st.operands, make([]byte, dt.Size())), append(views, codegen.View{Elements: 1, Strides: []int{0}})
		}
	}
	st.plan = testutil.Get[*kernels.Plan](t)(codegen.Map(kernels.HostDevice(), st.rule.Func, whole, views...))
	return st
}

// make makes a step.
func (s *stepper) make(grad []float64) {
	s.t.Helper()
	s.step++
	read, _, _ := internal.ReadSolver(s.solver)
	numbers := s.rule.AppendNumbers(nil, read, s.step)
	if len(numbers) != s.rule.Numbers() {
		s.t.Fatalf("got %d numbers, want %d", len(numbers), s.rule.Numbers())
	}
	for i, o := range s.rule.Operands {
		switch {
		case o == Gradient:
			put(s.operands[i], s.rule.dtype, grad)
		case o <= Moment2:
			s.operands[i] = s.state[o-Parameter]
		case o >= firstNumber:
			put(s.operands[i], s.rule.dtype, numbers[:1])
			numbers = numbers[1:]
		default:
			put(s.operands[i], s.rule.dtype, []float64{s.extra[o]})
		}
	}
	testutil.Do(s.t, kernels.Host{}.Run(s.plan, s.operands, s.next, nil))
	s.state, s.next = s.next, s.state
}

// gradients draws those of a step: also zeros and large ones.
func gradients(r *rand.Rand, n int) []float64 {
	g := make([]float64, n)
	for i := range g {
		switch g[i] = r.NormFloat64(); r.IntN(20) {
		case 0:
			g[i] = 0
		case 1:
			g[i] *= 1000
		}
	}
	return g
}
