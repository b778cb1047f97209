package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/window"
	"gorgonia.org/tensor"
)

// Conv1d and Conv2d of Gorgonia are a matrix of windows (im2col), its product with the filters, and transposes; their gradients are the products' and, by the images, the sum of windows
// (col2im). The functions of this file turn them into convolutions, which need no such matrix:
//
//	product(columns(x), wᵀ), (pixels, filters)      conv(x, w)
//	columns'(product(dy, w))                        conv by images (dy, w)
//	product(dyᵀ, columns(x)), (filters, terms)      conv by filters (x, dy)

// columns returns the convolution of images of which im2col gathers windows and, if sums, of which col2im adds them up. The number of filters is missing.
func (w windowed) columns() (v gemm.Conv, sums, ok bool) {
	axis := func(a window.WindowAxis) gemm.ConvAxis {
		return gemm.ConvAxis{In: int64(a.In), Size: int64(a.Size), Stride: int64(a.Stride), Dilation: int64(a.Dilation), Before: int64(a.Before), After: int64(a.After)}
	}
	v = gemm.Conv{Dtype: w.dtype, Images: w.images, Channels: w.channels, Groups: 1, Rows: axis(w.windows.Rows), Columns: axis(w.windows.Columns)}
	return v, w.name == "col2im", w.name == "im2col" || w.name == "col2im"
}

// columnsOf returns the convolution whose windows a value has, all of them in their order.
func columnsOf(v *program.Value) (conv gemm.Conv, images *program.Value, ok bool) {
	k, _ := v.Base.Def.Op.(program.Kernel)
	w, is := k.Planner.(windowed)
	if !is || !whole(v) {
		return conv, nil, false
	}
	conv, sums, ok := w.columns()
	return conv, v.Base.Def.In[0], ok && !sums
}

// whole reports whether a value has all elements of its base in their order.
func whole(v *program.Value) bool { return v.IsContiguous() && v.Elements() == v.Base.Elements() }

// convolver rewrites products of windows.
type convolver struct {
	*program.Program
	views map[*program.Value][]*program.Value // of a base
}

// convolutions rewrites products of windows, and leaves to pruning what nothing reads then.
func (l *lowerer) convolutions() {
	c := &convolver{l.graph.Program, map[*program.Value][]*program.Value{}}
	instrs := c.Instrs
	for _, in := range instrs {
		if program.Is[program.Alias](in.Op) {
			c.views[in.Out[0].Base] = append(c.views[in.Out[0].Base], in.Out[0])
		}
	}
	c.Instrs = make([]*program.Instr, 0, len(instrs))
	for _, in := range instrs {
		v, operands := c.convolution(in)
		if operands != nil {
			in.Op, in.In = program.Kernel{Planner: v}, operands
		}
		if c.Instrs = append(c.Instrs, in); operands != nil && v.Result == gemm.ConvOutput {
			c.result(in, v)
		}
	}
}

// convolution returns the convolution that an instruction computes of windows and its operands, or nil.
func (c *convolver) convolution(in *program.Instr) (v gemm.Conv, operands []*program.Value) {
	product, ok := program.ProductOf(in.Op)
	if ok && product.Batch == 1 && len(in.In) == 2 {
		windows, images, first := columnsOf(in.In[0])
		if v = windows; first && !product.A.Trans && (product.B.Trans || product.N == 1) {
			v.Filters = product.N
			operands = []*program.Value{images, c.filters(in.In[1], v)}
		} else if windows, images, ok = columnsOf(in.In[1]); ok && !product.B.Trans {
			v, v.Result, v.Filters = windows, gemm.ConvFilters, product.M
			operands = []*program.Value{images, c.gradient(in.In[0], v, product.A.Trans || product.M == 1)}
		}
	} else if k, is := in.Op.(program.Kernel); is {
		w, _ := k.Planner.(windowed)
		windows, sums, ok := w.columns()
		if !ok || !sums || !whole(in.In[0]) {
			return v, nil
		}
		from := in.In[0].Base.Def
		if product, ok = program.ProductOf(from.Op); !ok || product.Batch != 1 || product.B.Trans && product.K > 1 {
			return v, nil
		}
		v, v.Result, v.Filters = windows, gemm.ConvImages, product.K
		operands = []*program.Value{c.gradient(from.In[0], v, !product.A.Trans || product.K == 1), c.filters(from.In[1], v)}
	}
	v.Round = product.Round
	if operands == nil || operands[0] == nil || operands[1] == nil {
		return v, nil
	}
	if _, err := v.Plan(kernels.HostDevice()); err != nil { // such as padding that no kernel has
		return v, nil
	}
	return v, operands
}

