package passes

import (
	"maps"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/window"
	"gorgonia.org/tensor"
)

// mixed stores values in BF16 or F16 between launches, which compute in float32 in registers. docs/precision.md has the table. A value is stored
// in 16 bits if it is an activation or a gradient w.r.t. one, and the launches on both sides of it can write and read the type.
//
// Activations are the results of products and what is computed of them element by element, and the values of which the operands of products
// are computed element by element. Statistics of rows, sums over rows, and values that the user or the next run reads are float32, as is
// what becomes a state element by element: gradients w.r.t. parameters.
//
// Operands of these products that stay float32 are rounded by a launch, once for all products. Parameters have a copy in
// 16 bits, a state that the launch which updates them updates, too.
func mixed(p *program.Program, t Target) error {
	as, ok := t.Mixed.Half()
	if !ok {
		return nil
	}
	m := newMixer(p, t, t.Mixed, as)
	m.choose()
	for changed := true; changed; {
		m.orders()
		changed = false
		for _, in := range p.Instrs {
			changed = m.restrict(in) || changed
		}
	}
	m.order()
	return m.rewrite()
}

type mixer struct {
	p       *program.Program
	device  kernels.Device
	by      kernels.Precision        // of products
	as      kernels.Dtype            // in which values are stored
	readers map[*program.Value][]use // of a base
	instrs  map[*program.Value]bool  // bases that instructions of a run compute
	half    map[*program.Value]bool  // bases that are stored in 16 bits
	fixed   map[*program.Value]bool  // bases that the user or the next run reads
	last    map[*program.Value]bool  // bases that are stored with their channels last, and Maps that run in that order: see channels.go
	runs    map[*program.Instr]bool
	cast    caster
	copies  map[*program.Value]*program.Value // in 16 bits, of states
	halves  func(home program.Memory, d kernels.Dtype) (program.Memory, error)
}

// use is an operand of an instruction.
type use struct {
	in *program.Instr
	v  *program.Value
}

func newMixer(p *program.Program, t Target, by kernels.Precision, as kernels.Dtype) *mixer {
	m := &mixer{p: p, device: t.Device, by: by, as: as, halves: t.Halves, instrs: map[*program.Value]bool{}, readers: map[*program.Value][]use{}, fixed: map[*program.Value]bool{}, copies: map[*program.Value]*program.Value{}, cast: caster{p: p, device: t.Device, cast: map[prepared]*program.Value{}}}
	for _, in := range p.Instrs {
		if _, alias := in.Op.(program.Alias); alias {
			continue
		}
		for _, v := range in.In {
			m.readers[v.Base] = append(m.readers[v.Base], use{in, v})
		}
		for _, v := range in.Out {
			m.instrs[v] = v.Numeric && v.Dtype == kernels.Float32
		}
	}
	for _, u := range p.Updates {
		m.fixed[u.Next.Base] = true
	}
	for _, v := range p.Outputs {
		m.fixed[v.Base] = true
	}
	return m
}

// inOrder reports whether a view has each element of its base once.
func inOrder(v *program.Value) bool {
	return v.Elements() == v.Base.Elements() && !v.IsBounded() && !v.IsRandom() && !v.IsIota() && v.Reach() == v.Elements()
}

// elementwise returns the outputs of a Map with an element for each element of the domain.
func elementwise(in *program.Instr) (list []*program.Value) {
	for k, v := range in.Out {
		if op, mapped := in.Op.(program.Map); mapped && (op.PerRow == nil || !op.PerRow[k]) {
			list = append(list, v)
		}
	}
	return list
}

// reach returns the bases that are found from some bases, element by element, in the direction of the data, or against it and through collectives.
func (m *mixer) reach(from []*program.Value, forward bool) map[*program.Value]bool {
	found := map[*program.Value]bool{}
	for len(from) > 0 {
		v := from[len(from)-1]
		if from = from[:len(from)-1]; found[v] {
			continue
		}
		found[v] = true
		if forward {
			for _, u := range m.readers[v] {
				if inOrder(u.v) {
					from = append(from, elementwise(u.in)...)
				}
			}
		} else if m.instrs[v] && (isConcatInPlace(v.Def) || program.Is[program.Collective](v.Def.Op) || slices.Contains(elementwise(v.Def), v)) {
			for _, x := range v.Def.In {
				if inOrder(x) {
					from = append(from, x.Base)
				}
			}
		}
	}
	return found
}

