package passes

import (
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// composer composes the functions of Maps with the function of an epilogue.
type composer struct {
	*epilogue
	*expr.Builder
	inline, numbers bool
	element         []expr.Value // operands of the epilogue's function so far
	operands        []strided
	absorbed        []*program.Instr
}

// apply adds the function of a Map.
func (c *composer) apply(m *program.Instr) (expr.Value, bool) {
	const maxMaps = 8 // absorbed in one step
	if c.absorbed = append(c.absorbed, m); len(c.absorbed) > maxMaps {
		return 0, false
	}
	args := make([]expr.Value, len(m.In))
	for i, v := range m.In {
		var ok bool
		if args[i], ok = c.value(v); !ok {
			return 0, false
		}
	}
	return c.Inline(m.Op.(program.Map).Func, args...)[0], true
}

// value adds an input of a Map.
func (c *composer) value(v *program.Value) (expr.Value, bool) {
	base := v.Base
	inOrder := v.IsContiguous() && v.Elements() == base.Elements() // then the view begins where the base does
	if base == c.out {
		if !inOrder {
			return 0, false
		}
		return c.Inline(c.f, c.element...)[0], true
	}
	if x, constant := number(v); constant && c.numbers {
		return c.Constant(v.Dtype, x), true
	}
	if program.Elementwise(base.Def.Op) && c.inline && inOrder && len(base.Def.Out) == 1 && !c.liveOut[base] && c.readCount[base] == 1 {
		return c.apply(base.Def)
	}
	return c.operand(v)
}

// operand adds an operand of the epilogue.
func (c *composer) operand(v *program.Value) (expr.Value, bool) {
	strides, ok := program.SplitAxes(v.Shape, v.View.Strides, int(c.product.Batch), int(c.product.M), int(c.product.N))
	if !ok || v.IsBounded() || v.Dtype != c.product.Dtype {
		return 0, false
	}
	o := strided{v.Base, codegen.View{Elements: v.Base.Elements(), Offset: v.View.Offset, Strides: program.Collect(strides, func(s int64) int { return int(s) })}}
	i := slices.IndexFunc(c.operands, o.equal)
	if i < 0 {
		i, c.operands = len(c.operands), append(c.operands, o)
	}
	if i >= maxOperands {
		return 0, false
	}
	return c.Operand(i + 1), true
}

// relu holds the function that Rectify is lowered to and its derivative.
type relu struct {
	f          expr.Func
	byArgument expr.Func // the derivative as a function of the argument and 0
	byResult   expr.Func // the derivative as a function of the result, which is -0 for a negative argument
}

// relus holds the ReLU of each element type.
var relus = sync.OnceValue(func() (list [2]relu) {
	for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
		parsed := func(text string) expr.Func {
			f, _ := expr.Parse(text, dt, "x", "zero") // TestRectifier has them all
			f, _ = f.Trim()
			return f
		}
		list[dt] = relu{parsed("select(x < 0, -0, x + 0)"), parsed("zero <= x"), parsed("0 <= 1 / x")}
	}
	return list
})

// isReLUGradient reports whether a Map is the derivative of a ReLU as a function of the ReLU's argument, a base.
func isReLUGradient(in *program.Instr, argument *program.Value) bool {
	if len(in.In) != 2 || !argument.Dtype.IsFloat() || in.Op.(program.Map).Func != relus()[argument.Dtype].byArgument || in.In[0].Base != argument || in.In[0].IsBounded() {
		return false
	}
	zero, constant := number(in.In[1])
	return constant && zero == 0
}
