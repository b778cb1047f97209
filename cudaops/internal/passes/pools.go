package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// pools fuses ReLUs into the max-poolings that alone read them, and the derivatives of the ReLUs into the gradients of these. A launch then reads the ReLU's argument in place of its result,
// which is not stored, and the gradient w.r.t. the ReLU is not stored either.
//
//	y = max-pool(ReLU(x))    dx = (0 <= x) * gradient of max-pool(ReLU(x), dy)
func (s *rewriter) pools(t Target) error {
	b := expr.NewBuilder(kernels.Float32, kernels.Float32)
	times, err := b.Func(b.Apply(expr.Mul, b.Operand(0), b.Operand(1)))
	if err != nil {
		return err
	}
	for _, in := range s.p.Instrs {
		op, mapped := in.Op.(program.Map)
		if s.replaced(in) || !mapped || len(in.In) != 1 || in.Out[0].Dtype != kernels.Float32 || op.Func != relus()[kernels.Float32].f {
			continue
		}
		if x := in.In[0]; !s.liveOut[in.Out[0]] && x.IsContiguous() && x.Elements() == x.Base.Elements() && slices.Equal(x.Shape, in.Out[0].Shape) {
			s.pool(in, times, t)
		}
	}
	return nil
}

// pool fuses a ReLU into all that read it, if each is a max-pooling or the gradient of one.
func (s *rewriter) pool(relu *program.Instr, times expr.Func, t Target) {
	y := relu.Out[0]
	var pools []*program.Instr
	var replaced [][]*program.Instr // by pooling, the last one first
	for _, in := range s.readers[y] {
		if s.replaced(in) {
			continue
		}
		p, ok := program.MaxPoolingOf(in.Op)
		if p.ReLU = true; !ok || in.In[0] != y || !p.Takes(t.Device) {
			return
		}
		gone := []*program.Instr{in}
		if p.Gradient {
			if gone = s.derivative(in, relu.In[0], times); gone == nil {
				return
			}
		}
		pools, replaced = append(pools, in), append(replaced, gone)
	}
	for i, in := range pools {
		gone := replaced[i]
		p, _ := program.MaxPoolingOf(in.Op)
		p.ReLU = true
		by := &program.Instr{Op: program.Kernel{Planner: p}, In: slices.Clone(in.In), Out: gone[0].Out, Nodes: program.NodesOf(slices.Insert(slices.Clone(gone), 0, relu)...)}
		by.In[0], by.Out[0].Def = relu.In[0], by
		s.replace(gone[0], by, append(gone, relu))
	}
}

// derivative returns the product of the gradient of a max-pooling and the derivative of the ReLU of x, if it alone reads that gradient: the product, the gradient, and the derivative if
// nothing else reads that.
func (s *rewriter) derivative(gradient *program.Instr, x *program.Value, times expr.Func) []*program.Instr {
	d := gradient.Out[0]
	if s.liveOut[d] || s.readCount[d] != 1 {
		return nil
	}
	for _, in := range s.readers[d] {
		if op, mapped := in.Op.(program.Map); s.replaced(in) || !mapped || op.Func != times || !slices.Contains(in.In, d) || !slices.Equal(in.Out[0].Shape, d.Shape) {
			continue
		}
		step := in.In[1-slices.Index(in.In, d)]
		if !program.Elementwise(step.Def.Op) || step.Base != step || !isReLUGradient(step.Def, x.Base) || !slices.Equal(step.Shape, d.Shape) || !step.Def.In[0].IsContiguous() {
			return nil
		}
		gone := []*program.Instr{in, gradient}
		if s.readCount[step] == 1 && !s.liveOut[step] {
			gone = append(gone, step.Def)
		}
		return gone
	}
	return nil
}