// choose finds the activations.
func (m *mixer) choose() {
	var results, operands, updates []*program.Value
	for _, in := range m.p.Instrs {
		if _, in, out, ok := m.stored(in); ok {
			results = append(results, out...)
			for _, v := range in {
				operands = append(operands, v.Base)
			}
		}
		if _, data, ok := m.conv(in); ok {
			for _, v := range data {
				if m.takes(in, v.Base) && v.Def == in {
					results = append(results, v)
				} else if m.takes(in, v.Base) {
					operands = append(operands, v.Base)
				}
			}
		}
		if _, data, ok := pool(in); ok {
			for _, v := range slices.Concat(data[:]...) {
				if m.takes(in, v.Base) && v.Def == in {
					results = append(results, v)
				} else if m.takes(in, v.Base) {
					operands = append(operands, v.Base)
				}
			}
		}
		if product, ok := program.ProductOf(in.Op); ok && product.Round == m.by {
			results, operands = append(results, in.Out[0]), append(operands, in.In[0].Base, in.In[1].Base)
		}
	}
	for _, u := range m.p.Updates {
		updates = append(updates, u.Next.Base)
	}
	float := maps.Clone(m.fixed)
	for v := range m.reach(updates, false) {
		float[v] = true
	}
	m.half = m.reach(results, true)
	for v := range m.reach(operands, false) {
		m.half[v] = true
	}
	for v := range m.half {
		_, product := program.ProductOf(v.Def.Op)
		_, concat := v.Def.Op.(program.Concat)
		_, _, stored, _ := m.stored(v.Def)
		if float[v] || !m.instrs[v] || !product && !concat && !m.takes(v.Def, v) && !program.Is[program.Map](v.Def.Op) && !slices.Contains(stored, v) {
			delete(m.half, v)
		}
	}
}

// restrict drops values that an instruction cannot read or write in 16 bits, and reports whether there were any.
func (m *mixer) restrict(in *program.Instr) (changed bool) {
	float := func(list ...*program.Value) {
		for _, v := range list {
			changed = changed || m.half[v.Base]
			delete(m.half, v.Base)
		}
	}
	product, isProduct := program.ProductOf(in.Op)
	switch op := in.Op.(type) {
	case program.Alias:
	case program.Map:
		for k, perRow := range op.PerRow {
			if perRow && !ofVector(in) {
				float(in.Out[k])
			}
		}
	case program.Concat:
		if slices.ContainsFunc(append(slices.Clone(in.In), in.Out...), func(v *program.Value) bool { return !m.half[v.Base] }) {
			float(append(slices.Clone(in.In), in.Out...)...)
		}
	default:
		if conv, data, ok := m.conv(in); ok {
			for i, v := range data {
				conv.ChannelsLast[i] = m.half[v.Base] && m.last[v.Base]
			}
			for _, v := range append(slices.Clone(in.In), in.Out...) {
				if i := slices.Index(data[:], v); i < 0 || !conv.ChannelsLast[i] || !conv.TakesChannelsLast(m.device) {
					float(v)
				}
			}
		} else if _, data, ok := pool(in); ok {
			if slices.ContainsFunc(data[window.PoolImages], func(v *program.Value) bool { return !m.half[v.Base] || !m.last[v.Base] }) {
				float(slices.Concat(data[:]...)...)
			}
		} else if _, from, to, ok := m.stored(in); ok && len(to) > 0 && !slices.ContainsFunc(to, func(v *program.Value) bool { return !m.half[v] }) {
			for _, v := range append(slices.Clone(in.In), in.Out...) {
				if !slices.Contains(append(slices.Clone(from), to...), v) {
					float(v)
				}
			}
		} else if !isProduct {
			float(append(slices.Clone(in.In), in.Out...)...)
		} else if product, ok := m.inHalf(in, product); !ok {
			float(append(slices.Clone(in.In), in.Out...)...)
		} else if _, ok := product.Stored(m.dtype(in.Out[0]), m.dtypes(in.In[2:]), m.device); !ok {
			float(append(slices.Clone(in.In[2:]), in.Out...)...)
		}
	}
	return changed
}

