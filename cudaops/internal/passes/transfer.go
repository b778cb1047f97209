package passes

import (
	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// transfer assigns a space to every value and inserts the copies. Kernels read and write values on
// the device, all other instructions on the host. A value is copied at most once in each direction, right before its first
// use in the other space, which keeps its device buffer alive no longer than needed. Constants are copied
// before the first run. Small inputs are copied at the beginning of each run: a later copy would have to wait for values
// that used the same memory.
func transfer(p *program.Program, _ Target) error {
	t := &transferrer{p: p, in: map[spaced]*program.Value{}, before: outputsBefore(p)}
	setup, instrs, early := p.Setup, p.Instrs, smallInputs(p)
	p.Setup, p.Instrs = nil, make([]*program.Instr, 0, len(instrs))
	for _, in := range setup {
		space := program.OnHost
		switch in.Op.(type) {
		case program.State, program.Iota:
			space = program.OnDevice
		}
		t.keep(&p.Setup, in, space)
	}
	for _, in := range instrs {
		for _, out := range t.before[in] {
			t.to(out, program.OnHost)
		}
		switch in.Op.(type) {
		case program.Alias:
			// Emitted before its first use, like a copy.
		case program.Kernel, program.Map, program.Concat, program.ConcatInPlace, program.Collective:
			t.move(in, program.OnDevice)
			t.keep(&p.Instrs, in, program.OnDevice)
		default:
			t.move(in, program.OnHost)
			t.keep(&p.Instrs, in, program.OnHost)
			if early[in] {
				t.to(in.Out[0], program.OnDevice)
			}
		}
	}
	for i, v := range p.Outputs {
		p.Outputs[i] = t.to(v, program.OnHost)
	}
	p.Stage = program.Transferred
	return nil
}

// small is the size in bytes up to which an input may occupy device memory for the whole run.
const small = 4096

// smallInputs returns the small inputs that are used on the device.
func smallInputs(p *program.Program) map[*program.Instr]bool {
	list := map[*program.Instr]bool{}
	for _, in := range p.Instrs {
		for _, v := range in.In {
			if program.Is[program.Input](v.Base.Def.Op) && (program.Launches(in.Op) || isConcatInPlace(in)) && v.Base.Bytes() <= small {
				list[v.Base.Def] = true
			}
		}
	}
	return list
}

// spaced is a value in a space: the value as it was lowered, and where.
type spaced struct {
	value *program.Value
	space program.Space
}

type transferrer struct {
	p  *program.Program
	in map[spaced]*program.Value // the values emitted so far
	// before lists the outputs to copy before an instruction overwrites the state that contains them.
	before map[*program.Instr][]*program.Value
}

func (t *transferrer) keep(list *[]*program.Instr, in *program.Instr, s program.Space) {
	*list = append(*list, in)
	for _, v := range in.Out {
		v.Space = s
		t.in[spaced{v, s}] = v
	}
}

// move replaces the inputs of an instruction by their copies in a space.
func (t *transferrer) move(in *program.Instr, s program.Space) {
	for i, v := range in.In {
		in.In[i] = t.to(v, s)
	}
}

// outputsBefore returns the outputs that are views of a state, keyed by the instruction that overwrites it.
func outputsBefore(p *program.Program) map[*program.Instr][]*program.Value {
	in := map[*program.Value][]*program.Value{} // by state
	for _, out := range p.Outputs {
		in[out.Base] = append(in[out.Base], out)
	}
	before := map[*program.Instr][]*program.Value{}
	for _, u := range p.Updates {
		before[u.Next.Def] = append(before[u.Next.Def], in[u.State]...)
	}
	return before
}

// to returns v in a space, adding the instructions that copy it there.
func (t *transferrer) to(v *program.Value, s program.Space) *program.Value {
	if existing := t.in[spaced{v, s}]; existing != nil {
		return existing
	}
	def := &program.Instr{Nodes: v.Def.Nodes}
	var out *program.Value
	alias := program.Is[program.Alias](v.Def.Op)
	if alias && program.Is[program.State](v.Base.Def.Op) && s == program.OnHost && v.IsContiguous() {
		def.Op, def.In = program.Copy{}, []*program.Value{t.to(v, program.OnDevice)} // copies only the part
		out = t.p.NewValue(def, v.Name, v.Type)
	} else if alias {
		base := t.to(v.Base, s)
		def.Op, def.In = program.Alias{}, []*program.Value{base}
		out = t.p.NewAlias(def, v.Name, v.Type, base, v.View)
	} else {
		def.Op, def.In = program.Copy{}, []*program.Value{t.in[spaced{v, v.Space}]}
		out = t.p.NewValue(def, v.Name, v.Type)
	}
	list := &t.p.Instrs
	if program.Is[program.Constant](v.Def.Op) {
		list = &t.p.Setup
	}
	t.keep(list, def, s)
	t.in[spaced{v, s}] = out
	return out
}
