package codegen

import (
	"github.com/stheno-ml/stheno/kernels"
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

func (i image) Source() string { return "math" }

func (i image) Code(major, minor int) (kernels.Code, error) {
	return kernels.CodeOf(i, major, minor)
}

// PTX returns PTX for every device, or with what those of compute capability 9.0, and for rows 8.0, and later have.
func (i image) PTX(major int) ([]byte, error) {
	code, err := newCodeWriter(major, i.layout.wide)
	if err != nil {
		return nil, err
	}
	types, outputs := i.f.Operands(), i.f.Outputs()
	if i.layout.entry == mapEntry {
		w := mapWriter{codeWriter: code, layout: i.layout, f: i.f, types: types, outputs: outputs}
		return []byte(w.kernel()), nil
	}
	w := &rowsWriter{codeWriter: code, layout: i.layout, f: i.f, types: types, outputs: outputs, loaded: map[[2]int][]string{}}
	for _, letter := range i.layout.perRow {
		w.perRow = append(w.perRow, letter == 'r')
	}
	if w.staged, err = i.f.Stages(w.perRow); err != nil {
		return nil, err
	}
	_, w.used = i.f.Trim()
	w.nan = major >= 8
	if major == 8 {
		w.target = "sm_80"
	}
	if i.layout.cluster > 0 {
		w.target = "sm_90"
	}
	return []byte(w.kernel()), nil
}