// inHalf returns a product with both operands in 16 bits, and false if it is not computed so on the device, or if an operand is such that no
// launch makes it a dense one in 16 bits.
func (m *mixer) inHalf(in *program.Instr, product gemm.Product) (gemm.Product, bool) {
	if product.Round != m.by || product.Dtype != kernels.Float32 {
		return product, false
	}
	form := gemm.Form(m.by)
	product.A.Form, product.B.Form = form, form
	for i, x := range product.Prepares(gemm.Form(m.by)) {
		if x.Cols%8 != 0 && (m.half[in.In[i].Base] || !in.In[i].IsContiguous()) {
			return product, false
		}
	}
	f, _ := product.Wants(m.device)
	return product, f == form && (min(product.M, product.N) > 1 || m.isHalf(in.In[0]) && m.isHalf(in.In[1]))
}

// isHalf reports whether a value is stored in 16 bits, or has a copy in 16 bits that the program does not make in each run.
func (m *mixer) isHalf(v *program.Value) bool { return m.half[v.Base] || m.hasCopy(v.Base) }

// stored returns the planner of an instruction that reads and writes 16 bits, and the values that it has in them; ok is false if there is none.
func (m *mixer) stored(in *program.Instr) (p kernels.Planner, from, to []*program.Value, ok bool) {
	k, _ := in.Op.(program.Kernel)
	if a, ok := program.AttentionOf(in.Op); ok {
		k.Planner = a
	}
	s, ok := k.Planner.(program.Storer)
	if !ok {
		return nil, nil, nil, false
	}
	p, inputs, outputs, ok := s.Stored(m.as, m.device)
	if !ok || len(inputs) != len(in.In) || len(outputs) != len(in.Out) {
		return nil, nil, nil, false
	}
	for i, v := range in.In {
		if inputs[i] {
			from = append(from, v)
		}
	}
	for i, v := range in.Out {
		if outputs[i] {
			to = append(to, v)
		}
	}
	return p, from, to, true
}

// dtype returns the type in which a value is stored.
func (m *mixer) dtype(v *program.Value) kernels.Dtype {
	if m.half[v.Base] {
		return m.as
	}
	return v.Dtype
}

func (m *mixer) dtypes(list []*program.Value) (types []kernels.Dtype) {
	for _, v := range list {
		types = append(types, m.dtype(v))
	}
	return types
}

// rewrite changes the types of values, and the instructions that read or write them.
func (m *mixer) rewrite() error {
	instrs := m.p.Instrs
	m.p.Instrs = make([]*program.Instr, 0, len(instrs))
	for at, in := range instrs {
		if product, ok := program.ProductOf(in.Op); ok {
			if err := m.product(in, product); err != nil {
				return in.InNode(err)
			}
		}
		if p, from, to, ok := m.stored(in); ok && len(to) > 0 && m.half[to[0]] {
			for i, v := range in.In {
				if slices.Contains(from, v) && m.dtype(v) != m.as {
					var err error
					if in.In[i], err = m.copy(v); err != nil {
						return in.InNode(err)
					}
				}
			}
			in.Op = program.Kernel{Planner: p}
		}
		if op, mapped := in.Op.(program.Map); mapped {
			if err := m.weights(in); err != nil {
				return in.InNode(err)
			}
			if err := m.convert(in, op); err != nil {
				return in.InNode(err)
			}
			if err := m.again(in, instrs[at+1:]); err != nil {
				return in.InNode(err)
			}
		}
		m.p.Instrs = append(m.p.Instrs, in)
	}
	for in := range m.p.All() {
		for _, v := range in.Out {
			v.Dtype = m.dtype(v)
		}
	}
	return nil
}

// convert makes a Map convert what it loads and stores.
func (m *mixer) convert(in *program.Instr, op program.Map) (err error) {
	from, to := m.dtypes(in.In), m.dtypes(in.Out)
	if !slices.Contains(append(slices.Clone(from), to...), m.as) {
		return nil
	}
	op.Func, err = op.Func.Stored(from, to)
	in.Op = op
	return err
}

// product makes a product read and write 16 bits.
func (m *mixer) product(in *program.Instr, product gemm.Product) error {
	if !slices.ContainsFunc(append(slices.Clone(in.In), in.Out...), func(v *program.Value) bool { return m.half[v.Base] }) {
		return nil
	}
	product, _ = m.inHalf(in, product)
	product, _ = product.Stored(m.dtype(in.Out[0]), m.dtypes(in.In[2:]), m.device)
	for i, x := range product.Prepares(gemm.Form(m.by)) {
		if v := in.In[i]; !m.half[v.Base] {
			var err error
			if in.In[i], err = m.rounded(v, x); err != nil {
				return err
			}
		}
	}
	in.Op = program.Kernel{Planner: product}
	return nil
}

