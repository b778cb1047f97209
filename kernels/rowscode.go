package kernels

import "errors"

// rowsImage is the generated code of a function with reductions for a layout.
type rowsImage struct{}

// rowsEntry is the entry point of the code.
const rowsEntry = "rows"

func (i rowsImage) Name() string { return "stheno/rows" }

// Code implements Image.
func (i rowsImage) Code(major, minor int) (Code, error) {
	return Code{}, errors.New("no code for reductions along rows yet")
}

// arguments returns those of a launch.
func (m *rowMapping) arguments(parts []int64) []any {
	var args []any
	for i := range m.types {
		args = append(args, Ref{Operand(i), 0})
	}
	for _, at := range parts {
		args = append(args, Ref{Out, at})
	}
	return args
}
