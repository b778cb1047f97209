package expr

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Functions holds PTX of the operations that take more than a few instructions, as
// the compiler made it of kernels/math.cu.
type Functions struct {
	bodies map[string]string // by entry point, such as "exp_f32"; see splice
	items  []item            // in an order in which they can be declared
}

// item is a function or a table beside the entry points.
type item struct{ name, text string }

var (
	entryPattern = regexp.MustCompile(`(?ms)^\.visible \.entry (\w+)\(.*?^\{\n(.*?)^\}\n`)
	funcPattern  = regexp.MustCompile(`(?ms)^\.func  ?\([^)]*\) (\w+)\([^)]*\)\n\{.*?^\}\n`)
	tablePattern = regexp.MustCompile(`(?m)^\.(?:global|const) [^;=\[]* (\w+)\[.*;\n`)
)

// ReadFunctions takes the PTX of math.cu apart.
func ReadFunctions(ptx string) (*Functions, error) {
	fs := &Functions{bodies: map[string]string{}}
	for _, m := range tablePattern.FindAllStringSubmatch(ptx, -1) {
		fs.items = append(fs.items, item{m[1], m[0]})
	}
	for _, m := range funcPattern.FindAllStringSubmatch(ptx, -1) {
		fs.items = append(fs.items, item{m[1], rounded(m[0])})
	}
	for _, m := range entryPattern.FindAllStringSubmatch(ptx, -1) {
		body, err := splice(m[1], m[2])
		if err != nil {
			return nil, fmt.Errorf("expr: entry point %s: %w", m[1], err)
		}
		fs.bodies[m[1]] = body
	}
	for op := range opCount {
		for _, d := range []Dtype{Float32, Float64} {
			if name := functionName(op, d); op.transcendental() && fs.bodies[name] == "" {
				return nil, fmt.Errorf("expr: got PTX without an entry point %s", name)
			}
		}
	}
	return fs, nil
}

func functionName(op Op, d Dtype) string { return op.String() + "_" + d.String() }

var (
	loadArgument = regexp.MustCompile(`ld\.param\.(f\d\d) +\t?(%\w+), \[\w+_param_(\d)\];`)
	loadPointer  = regexp.MustCompile(`\tld\.param\.u64 +\t?%\w+, \[\w+\];\n`)
	cvtPointer   = regexp.MustCompile(`\tcvta\.to\.global\.u64 +\t?%\w+, %\w+;\n`)
	storeResult  = regexp.MustCompile(`st\.global\.(f\d\d) +\t?\[%\w+\], (%\w+);`)
	unrounded    = regexp.MustCompile(`\b(add|sub|mul)\.(f32|f64)\b`)
)

// rounded says of each sum and product that it is rounded, so that the assembler
// does not make one instruction of a product and a sum here and two there.
func rounded(ptx string) string { return unrounded.ReplaceAllString(ptx, "$1.rn.$2") }

// splice makes a block of the body of an entry point: <0> and <1> stand for its
// arguments, <out> for its result. A block has registers, labels and local memory
// of its own.
func splice(name, body string) (string, error) {
	if n := len(storeResult.FindAllString(body, -1)); n != 1 {
		return "", fmt.Errorf("got %d stores of a result, want 1", n)
	}
	body = loadArgument.ReplaceAllString(body, "mov.$1 $2, <$3>;")
	body = loadPointer.ReplaceAllString(body, "")
	body = cvtPointer.ReplaceAllString(body, "")
	body = storeResult.ReplaceAllString(body, "mov.$1 <out>, $2;")
	body = strings.TrimRight(body, "\n")
	if last, found := strings.CutSuffix(body, "\tret;"); found && !strings.Contains(last, "ret;") {
		body = last
	} else {
		body = strings.ReplaceAll(body, "ret;", "bra.uni $L__end;") + "\n$L__end:\n"
	}
	if strings.Contains(body, "ld.param.u64") || strings.Contains(body, name+"_param") {
		return "", fmt.Errorf("got another use of parameters than loads of numbers and of the result's address")
	}
	return "\t{\n" + rounded(body) + "\t}\n", nil
}

// needed returns the items that a text mentions, and those that they mention.
func (fs *Functions) needed(text string) string {
	var used []item
	for again := true; again; {
		again = false
		for _, i := range fs.items {
			if !slices.Contains(used, i) && strings.Contains(text, i.name) {
				used, text, again = append(used, i), text+i.text, true
			}
		}
	}
	var w strings.Builder
	for _, i := range fs.items { // in their order
		if slices.Contains(used, i) {
			w.WriteString(i.text)
		}
	}
	return w.String()
}
