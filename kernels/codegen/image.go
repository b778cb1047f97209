package codegen

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// image is the generated code of a function for a layout.
type image struct {
	f      expr.Func
	layout layout
}

// The entry points of the code.
const (
	mapEntry  = "map"
	rowsEntry = "rows"
)

func (i image) Name() string { return "stheno/" + i.layout.entry + "(" + i.f.String() + ")" }

// Digests returns the digests of the functions of math.cu in the code.
func (i image) Digests() (map[string]string, error) { return DigestsOf(i.f) }

// PTX returns PTX for every device, or with what those of compute capability 9.0, and for rows and outputs in BF16 8.0, and later have.
func (i image) PTX(major int) ([]byte, error) {
	code, err := newCodeWriter(major, i.layout.wide)
	if err != nil {
		return nil, err
	}
	outputs := i.layout.storedOutputs(i.f)
	if major == 8 && (i.layout.entry == rowsEntry || slices.Contains(outputs, expr.BF16)) {
		code.target, code.RoundsBF16 = "sm_80", true
	}
	kernel := kernelWriter{codeWriter: code, layout: i.layout, f: i.f, types: i.f.Operands(), outputs: outputs}
	if i.layout.entry == mapEntry {
		w := mapWriter{kernelWriter: kernel}
		return []byte(w.kernel()), nil
	}
	w := &rowsWriter{kernelWriter: kernel, loaded: map[[2]int][]string{}}
	for _, letter := range i.layout.perRow {
		w.perRow = append(w.perRow, letter == 'r')
	}
	if err = w.makeStages(); err != nil {
		return nil, err
	}
	_, w.used = i.f.Trim()
	w.nan = major >= 8
	if i.layout.cluster > 0 {
		w.target = "sm_90"
	}
	return []byte(w.kernel()), nil
}

// kernelWriter writes what the kernels of maps and rows have in common.
type kernelWriter struct {
	codeWriter
	layout
	f                    expr.Func
	types, outputs       []expr.Dtype
	places               []*address // of the operands, then of the outputs
	splitStores          int        // so far
	rowDivide, colDivide []divide
}

// pointers adds the parameters of operands and outputs. It returns those of the first operand in the parts after the first.
func (w *kernelWriter) pointers() (parts []string) {
	for i, d := range slices.Concat(w.types, w.outputs) {
		p := &address{place: w.place(i), dtype: d}
		if w.places = append(w.places, p); p.mark == ordinal {
			continue
		}
		p.base = w.pointer()
		for range w.joined - 1 - len(parts) {
			parts = append(parts, w.pointer())
		}
	}
	return parts
}

// addressParameters adds the parameters that lead to elements, and those of random operands and of the function's constants, in the order of
// [nest.arguments].
func (w *kernelWriter) addressParameters() {
	if w.tile == 0 {
		w.rowDivide, w.colDivide = w.divides(w.rowAxes), w.divides(w.colAxes)
	}
	for i, p := range w.places {
		if w.entry == mapEntry && i > len(w.types) { // outputs of a map have strides together
			p.ofRow = w.places[len(w.types)].ofRow
			continue
		}
		p.ofRow, p.ofColumn = w.strides(p.rows, w.rowAxes), w.strides(p.columns, w.colAxes)
		if p.mark.axis() >= 0 {
			p.bounds = [2]string{w.parameter(w.index, w.kind), w.parameter(w.index, w.kind)}
		}
	}
	for _, p := range w.places {
		if p.mark == ordinal {
			p.base = w.parameter("u64", expr.B64)
		} else if p.mark.random() {
			p.source = w.source(p.base, p.mark == normal)
			p.base = p.source.first
		}
	}
	w.numberParameters(w.f)
	w.splitParameters()
}
