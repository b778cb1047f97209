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
func generated(p *notebook.Page, x []float32, op row) row {
	p.Heading("A kernel from an expression")
	p.Text("A sum, a norm and a largest value differ in one line of the kernel. So the op `Reduce` takes that line as text, in terms of a, the result so far, and b, the next number:")
	p.GoSource(`n, err := ops.Reduce(x, "a + b*b", 0)` + "\n")
	p.Text(`When such a node first runs on a GPU, the expression takes the place of the instruction in ` + "`step`" + ` below, in the kernel's assembly code,
		and the driver translates that for the GPU. (As it stands the kernel is that of a + b.) The result stays on the device.`)
	p.Source("reduce.cu", "step", "reduce")
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
		reduction := notebook.Must(codegen.ParseReduction(e.expression))
		plan := reduce.Reduce(p.Target(), kernels.Float32, int64(len(x)), reduction, 0)
		ran := p.Run("reduce "+e.expression, plan, [][]byte{kernels.Bytes(x)}, runs)
		got := notebook.AddUp(ran.Out)
		notebook.Check(agrees(e.expression, got, e.exact, e.within))
		t.Add("`"+e.expression+"`", ran.Mean, ran.Spread, notebook.In(100*ran.Mean.Value/op.mean.Value, "%"), fmt.Sprintf("%.9g", got), fmt.Sprintf("%.9g", e.exact))
		if e.expression == "a + b" {
			sum = row{name: "Reduce, a + b", mean: ran.Mean, spread: ran.Spread, sum: got, within: single}
		}
	}
	p.Table(t)
	return sum
}
