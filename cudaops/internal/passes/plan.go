package passes

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// plan makes the launches, on the target, of every instruction that runs on the device. By then no other pass adds readers of a
// state, except to compute a value again, so it first decides which next values are computed over their states.
func plan(p *program.Program, t Target) error {
	if err := states(p); err != nil {
		return err
	}
	attendUpdated(p, t.Device)
	constants(p)
	made := made{}
	for _, in := range p.Instrs {
		if !program.Launches(in.Op) {
			continue
		}
		plan, err := made.plan(in, t.Device)
		if err == nil && program.Is[program.Kernel](in.Op) {
			err = fits(in, plan)
		}
		if err == nil {
			err = plan.Check(t.Device)
		}
		if err != nil {
			return in.InNode(err)
		}
		if in.Plan = plan; t.Planned != nil {
			t.Planned(plan)
		}
	}
	rematerialize(p, t.Device)
	p.Stage = program.Planned
	return nil
}

// foresee calls Planned with the plan of the largest matmul as it was lowered. The passes change its operands and its epilogue, but seldom its image, the largest of
// most programs.
func foresee(p *program.Program, t Target) {
	if t.Planned == nil {
		return
	}
	var largest *program.Instr
	most := 0.
	for _, in := range p.Instrs {
		if m, ok := program.ProductOf(in.Op); ok {
			if n := float64(m.Batch) * float64(m.M) * float64(m.N) * float64(m.K); n > most {
				largest, most = in, n
			}
		}
	}
	if largest == nil {
		return
	}
	if plan, err := largest.PlanFor(t.Device); err == nil { // else pass plan returns the error
		t.Planned(plan)
	}
}

// constants marks the states that no instruction changes.
func constants(p *program.Program) {
	changed := map[*program.Value]bool{}
	for _, to := range p.Updates {
		changed[to.State] = to.Next != to.State
	}
	for _, in := range p.Setup {
		if op, state := in.Op.(program.State); state {
			op.Constant = !changed[in.Out[0]]
			in.Op = op
		}
	}
}

// made holds instructions with a plan, by what is quick to compare. Equal instructions, such as those of a model's layers, share a plan.
type made map[[2]int64][]*program.Instr

// plan returns the plan of an equal instruction, or a new one.
func (m made) plan(in *program.Instr, dev kernels.Device) (*kernels.Plan, error) {
	switch op := in.Op.(type) {
	case program.Map:
	case program.Kernel:
		if _, product := op.Planner.(gemm.Product); !product { // others may come from other modules
			return in.PlanFor(dev)
		}
	default:
		return in.PlanFor(dev)
	}
	const most = 8 // instructions to compare with: the layers of a model repeat after few others
	key := [2]int64{int64(len(in.In)), in.Out[0].Bytes()}
	list := m[key]
	for _, other := range list[max(0, len(list)-most):] {
		if sharePlan(in, other) {
			return other.Plan, nil
		}
	}
	m[key] = append(list, in)
	return in.PlanFor(dev)
}

// sharePlan reports whether instructions have one op, and views of equal shape, strides and memory.
func sharePlan(a, b *program.Instr) bool {
	return slices.EqualFunc(a.In, b.In, func(v, w *program.Value) bool {
		return v.Dtype == w.Dtype && v.IsIota() == w.IsIota() && v.IsConstant() == w.IsConstant() && v.Base.Elements() == w.Base.Elements() && reflect.DeepEqual(v.View, w.View)
	}) && reflect.DeepEqual(a.Op, b.Op)
}

// fits returns an error if a plan does not fit the values that it reads and writes.
func fits(in *program.Instr, plan *kernels.Plan) error {
	if len(plan.Inputs) != len(in.In) {
		return fmt.Errorf("got a plan of %d inputs, want %d as in the node", len(plan.Inputs), len(in.In))
	}
	for i, v := range in.In {
		if !v.Numeric || v.Reach()*v.Dtype.Size() != plan.Inputs[i] {
			return fmt.Errorf("got a plan with %d bytes for input %d, want %s", plan.Inputs[i], i, typeName(v))
		}
	}
	if n := max(len(plan.Parts), 1); n != len(in.Out) {
		return fmt.Errorf("got a plan of %d outputs, want %d", n, len(in.Out))
	}
	if out := in.Out[0]; len(in.Out) == 1 && (!out.Numeric || out.Bytes() != plan.Out) {
		return fmt.Errorf("got a plan with an output of %d bytes, want %s as in the node", plan.Out, typeName(out))
	}
	return nil
}

func typeName(v *program.Value) string {
	if !v.Numeric {
		return fmt.Sprintf("no tensor of numbers (shape %v)", v.Shape)
	}
	return fmt.Sprintf("%v of shape %v", values.Tensor(v.Dtype), v.Shape)
}
