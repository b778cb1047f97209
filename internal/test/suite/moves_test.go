package suite

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Sums along an axis take integers of every type and bool, and are of int64.
func TestCumSumOfEveryType(t *testing.T) {
	withoutTag(t)
	r := Random(t)
	rows, columns := 1+r.IntN(5), 1+r.IntN(50)
	for _, dt := range []tensor.Dtype{tensor.Uint8, tensor.Int32, tensor.Int64, tensor.Int, tensor.Bool} {
		list, want := make([]float64, rows*columns), make([]float64, rows*columns)
		for i := range list {
			if list[i] = float64(r.IntN(256)); dt == tensor.Bool {
				list[i] = float64(r.IntN(2))
			}
			if want[i] = list[i]; i%columns > 0 {
				want[i] += want[i-1]
			}
		}
		for _, m := range Machines() {
			if m.Name == "LispMachine" {
				continue
			}
			x := gorgonia.NewMatrix(gorgonia.NewGraph(), tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(rows, columns), gorgonia.WithValue(tensor.New(tensor.WithShape(rows, columns), tensor.WithBacking(list))))
			y := testutil.Get[*gorgonia.Node](t)(ops.CumSum(testutil.Get[*gorgonia.Node](t)(ops.Cast(x, dt)), -1))
			runOn(t, m, x.Graph())
			if got := elements(t, y.Value()); y.Dtype() != tensor.Int64 || !slices.Equal(got, want) {
				t.Errorf("%v on %s: got %v of %v, want %v of int64", dt, m.Name, got, y.Dtype(), want)
			}
		}
	}
}

// Ops that move elements move those of every type: of 0, 1 and 2, or for bool 0 and 1, they give what they give of float64.
func TestMovesOfEveryType(t *testing.T) {
	withoutTag(t)
	type node = *gorgonia.Node
	r := Random(t)
	rows, columns := 2+r.IntN(4), 2+r.IntN(4)
	axis, n := r.IntN(2)-2*r.IntN(2), 1+r.IntN(3)
	constant := func(x node, v any) node { return testutil.Get[node](t)(ops.Constant(x.Graph(), v)) }
	ids := func(x node, shape ...int) node {
		list := make([]int, tensor.Shape(shape).TotalSize())
		for i := range list {
			list[i] = i % 2
		}
		return constant(x, tensor.New(tensor.WithShape(shape...), tensor.WithBacking(list)))
	}
	moves := map[string]func(x node) (node, error){
		"Broadcast":    func(x node) (node, error) { return ops.Broadcast(x, n, axis) },
		"Concat":       func(x node) (node, error) { return ops.Concat(axis, x, x) },
		"Embedding":    func(x node) (node, error) { return ops.Embedding(x, ids(x, n)) },
		"Pad":          func(x node) (node, error) { return ops.Pad(x, axis, n, 1) },
		"Permute":      func(x node) (node, error) { return ops.Permute(x, 1, 0) },
		"Pick":         func(x node) (node, error) { return ops.Pick(x, ids(x, rows, n), 1) },
		"Reshape":      func(x node) (node, error) { return ops.Reshape(x, columns, -1) },
		"RowsAt":       func(x node) (node, error) { return ops.RowsAt(x, constant(x, 1), 1, axis) },
		"Slice":        func(x node) (node, error) { return ops.Slice(x, nil, gorgonia.S(0, columns, 2)) },
		"Split":        func(x node) (node, error) { parts, err := ops.Split(x, 0, 1, rows-1); return parts[1], err },
		"Stack":        func(x node) (node, error) { return ops.Stack(axis, x, x) },
		"StopGradient": ops.StopGradient,
		"Update": func(x node) (node, error) {
			return ops.Update(x, testutil.Get[node](t)(ops.Slice(x, gorgonia.S(0))), constant(x, 1), 0)
		},
		"WhenTraining": func(x node) (node, error) { return ops.WhenTraining(x, x) },
		"Where": func(x node) (node, error) {
			return ops.Where(constant(x, tensor.New(tensor.WithShape(rows, 1), tensor.WithBacking(slices.Repeat([]bool{true, false}, rows)[:rows]))), x, x)
		},
	}
	types := []tensor.Dtype{tensor.Float64, tensor.Float32, tensor.Uint8, tensor.Int32, tensor.Int64, tensor.Int, tensor.Bool}
	for name, move := range moves {
		for _, m := range Machines() {
			if m.Name == "LispMachine" { // it makes a derivative for each value, and none for integers
				continue
			}
			for _, dt := range types[1:] {
				g, limit := gorgonia.NewGraph(), 3
				if dt == tensor.Bool {
					limit = 2
				}
				list := make([]float64, rows*columns)
				for i := range list {
					list[i] = float64(rand.New(rand.NewPCG(seed, uint64(i))).IntN(limit))
				}
				x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(rows, columns), gorgonia.WithValue(tensor.New(tensor.WithShape(rows, columns), tensor.WithBacking(list))))
				want := testutil.Get[node](t)(ops.Cast(testutil.Get[node](t)(move(x)), dt))
				got, err := move(testutil.Get[node](t)(ops.Cast(x, dt)))
				if err != nil {
					t.Errorf("%s of %v: %v", name, dt, err)
					continue
				}
				runOn(t, m, g)
				if !got.Shape().Eq(want.Shape()) || got.Dtype() != dt || !slices.Equal(elements(t, got.Value()), elements(t, want.Value())) {
					t.Errorf("%s of %v on %s: got %v, want %v", name, dt, m.Name, got.Value(), want.Value())
				}
			}
		}
	}
}