// pixels returns the shape of the outputs of a convolution with their channels last.
func pixels(v gemm.Conv) tensor.Shape {
	return tensor.Shape{int(v.Images), int(v.Rows.Out()), int(v.Columns.Out()), int(v.Filters)}
}

// filters returns a matrix of filters as a convolution reads it, or nil.
func (c *convolver) filters(v *program.Value, conv gemm.Conv) *program.Value {
	t := v.Type
	if t.Shape = (tensor.Shape{int(conv.Filters), int(conv.Channels), int(conv.Rows.Size), int(conv.Columns.Size)}); !v.IsContiguous() || t.Elements() != v.Elements() {
		return nil
	}
	return c.EmitAlias(v.Def.Nodes, v.Name, t, v, program.View{Offset: v.View.Offset, Strides: program.Contiguous(t.Shape).Strides})
}

// gradient returns a matrix of filters by pixels or, if last, of pixels by filters, as a convolution reads it, or nil. A copy in that order is not needed.
func (c *convolver) gradient(v *program.Value, conv gemm.Conv, last bool) *program.Value {
	shape := pixels(conv)
	if !whole(v) || v.Elements() != kernels.Count(shape) || !last && conv.Images > 1 {
		return nil
	}
	view := program.Contiguous(shape)
	if !last {
		view.Strides = []int64{0, int64(shape[2]), 1, int64(shape[1] * shape[2])}
	}
	op, _ := v.Base.Def.Op.(program.Map)
	if same, err := expr.Identity(v.Dtype); last && err == nil && op.Func == same && len(op.Axes) == 0 && slices.Equal(op.Shape, shape) && !v.Base.Def.In[0].IsBounded() && !v.Base.Def.In[0].IsRandom() {
		v = v.Base.Def.In[0]
		view = v.View
	}
	t := v.Type
	t.Shape = tensor.Shape{shape[0], shape[3], shape[1], shape[2]}
	s := view.Strides
	return c.EmitAlias(v.Def.Nodes, v.Name, t, v, program.View{Offset: view.Offset, Strides: []int64{s[0], s[3], s[1], s[2]}})
}

// result makes an instruction compute a convolution, (images, filters, rows, columns), in place of a product, pixels by filters. Views of the product with these four axes become views of the
// convolution; what reads the product in another shape reads a copy.
func (c *convolver) result(in *program.Instr, conv gemm.Conv) {
	out, last := in.Out[0], pixels(conv)
	first := tensor.Shape{last[0], last[3], last[1], last[2]}
	t := out.Type
	t.Shape, in.Out = first, nil
	y := c.NewValue(in, out.Name, t)
	s := y.View.Strides
	back := program.View{Strides: []int64{s[0], s[2], s[3], s[1]}}
	for _, v := range c.views[out] {
		u := *v
		switch {
		case v.View.Offset != 0 || v.IsBounded():
		case slices.Equal(v.Shape, last) && v.IsContiguous():
			v.Base, v.View = y, back
		case slices.Equal(v.Shape, first):
			s := v.View.Strides
			if u.Shape, u.View.Strides = last, []int64{s[0], s[2], s[3], s[1]}; u.IsContiguous() {
				v.Base, v.View = y, program.Contiguous(first)
			}
		}
		v.Def.In = []*program.Value{v.Base} // it may have been a view of one that is now of y
	}
	same, _ := expr.Identity(out.Dtype) // of a product's type
	t.Shape = last
	out.Def = &program.Instr{Op: program.Map{Func: same, Shape: last}, In: []*program.Value{c.EmitAlias(in.Nodes, out.Name, t, y, back)}, Out: []*program.Value{out}, Nodes: in.Nodes}
	c.Instrs = append(c.Instrs, out.Def)
}
