package opspec

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var _ = register(Spec{
	Name:      "Broadcast",
	Formula:   "out[..., j, ...] = x[..., ...]",
	Doc:       "Repeats a tensor along a new axis; with a scalar, fills a vector.",
	Tolerance: 0,
	AnyType:   true,
	Cases: []Case{
		broadcastCase(tensor.ScalarShape(), 1, 0), broadcastCase(tensor.ScalarShape(), 1031, 0), broadcastCase(tensor.Shape{1}, 5, 0),
		broadcastCase(tensor.Shape{10}, 33, 0), broadcastCase(tensor.Shape{33}, 10, 1), broadcastCase(tensor.Shape{5, 7}, 3, 1),
		broadcastCase(tensor.Shape{257, 3}, 70, 2), broadcastCase(tensor.Shape{257, 3}, 70, 0),
		broadcastCase(tensor.Shape{1, 1}, 1, 1), broadcastCase(tensor.Shape{7919}, 2, 0), broadcastCase(tensor.Shape{13, 1}, 17, 1),
		large(broadcastCase(tensor.Shape{1<<15 + 1}, 1<<14+1, 0), kernels.Float32),
		timed("2^14 rows of 2^14", broadcastCase(tensor.Shape{1 << 14}, 1<<14, 0)),
	},
	Bad: []Bad{
		bad("no copies", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Broadcast(x, 0, 0) }), "want at least 1 copy", tensor.Shape{9}),
		bad("axis too small", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Broadcast(x, 3, -3) }), "Broadcast[-3]", tensor.Shape{9}),
		bad("axis too large", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Broadcast(x, 3, 2) }), "want at least 1 copy and -2 <= axis <= 1", tensor.Shape{9}),
	},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 1, 3)
		return broadcastCase(s, 1+r.IntN(9), r.IntN(len(s)+1))
	},
	Wide: func(s *Sizes) Case {
		out := s.Shape(s.Elements(1), 1, 4)
		axis := s.IntN(len(out))
		return broadcastCase(without(out, axis), out[axis], axis)
	},
	Peers: `
def peers(c, d):
    s, axis = c["shapes"][0], c.get("axis", 0)
    out = s[:axis] + [c["copies"]] + s[axis:]
    yield TORCH + " copy_", lambda: (drawn(d, s), empty(d, out)), lambda x, o: o.copy_(x.unsqueeze(axis))
`,
})

func broadcastCase(s tensor.Shape, n, axis int) Case {
	build := unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Broadcast(x, n, axis-n%2*(len(s)+1)) })
	c := moved(fmt.Sprintf("%v x %d at %d", []int(s), n, axis), s, slices.Insert(slices.Clone(s), axis, n), build, func(at []int) ([]int, bool) {
		return slices.Delete(slices.Clone(at), axis, axis+1), true
	})
	c.Parameters = Parameters{Copies: n, Axis: axis}
	return c
}
