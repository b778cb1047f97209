package expr

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/fingerprint"
)

// Functions holds PTX of the operations that take more than a few instructions, as the compiler made it of kernels/codegen/math.cu.
type Functions struct {
	bodies map[string]body // by entry point, such as "exp_f32"
	items  []item          // in an order in which they can be declared
}

// body is the instructions of an entry point as a block: texts, and between them the places of its arguments, 0 and 1, and of its result.
type body struct {
	texts  []string
	places []int
	needs  []int // items
}

// result is the place of a result.
const result = 2

// item is a function or a table beside the entry points.
type item struct{ name, text string }

// ReadFunctions parses the PTX of math.cu.
func ReadFunctions(ptx string) (*Functions, error) {
	fs := &Functions{bodies: map[string]body{}}
	entries := map[string]string{}
	var functions []item
	for len(ptx) > 0 {
		text := firstLine(ptx)
		switch name, begins := defined(text); begins {
		case entryBegins:
			text = definition(ptx)
			entries[name] = text
		case functionBegins:
			text = definition(ptx)
			functions = append(functions, item{name, rounded.Replace(text)})
		case "table":
			fs.items = append(fs.items, item{name, text})
		}
		ptx = ptx[len(text):]
	}
	fs.items = append(fs.items, functions...)
	for name, text := range entries {
		b, err := splice(name, text)
		if err != nil {
			return nil, fmt.Errorf("expr: entry point %s: %w", name, err)
		}
		b.needs = fs.needed(text)
		fs.bodies[name] = b
	}
	for op := range opCount {
		for _, d := range []Dtype{Float32, Float64} {
			if name := functionName(op, d); op.transcendental() && fs.bodies[name].texts == nil {
				return nil, fmt.Errorf("expr: got PTX without an entry point %s", name)
			}
		}
	}
	return fs, nil
}

// firstLine returns a text's first line with its end.
func firstLine(text string) string {
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		return text[:i+1]
	}
	return text
}

const (
	entryBegins    = ".visible .entry "
	functionBegins = ".func "
)

// defined returns the name of an entry point or a function whose definition begins with a line, after those words, and of a table that the line is.
func defined(line string) (name, begins string) {
	head, _, found := strings.Cut(line, "(\n")
	switch {
	case strings.HasPrefix(line, entryBegins) && found:
		return head[len(entryBegins):], entryBegins
	case strings.HasPrefix(line, functionBegins) && found: // .func (result) name(
		return head[strings.LastIndexByte(head, ' ')+1:], functionBegins
	case strings.HasPrefix(line, ".global ") || strings.HasPrefix(line, ".const "):
		head, _, _ = strings.Cut(line, "[")
		return head[strings.LastIndexByte(head, ' ')+1:], "table"
	}
	return "", ""
}

// definition returns the text up to the end of the definition that it begins with.
func definition(text string) string {
	if end := strings.Index(text, "\n}\n"); end >= 0 {
		return text[:end+len("\n}\n")]
	}
	return text
}

func functionName(op Op, d Dtype) string { return op.String() + "_" + d.String() }

// rounded marks each sum and product as rounded, so that the assembler does not make one instruction of a product and a sum here and two there.
var rounded = strings.NewReplacer("add.f32", "add.rn.f32", "sub.f32", "sub.rn.f32", "mul.f32", "mul.rn.f32",
	"add.f64", "add.rn.f64", "sub.f64", "sub.rn.f64", "mul.f64", "mul.rn.f64")

// splice makes a block of the definition of an entry point. A block has registers, labels and local memory of its own.
func splice(name, text string) (body, error) {
	_, text, _ = strings.Cut(text, "\n{\n")
	text = rounded.Replace(strings.TrimRight(strings.TrimSuffix(text, "}\n"), "\n"))
	text = strings.TrimSuffix(text, "\tret;") // falls out of the block
	b, results, jumps := body{}, 0, false
	var last strings.Builder
	last.WriteString("\t{\n")
	place := func(before string, p int, after string) {
		last.WriteString(before)
		b.texts, b.places = append(b.texts, last.String()), append(b.places, p)
		last.Reset()
		last.WriteString(after)
	}
	for line := range strings.Lines(text) {
		op, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		first, second, _ := strings.Cut(strings.Trim(rest, "\t ;"), ", ")
		switch address := strings.Trim(second, "[]"); {
		case op == "":
		case op == "ld.param.u64", op == "cvta.to.global.u64": // the address of the result
		case strings.HasPrefix(op, "ld.param.f") && (address == name+"_param_0" || address == name+"_param_1"):
			place("\tmov"+op[len("ld.param"):]+" "+first+", ", int(address[len(address)-1]-'0'), ";\n")
		case strings.HasPrefix(op, "st.global.f"):
			results++
			place("\tmov"+op[len("st.global"):]+" ", result, ", "+second+";\n")
		case strings.Contains(line, name+"_param"):
			return b, fmt.Errorf("got another use of parameters than loads of numbers and of the result's address")
		case strings.Contains(line, "ret;"):
			last.WriteString(strings.Replace(line, "ret;", "bra.uni $L__end;", 1))
			jumps = true
		default:
			last.WriteString(line)
		}
	}
	if results != 1 {
		return b, fmt.Errorf("got %d stores of a result, want 1", results)
	}
	if jumps {
		last.WriteString("$L__end:\n")
	}
	b.texts = append(b.texts, last.String()+"\t}\n")
	return b, nil
}

// write writes the block with registers in the places.
func (b body) write(w *strings.Builder, registers [result + 1]string) {
	for i, p := range b.places {
		w.WriteString(b.texts[i])
		w.WriteString(registers[p])
	}
	w.WriteString(b.texts[len(b.places)])
}

// Digests returns digests of the functions' code, twelve hexadecimal digits each, by the names of [Func.Functions].
func (fs *Functions) Digests() map[string]string {
	digests := map[string]string{}
	for name, b := range fs.bodies {
		text := fmt.Sprint(b.texts, b.places)
		for _, i := range b.needs {
			text += fmt.Sprint(fs.items[i])
		}
		digests[name] = fingerprint.Of(numbered.ReplaceAll([]byte(text), []byte("$1"))).String()[:12] // by the place of the function in math.cu
	}
	return digests
}

var numbered = regexp.MustCompile(`(L__BB|__local_depot)\d+`)

// Functions returns the names of the functions of math.cu that the function applies, such as exp_f32, in order.
func (f Func) Functions() (names []string) {
	for _, n := range f.graph().nodes {
		if name := functionName(n.op, n.dtype); n.op.transcendental() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// needed returns the items that a text mentions, and those that they mention.
func (fs *Functions) needed(text string) (list []int) {
	for i, it := range fs.items {
		if strings.Contains(text, it.name) {
			list = append(list, i)
		}
	}
	for k := 0; k < len(list); k++ {
		for i, it := range fs.items {
			if !slices.Contains(list, i) && strings.Contains(fs.items[list[k]].text, it.name) {
				list = append(list, i)
			}
		}
	}
	return list
}