// rounded returns a copy of a float32 value in 16 bits.
func (m *mixer) rounded(v *program.Value, as gemm.Prepare) (*program.Value, error) {
	if v.IsContiguous() && as.Cols%8 == 0 {
		c, err := m.copyOf(v.Base)
		if err != nil {
			return nil, err
		}
		if c != nil {
			return m.alias(v, c), nil
		}
	}
	if v.IsContiguous() {
		return m.cast.prepare(v, as), nil
	}
	return m.copy(v)
}

// copy returns a dense copy of a float32 value in 16 bits.
func (m *mixer) copy(v *program.Value) (*program.Value, error) {
	f, err := expr.Identity(v.Dtype)
	if err == nil {
		f, err = f.Stored([]kernels.Dtype{v.Dtype}, []kernels.Dtype{m.as})
	}
	if err != nil {
		return nil, err
	}
	def := &program.Instr{Op: program.Map{Func: f, Shape: v.Shape}, In: []*program.Value{v}, Nodes: v.Def.Nodes}
	m.p.Instrs = append(m.p.Instrs, def)
	return m.p.NewValue(def, v.Name, program.Type{Numeric: true, Dtype: m.as, Shape: tensor.Shape(v.Shape)}), nil
}

// copyOf returns the copy of a state in 16 bits, or nil for a value that is none, or whose next value is no output of a Map without reductions. Programs that share
// a state share its copy: whoever runs a program renews the copy if another program has changed the state alone.
func (m *mixer) copyOf(state *program.Value) (*program.Value, error) {
	if c, known := m.copies[state]; known {
		return c, nil
	}
	m.copies[state] = nil
	if !m.hasCopy(state) {
		return nil, nil
	}
	op, next := state.Def.Op.(program.State), m.nextOf(state)
	update, _ := next.Def.Op.(program.Map)
	t := program.Type{Numeric: true, Dtype: m.as, Shape: state.Shape}
	copied := program.State{Rounds: state, Offset: op.Offset / 2}
	if op.Home != nil {
		var err error
		if copied.Home, err = m.halves(op.Home, m.as); err != nil {
			return nil, err
		}
	}
	def := &program.Instr{Op: copied, Nodes: state.Def.Nodes}
	c := m.p.NewValue(def, state.Name, t)
	m.p.Setup = append(m.p.Setup, def)
	to := c
	if next != state {
		b := expr.NewBuilder(update.Func.Operands()...)
		results := b.Inline(update.Func, b.Inputs()...)
		f, err := b.Func(append(results, b.Convert(results[slices.Index(next.Def.Out, next)], m.as))...)
		if err != nil {
			return nil, err
		}
		update.Func = f
		next.Def.Op, to = update, m.p.NewValue(next.Def, next.Name, t)
	}
	m.p.Updates = append(m.p.Updates, program.Update{State: c, Next: to})
	m.copies[state] = c
	return c, nil
}

// nextOf returns the next value of a state, nil for a value that is none.
func (m *mixer) nextOf(state *program.Value) *program.Value {
	for _, u := range m.p.Updates {
		if u.State == state {
			return u.Next
		}
	}
	return nil
}

// hasCopy reports whether copyOf makes a copy of a value.
func (m *mixer) hasCopy(state *program.Value) bool {
	op, is := state.Def.Op.(program.State)
	next := m.nextOf(state)
	if !is || next == nil || op.Home != nil && m.halves == nil {
		return false
	}
	update, mapped := next.Def.Op.(program.Map)
	return next == state || mapped && len(update.Axes) == 0 && next.Base == next && len(next.Def.Out) < maxOutputs
}

// alias returns the elements of a copy at the places of a view of its state.
func (m *mixer) alias(v, c *program.Value) *program.Value {
	def := &program.Instr{Op: program.Alias{}, In: []*program.Value{c}, Nodes: v.Def.Nodes}
	m.p.Instrs = append(m.p.Instrs, def)
	return m.p.NewAlias(def, v.Name, program.Type{Numeric: true, Dtype: m.as, Shape: v.Shape}, c, v.View)
}
