package lower_test

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Slices of one value are concatenated without a copy if the indices of their elements along the axis rise by one step.
func TestConcatOfSlices(t *testing.T) {
	r := testutil.Random(t)
	for range 200 {
		shape := tensor.Shape{1 + r.IntN(3), 4 + r.IntN(5), 1 + r.IntN(3)}
		axis := 1
		if r.IntN(2) == 0 {
			axis, shape[0], shape[1] = 0, shape[1], shape[0]
		}
		cuts := []int{0, 1 + r.IntN(2), 3, shape[axis]}
		first := r.IntN(3)
		order := [][]int{{0, 1, 2}, {0, 1}, {1, 2}, {0, 2}, {1, 0, 2}, {0, 0}, {2, 1}}[r.IntN(7)]
		var at []int // the indices along the axis
		for _, p := range order {
			for k := cuts[p]; k < cuts[p+1]; k++ {
				at = append(at, k)
			}
		}
		view := at[1] > at[0]
		for i := range at[1:] {
			view = view && at[i+1]-at[i] == at[1]-at[0]
		}
		g := G.NewGraph()
		x := G.NewTensor(g, tensor.Float32, 3, G.WithShape(shape...), G.WithName("x"))
		backing := make([]float32, shape.TotalSize())
		for i := range backing {
			backing[i] = float32(first + i)
		}
		var parts []*G.Node
		for _, p := range order {
			slicing := []tensor.Slice{nil, nil, nil}
			slicing[axis] = G.S(cuts[p], cuts[p+1])
			part := testutil.Get[*G.Node](t)(ops.Slice(x, slicing...))
			if part.Dims() != 3 { // an index along the axis
				want := slices.Clone(shape)
				want[axis] = cuts[p+1] - cuts[p]
				part = testutil.Get[*G.Node](t)(ops.Reshape(part, want...))
			}
			parts = append(parts, part)
		}
		testutil.Get[*G.Node](t)(ops.Concat(axis, parts...))
		l := testutil.Get[*lower.Graph](t)(lower.New(g, nil))
		copies := 0
		for _, in := range l.Program.Instrs {
			if program.Is[program.Concat](in.Op) {
				copies++
			}
		}
		if (copies == 0) != view {
			t.Errorf("slices %v of %v along %d, cut at %v: got %d copies", order, shape, axis, cuts, copies)
		}
		out := testutil.Get[[]G.Value](t)(l.Program.Eval([]G.Value{tensor.New(tensor.WithShape(shape...), tensor.WithBacking(backing))}))
		var want []float32
		outer, inner := tensor.Shape(shape[:axis]).TotalSize(), tensor.Shape(shape[axis+1:]).TotalSize()
		for o := range outer {
			for _, k := range at {
				want = append(want, backing[(o*shape[axis]+k)*inner:][:inner]...)
			}
		}
		if got := out[0].Data().([]float32); !slices.Equal(got, want) {
			t.Fatalf("slices %v of %v along %d, cut at %v: got %v, want %v", order, shape, axis, cuts, got, want)
		}
	}
}
