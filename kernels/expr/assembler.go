package expr

import (
	"fmt"
	"strconv"
	"strings"
)

// Assembler writes the PTX of one kernel: its own instructions, added by [Assembler.Line], and those of functions, added by [Assembler.Apply].
//
// Elements are in registers of their size: f32 and f64 in such, the integers and bool in b32 or b64.
type Assembler struct {
	RoundsBF16 bool // the target has an instruction that rounds to BF16: sm_80 and later ones

	functions *Functions
	head      strings.Builder
	text      strings.Builder
	counts    [kindCount]int
	known     map[instruction]string // results, by the instruction that computes them
	divided   map[string]divided     // quotients
	uniform   map[string]bool        // registers that many elements are computed with
	before    map[string]string      // registers that had the value of another
	numbers   []string               // registers of constants: see Func.Numbers
	labels    int
	items     map[int]bool // tables and functions that the instructions name
}

// Kind is a kind of register.
type Kind int

// The kinds of registers.
const (
	F32 Kind = iota
	F64
	B32
	B64
	Pred
	kindCount
)

// kinds are the registers' types and prefixes, none of which the compiler uses.
var kinds = [kindCount]struct{ dtype, prefix string }{{"f32", "%x"}, {"f64", "%y"}, {"b32", "%w"}, {"b64", "%l"}, {"pred", "%q"}}

// instruction identifies a value by how it is computed.
type instruction struct {
	op       Op
	from, to Dtype
	x, y, z  string
}

// NewAssembler returns an assembler of a kernel without instructions.
func NewAssembler(fs *Functions) *Assembler {
	return &Assembler{functions: fs, known: map[instruction]string{}, divided: map[string]divided{}, before: map[string]string{}, uniform: map[string]bool{}, items: map[int]bool{}}
}

// Register returns a new register.
func (a *Assembler) Register(k Kind) string {
	r := kinds[k].prefix + strconv.Itoa(a.counts[k])
	a.counts[k]++
	return r
}

// Kind returns the kind of register that elements of a type are in.
func (d Dtype) Kind() Kind {
	switch {
	case d == Float32:
		return F32
	case d == Float64:
		return F64
	case d.Size() == 8:
		return B64
	}
	return B32
}

// Line adds an instruction without its semicolon, as by [fmt.Sprintf].
func (a *Assembler) Line(format string, args ...any) {
	a.text.WriteByte('\t')
	fmt.Fprintf(&a.text, format, args...)
	a.text.WriteString(";\n")
}

// Declare adds a declaration, without its semicolon, to the head of the module.
func (a *Assembler) Declare(line string) { a.head.WriteString(line + ";\n") }

// Label adds a label.
func (a *Assembler) Label(name string) { a.text.WriteString(name + ":\n") }

// Block returns the instructions as a block, which has registers of its own.
func (a *Assembler) Block() string {
	var w strings.Builder
	w.WriteString("\t{\n")
	a.body(&w)
	w.WriteString("\t}\n")
	return w.String()
}

// Globals returns the tables and functions that the instructions name, for the head of their module.
func (a *Assembler) Globals() string {
	text := ""
	for i, it := range a.functions.items { // in their order
		if a.items[i] {
			text += it.text
		}
	}
	return text
}

// body writes the registers' declarations and the instructions.
func (a *Assembler) body(w *strings.Builder) {
	for k, n := range a.counts {
		if n > 0 {
			fmt.Fprintf(w, "\t.reg .%s %s<%d>;\n", kinds[k].dtype, kinds[k].prefix, n)
		}
	}
	w.WriteString(a.text.String())
}

// Version is the PTX that functions take, of CUDA 11.0, and MinDriver the CUDA version, as in 11000 for 11.0, that a driver must support for it.
// Instructions that came with compute capability 9.0 need HopperVersion, that of CUDA 11.8, as such devices do.
const (
	Version       = ".version 7.0"
	MinDriver     = 11000
	HopperVersion = ".version 7.8"
)

// Blocks are those that an entry point is for.
type Blocks struct {
	Threads  int // of a block, at most
	Cluster  int // blocks of a cluster; 0: there are none
	Resident int // blocks that a multiprocessor shall have registers for; 0: as many as the assembler chooses
}

// Text returns a module of the one entry point with those parameters, such as ".u64 n", for devices from a compute capability on, as in "sm_70".
func (a *Assembler) Text(target, entry string, parameters []string, blocks Blocks) string {
	var w strings.Builder
	version, directives := Version, ""
	if target == "sm_90" {
		version = HopperVersion
	}
	if blocks.Resident > 0 {
		directives = fmt.Sprintf(".minnctapersm %d\n", blocks.Resident)
	}
	if blocks.Cluster > 0 {
		directives += fmt.Sprintf(".explicitcluster\n.reqnctapercluster %d, 1, 1\n", blocks.Cluster)
	}
	w.WriteString(version + "\n.target " + target + "\n.address_size 64\n\n" + a.head.String() + a.Globals())
	fmt.Fprintf(&w, "\n.visible .entry %s(\n\t.param %s\n)\n.maxntid %d, 1, 1\n%s{\n", entry, strings.Join(parameters, ",\n\t.param "), blocks.Threads, directives)
	a.body(&w)
	w.WriteString("\tret;\n}\n")
	return w.String()
}
