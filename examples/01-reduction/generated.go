package main

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/kernels"
)

// generated is the section on reductions whose kernel is made of an expression.
// It gives the row of the sum, to be set beside that of the op.
func generated(p *notebook.Page, x []float32, op row) (row, error) {
	p.Heading("A kernel from an expression")
	p.Text("A sum, a norm and a largest value differ in one line of the kernel. So the op `Reduce` takes that line as text, in a, what has been reduced so far, and b, the next number:")
	p.GoSource(`n, err := ops.Reduce(x, "a + b*b", 0)` + "\n")
	p.Text(`When such a node first runs on a GPU, the expression takes the place of the instruction in ` + "`step`" + ` below, in the kernel's assembly code,
		and the driver translates that for the GPU. (As it stands the kernel is that of a + b.) The result stays on the device.`)
	if err := p.Sources("reduce.cu", "step", "part"); err != nil {
		return row{}, err
	}
	n := float64(len(x))
	all := n * (n - 1) / 2
	t := notebook.Table{Caption: "Reductions from an expression, and the sum's own kernel", Header: []string{"expression", "time", "spread", "time of the sum's", "result", "exact"}}
	var sum row
	for _, e := range []struct {
		expression      string
		identity, exact float64
	}{
		{"a + b", 0, 1},
		{"a + b*b", 0, (n - 1) * n * (2*n - 1) / 6 / all / all},
		{"max(a, abs(b))", 0, (n - 1) / all},
	} {
		reduction, err := kernels.ParseReduction(e.expression)
		if err != nil {
			return row{}, err
		}
		plan, err := kernels.Reduce(p.Target(), kernels.Float32, int64(len(x)), reduction, e.identity)
		if err != nil {
			return row{}, err
		}
		ran, err := p.Run("reduce "+e.expression, plan, [][]byte{kernels.Bytes(x)}, runs)
		if err != nil {
			return row{}, err
		}
		got := float64(kernels.Elements[float32](ran.Out)[0])
		if !(math.Abs(got-e.exact) <= 1e-6*e.exact) {
			return row{}, fmt.Errorf("%s: got %v, want %v", e.expression, got, e.exact)
		}
		t.Rows = append(t.Rows, []string{"`" + e.expression + "`", ran.Mean.String(), ran.Spread.String(),
			notebook.Measured{Value: 100 * ran.Mean.Value / op.mean.Value, Unit: "%"}.String(), fmt.Sprintf("%.7g", got), fmt.Sprintf("%.7g", e.exact)})
		if e.expression == "a + b" {
			sum = row{name: "generated from a + b", mean: ran.Mean, spread: ran.Spread, sum: got}
		}
	}
	p.Table(t)
	return sum, nil
}
