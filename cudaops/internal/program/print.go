package program

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the program, an instruction a line: the values that it defines with their types, spaces and addresses, the
// operation, and its operands.
//
//	%4 f32 (128, 10) device @4096  kernel MatMul %2 %3  matmul_small_f32
func (p *Program) Print(w io.Writer) {
	fmt.Fprintf(w, "program, %s: %d instructions", p.Stage, len(p.Instrs))
	if p.Stage >= Placed {
		fmt.Fprintf(w, ", %d bytes of device memory (%d alive at once)", p.Arena, p.Peak)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, in := range p.Setup {
		fmt.Fprintf(t, "  once\t%s\n", in)
	}
	for i, in := range p.Instrs {
		fmt.Fprintf(t, "  %d\t%s\n", i, in)
	}
	if len(p.Outputs) > 0 {
		fmt.Fprintf(t, "  out\t%s\n", names(p.Outputs))
	}
	t.Flush()
}

// String returns the text that [Program.Print] writes.
func (p *Program) String() string {
	var b strings.Builder
	p.Print(&b)
	return b.String()
}

// String returns the instruction as cells of a table, separated by tabs.
func (in *Instr) String() string {
	notes := in.Kernels()
	if in.Scratch != nil {
		notes = append(notes, fmt.Sprintf("scratch @%d, %d bytes", in.Scratch.Offset, in.Scratch.Size))
	}
	switch op := in.Op.(type) {
	case Host:
		if op.Reason != "" {
			notes = append(notes, op.Reason)
		}
	case Input, Constant:
		notes = append(notes, oneLine(in.Out[0].Name))
	}
	what := in.Op.String()
	if len(in.In) > 0 {
		what += " " + names(in.In)
	}
	return fmt.Sprintf("%s\t%s\t%s", strings.Join(Collect(in.Out, (*Value).describe), ", "), what, strings.Join(notes, "; "))
}

// describe returns a value's number, type, space and address.
func (v *Value) describe() string {
	s := v.String()
	if v.Numeric {
		s += fmt.Sprintf(" %v %v", v.Dtype, v.Shape)
	}
	if v.Space != Anywhere {
		s += " " + v.Space.String()
	}
	if v.Base != v {
		s += fmt.Sprintf(" in %v", v.Base)
	}
	if b := v.View.Bounds; v.IsBounded() {
		s += fmt.Sprintf(" [%d:%d] along %d", b.From, b.To, b.Axis)
	}
	if v.IsIota() {
		s += fmt.Sprintf(" from %d, strides %v", v.View.Offset, v.View.Strides)
	} else if v.IsRandom() {
		s += fmt.Sprintf(" random, stream %d", v.View.Stream.Number)
		if v.View.Stream.Normal {
			s += ", normal"
		}
	} else if b := v.Base.Buffer; b != nil {
		s += fmt.Sprintf(" @%d", b.Offset+v.View.Offset*v.Dtype.Size())
	}
	return s
}

// String returns the value's number, such as %4.
func (v *Value) String() string { return fmt.Sprintf("%%%d", v.ID) }

func names(values []*Value) string { return strings.Join(Collect(values, (*Value).String), " ") }

// oneLine returns the start of a text on one line.
func oneLine(text string) string {
	const longest = 40
	r := []rune(strings.Join(strings.Fields(text), " "))
	if len(r) > longest {
		return string(r[:longest-1]) + "…"
	}
	return string(r)
}
