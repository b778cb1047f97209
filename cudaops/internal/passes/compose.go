package passes

import (
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// composer writes the Maps on the value of an epilogue as one function.
type composer struct {
	*epilogue
	*expr.Builder
	inline, numbers bool
	element         []expr.Value // operands of the epilogue's function
	operands        []strided
	taken           []*program.Instr
}

// apply writes the function of a Map.
func (c *composer) apply(m *program.Instr) (expr.Value, bool) {
	const most = 8 // Maps of a step
	if c.taken = append(c.taken, m); len(c.taken) > most {
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

// value writes an input of a Map.
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
	if _, mapped := base.Def.Op.(program.Map); mapped && c.inline && inOrder && len(base.Def.Out) == 1 && !c.wanted[base] && c.reads[base] == 1 {
		return c.apply(base.Def)
	}
	return c.operand(v)
}

// operand writes an operand of the product.
func (c *composer) operand(v *program.Value) (expr.Value, bool) {
	strides, ok := split(v.Shape, v.View.Strides, c.product.Batch, c.product.M, c.product.N)
	if !ok || v.IsBounded() || v.Dtype != c.product.Dtype {
		return 0, false
	}
	o := strided{v.Base, codegen.View{Elements: v.Base.Elements(), Offset: v.View.Offset, Strides: strides}}
	i := slices.IndexFunc(c.operands, o.equal)
	if i < 0 {
		i, c.operands = len(c.operands), append(c.operands, o)
	}
	if i >= mostOperands {
		return 0, false
	}
	return c.Operand(i + 1), true
}

// split returns the strides along other axes of elements that are counted through in
// row-major order, or false if one stride is not enough for an axis.
func split(shape []int, strides []int64, axes ...int64) ([]int, bool) {
	type axis struct{ extent, stride int64 }
	var rest []axis
	for a, d := range shape {
		if d != 1 {
			rest = append(rest, axis{int64(d), strides[a]})
		}
	}
	list := make([]int, len(axes))
	for i, want := range slices.Backward(axes) {
		stride := int64(0)
		for have := int64(1); have < want; {
			if len(rest) == 0 {
				return nil, false
			}
			last := &rest[len(rest)-1]
			if have == 1 {
				stride = last.stride
			} else if last.stride != stride*have {
				return nil, false
			}
			switch left := want / have; {
			case left%last.extent == 0:
				have *= last.extent
				rest = rest[:len(rest)-1]
			case last.extent%left == 0:
				*last = axis{last.extent / left, last.stride * left}
				have = want
			default:
				return nil, false
			}
		}
		list[i] = int(stride)
	}
	return list, len(rest) == 0
}

// rectifier is the function of Rectify, as it is lowered, and its derivatives.
type rectifier struct {
	f          expr.Func
	byArgument expr.Func // of the argument and 0
	byResult   expr.Func // which is -0 where the argument is less than zero
}

// rectifiers are by element type.
var rectifiers = sync.OnceValue(func() (list [2]rectifier) {
	for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
		parsed := func(text string) expr.Func {
			f, _ := expr.Parse(text, dt, "x", "zero") // TestRectifier has them all
			f, _ = f.Trim()
			return f
		}
		list[dt] = rectifier{parsed("select(x < 0, -0, x + 0)"), parsed("zero <= x"), parsed("0 <= 1 / x")}
	}
	return list
})

// isStep reports whether a Map is the derivative of a rectifier by its argument, the
// value of the epilogue.
func (e *epilogue) isStep(in *program.Instr) bool {
	if in.Op.(program.Map).Func != rectifiers()[e.product.Dtype].byArgument || in.In[0].Base != e.out || in.In[0].IsBounded() {
		return false
	}
	zero, constant := number(in.In[1])
	return constant && zero == 0
}
