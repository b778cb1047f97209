package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/window"
)

// Convolutions in 16 bits and in TF32 read and write (images, rows, columns, channels), channels last, while values of graphs are (images, channels, rows, columns). So the values between
// convolutions, and those of max-poolings among them, are stored with their channels last, under Mixed and in TF32: Maps run over the axes in that order, and read all others, such as the user's inputs, through views of them. Where
// a value leaves such a chain, to a kernel that wants the graph's order, the last Map writes that order.

// channels stores the values between convolutions in TF32 with their channels last. Under Mixed the pass of that name does so.
func channels(p *program.Program, t Target) error {
	if t.Mixed == kernels.FullPrecision && convolvesLast(p, t) {
		m := newMixer(p, t, kernels.TF32, kernels.Float32)
		m.orders()
		m.order()
	}
	return nil
}

// channelsLast is the order of axes of a value whose channels are last.
var channelsLast = []int{0, 2, 3, 1}

// ordered returns a list in the order of channelsLast.
func ordered[S ~[]E, E any](list S) S {
	to := make(S, len(channelsLast))
	for i, a := range channelsLast {
		to[i] = list[a]
	}
	return to
}

// convolvesLast reports whether convolutions of a program can have values with their channels last.
func convolvesLast(p *program.Program, t Target) bool {
	by := t.Mixed
	if by == kernels.FullPrecision {
		by = kernels.TF32
	}
	return slices.ContainsFunc(p.Instrs, func(in *program.Instr) bool {
		v, ok := program.ConvOf(in.Op)
		v.ChannelsLast[gemm.ConvOutput] = ok && v.Round == by
		return v.ChannelsLast[gemm.ConvOutput] && v.TakesChannelsLast(t.Device)
	})
}

// conv returns a convolution with operands in m.by, or the gradient of one, and its images and outputs, or their gradients, by index of [gemm.Conv].ChannelsLast.
func (m *mixer) conv(in *program.Instr) (v gemm.Conv, data [2]*program.Value, ok bool) {
	v, ok = program.ConvOf(in.Op)
	if !ok || v.Round != m.by || v.Dtype != kernels.Float32 {
		return v, data, false
	}
	switch v.Result {
	case gemm.ConvOutput:
		data[gemm.ConvImages], data[gemm.ConvOutput] = in.In[0], in.Out[0]
	case gemm.ConvImages:
		data[gemm.ConvImages], data[gemm.ConvOutput] = in.Out[0], in.In[0]
	default:
		data[gemm.ConvImages], data[gemm.ConvOutput] = in.In[0], in.In[1]
	}
	return v, data, true
}

// pool returns a max-pooling, or the gradient of one, and its images and outputs, or their gradients, by index of [window.MaxPooling].ChannelsLast.
func pool(in *program.Instr) (p window.MaxPooling, data [2][]*program.Value, ok bool) {
	p, ok = program.MaxPoolingOf(in.Op)
	switch {
	case !ok:
	case p.Gradient:
		data = [2][]*program.Value{{in.In[0], in.Out[0]}, {in.In[1]}}
	default:
		data = [2][]*program.Value{{in.In[0]}, {in.Out[0]}}
	}
	return p, data, ok
}

// takes reports whether a convolution or a max-pooling can have a value with its channels last.
func (m *mixer) takes(in *program.Instr, value *program.Value) bool {
	if p, data, ok := pool(in); ok {
		p.ChannelsLast[window.PoolImages] = true
		for of, list := range data {
			p.ChannelsLast[of] = p.ChannelsLast[of] || slices.ContainsFunc(list, func(v *program.Value) bool { return v.Base == value })
		}
		return p.Takes(m.device)
	}
	v, data, ok := m.conv(in)
	for i, d := range data {
		v.ChannelsLast[i] = ok && d.Base == value
	}
	return ok && v.ChannelsLast != [2]bool{} && v.TakesChannelsLast(m.device)
}

