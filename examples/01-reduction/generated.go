package main

import (
	"fmt"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// generated is the section on reductions whose kernel is made from an expression. It returns the
// row of the sum, to be compared with that of the op.
func generated(p *notebook.Page, x []float32, op row) (row, error) {
	p.Heading("A kernel from an expression")
	p.Text("A sum, a norm and a largest value differ in one line of the kernel. So the op `Reduce` takes that line as text, in terms of a, the result so far, and b, the next number:")
	p.GoSource(`n, err := ops.Reduce(x, "a + b*b", 0)` + "\n")
	p.Text(`When such a node first runs on a GPU, the expression takes the place of the instruction in ` + "`step`" + ` below, in the kernel's assembly code,
		and the driver translates that for the GPU. (As it stands the kernel is that of a + b.) The result stays on the device.`)
	if err := p.Sources("reduce.cu", "step", "reduce"); err != nil {
		return row{}, err
	}
	t := figure.Table{Caption: "Reductions from an expression, and the sum's own kernel", Header: []string{"expression", "time", "spread", "time of the sum's", "result", "exact"}}
	var sum row
	for _, e := range []struct {
		expression    string
		exact, within float64
	}{
		{"a + b", total(x, func(v float64) float64 { return v }), single},
		{"a + b*b", total(x, func(v float64) float64 { return v * v }), single},
		{"max(a, abs(b))", float64(x[len(x)-1]), 0},
	} {
		reduction, err := codegen.ParseReduction(e.expression)
		if err != nil {
			return row{}, err
		}
		plan := reduce.Reduce(p.Target(), kernels.Float32, int64(len(x)), reduction, 0)
		ran, err := p.Run("reduce "+e.expression, plan, [][]byte{kernels.Bytes(x)}, runs)
		if err != nil {
			return row{}, err
		}
		got := float64(kernels.Elements[float32](ran.Out)[0])
		if err := agrees(e.expression, got, e.exact, e.within); err != nil {
			return row{}, err
		}
		t.Rows = append(t.Rows, []string{"`" + e.expression + "`", ran.Mean.String(), ran.Spread.String(),
			notebook.Measured{Value: 100 * ran.Mean.Value / op.mean.Value, Unit: "%"}.String(), fmt.Sprintf("%.9g", got), fmt.Sprintf("%.9g", e.exact)})
		if e.expression == "a + b" {
			sum = row{name: "Reduce, a + b", mean: ran.Mean, spread: ran.Spread, sum: got, within: single}
		}
	}
	p.Table(t)
	return sum, nil
}
