package lower

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// maxFolded is the most elements that a step of folding computes beyond those of the operands.
const maxFolded = 1 << 24

// fold replaces a value that depends only on constants by a constant; start is the index of the first instruction that
// computes it. It does not fold views, values larger than their operands, matmuls, which can take long on the host, values of which
// a step has very many elements, such as a sum of a constant that is broadcast, and host ops, whose results may vary.
func (c *call) fold(v *program.Value, start int) (*program.Value, error) {
	p := c.graph.Program
	emitted := p.Instrs[start:]
	if !slices.ContainsFunc(emitted, func(in *program.Instr) bool { return program.Is[program.Map](in.Op) }) || slices.ContainsFunc(emitted, func(in *program.Instr) bool { return varies(in, emitted) }) {
		return v, nil
	}
	elements := int64(0)
	var part program.Program
	for _, in := range c.in {
		if !isConstant(in) {
			return v, nil
		}
		elements += in.Base.Elements()
		addWithInputs(&part, in.Def)
	}
	if v.Elements() > elements {
		return v, nil
	}
	part.Instrs = append(part.Instrs, emitted...)
	part.Outputs = []*program.Value{v}
	for _, in := range part.Instrs {
		for _, w := range in.Out {
			if w.Elements() > max(elements, maxFolded) {
				return v, nil
			}
		}
	}
	out, err := part.Eval(nil)
	if err != nil {
		return nil, err
	}
	p.Instrs = p.Instrs[:start]
	return c.emit(program.Constant{Value: out[0]}, c.Type), nil
}

// varies reports whether an instruction is a matmul or an input, or reads a value that is neither a constant nor computed by
// the instructions to fold.
func varies(in *program.Instr, along []*program.Instr) bool {
	switch in.Op.(type) {
	case program.Kernel, program.Input:
		return true
	}
	return slices.ContainsFunc(in.In, func(v *program.Value) bool { return !isConstant(v) && !slices.Contains(along, v.Base.Def) })
}

func isConstant(v *program.Value) bool { return program.Is[program.Constant](v.Base.Def.Op) }

// addWithInputs adds an instruction to a program, after those that it depends on.
func addWithInputs(p *program.Program, in *program.Instr) {
	if slices.Contains(p.Instrs, in) {
		return
	}
	for _, v := range in.In {
		addWithInputs(p, v.Def)
	}
	p.Instrs = append(p.Instrs, in)
}