// orders finds the values that are stored with their channels last: those of convolutions, in 16 bits or in TF32, and what Maps compute along with them.
func (m *mixer) orders() {
	can := map[*program.Value]bool{}
	for v, computed := range m.instrs {
		can[v] = computed && m.canOrder(v)
	}
	runs := func(in *program.Instr) bool { // over the axes with channels last: results of rows have one order then
		op, mapped := in.Op.(program.Map)
		return mapped && len(op.Shape) == len(channelsLast) && (len(op.Axes) == 0 || slices.Contains(op.Axes, 1) || slices.Contains(op.Axes, 2) && slices.Contains(op.Axes, 3)) &&
			!slices.ContainsFunc(elementwise(in), func(v *program.Value) bool { return !can[v] })
	}
	for changed := true; changed; {
		changed = false
		for _, in := range m.p.Instrs {
			for _, v := range elementwise(in) {
				if can[v] && !runs(in) {
					can[v], changed = false, true
				}
			}
			if _, data, ok := pool(in); ok { // outputs have their channels last only where the images have
				images := data[window.PoolImages]
				for _, v := range slices.Concat(data[:]...) {
					if can[v.Base] && slices.ContainsFunc(images, func(x *program.Value) bool { return !can[x.Base] }) {
						can[v.Base], changed = false, true
					}
				}
			}
		}
	}
	m.last, m.runs = map[*program.Value]bool{}, map[*program.Instr]bool{}
	for _, in := range m.p.Instrs {
		if _, data, ok := m.conv(in); ok {
			for _, v := range data {
				m.last[v.Base] = can[v.Base]
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for _, in := range m.p.Instrs {
			if !m.runs[in] && runs(in) && slices.ContainsFunc(append(slices.Clone(in.In), in.Out...), func(v *program.Value) bool { return m.last[v.Base] }) {
				for _, v := range elementwise(in) {
					m.last[v] = true
				}
				m.runs[in], changed = true, true
			}
			if _, data, ok := pool(in); ok && slices.ContainsFunc(slices.Concat(data[:]...), func(v *program.Value) bool { return m.last[v.Base] }) {
				for _, v := range data[window.PoolImages] {
					changed = changed || !m.last[v.Base]
					m.last[v.Base] = true
				}
			}
		}
	}
}

// canOrder reports whether all that read a value can read it with its channels last.
func (m *mixer) canOrder(v *program.Value) bool {
	conv := m.takes(v.Def, v)
	if len(v.Shape) != len(channelsLast) || m.fixed[v] || !conv && !program.Is[program.Map](v.Def.Op) {
		return false
	}
	for _, u := range m.readers[v] {
		op, mapped := u.in.Op.(program.Map)
		if !slices.Equal(u.v.Shape, v.Shape) || !u.v.IsContiguous() || mapped && !slices.Equal(op.Shape, v.Shape) || !mapped && !m.takes(u.in, v) {
			return false
		}
		conv = conv || !mapped
	}
	return !conv || m.half[v] || m.as == kernels.Float32
}

// order stores the values of m.last with their channels last.
func (m *mixer) order() {
	instrs := m.p.Instrs
	m.p.Instrs = make([]*program.Instr, 0, len(instrs))
	for _, in := range instrs {
		if program.Is[program.Alias](in.Op) && m.last[in.Out[0].Base] {
			continue // all that read it read the base, or get another one
		}
		v, data, conv := m.conv(in)
		for i, d := range data {
			v.ChannelsLast[i] = conv && m.last[d.Base]
		}
		if conv && v.ChannelsLast != [2]bool{} {
			in.Op = program.Kernel{Planner: v}
		}
		p, pooled, pools := pool(in)
		for of, list := range pooled {
			if p.ChannelsLast[of] = pools && m.last[list[0].Base]; pools && m.half[list[0].Base] {
				p.Stored[of] = m.as
			}
		}
		if pools {
			in.Op = program.Kernel{Planner: p}
		}
		for i, x := range in.In {
			switch {
			case m.runs[in] && m.last[x.Base], (conv || pools) && m.last[x.Base]:
				in.In[i] = x.Base
			case m.runs[in]:
				view := x.View
				if view.Strides = ordered(view.Strides); x.IsBounded() {
					view.Bounds.Axis = slices.Index(channelsLast, view.Bounds.Axis)
				}
				t := x.Type
				t.Shape = ordered(t.Shape)
				in.In[i] = m.p.EmitAlias(in.Nodes, x.Name, t, x, view)
			case m.last[x.Base]: // in the graph's order
				view := program.Contiguous(ordered(x.Shape))
				view.Strides = []int64{view.Strides[0], view.Strides[3], view.Strides[1], view.Strides[2]}
				in.In[i] = m.p.EmitAlias(in.Nodes, x.Name, x.Type, x.Base, view)
			}
		}
		if m.runs[in] {
			op := in.Op.(program.Map)
			op.Shape, op.Axes = ordered(op.Shape), slices.Clone(op.Axes)
			for i, a := range op.Axes {
				op.Axes[i] = slices.Index(channelsLast, a)
			}
			slices.Sort(op.Axes)
			in.Op = op
		}
		m.p.Instrs = append(m.p.Instrs, in)
	}
	for v, last := range m.last {
		if last {
			v.Shape = ordered(v.Shape)
			v.View = program.Contiguous(v.Shape)
		}
	}
}
