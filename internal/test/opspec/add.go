package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var _ = register(Spec{
	Name:    "Add",
	AnyType: true, Mixed: true,
	Formula:   "out[i] = a[i] + b[i]",
	Doc:       "Element-wise sum; shapes broadcast.",
	Tolerance: 1,
	Cases: slices.Concat([]Case{
		addCase(1), addCase(5), addCase(1021), addCase(100003), addCase(17, 31), addCase(2, 3, 4, 5), addCase(),
		addCase(1, 1, 1), addCase(1, 7919), addCase(13, 1, 17),
		large(addCase(1<<29+3), kernels.Float32),
		timed("2^28", addCase(1<<28), inBoth...),
		against("2^22", addCase(1<<22), binary(gorgonia.Add)),
		addComposed(),
	}, addVersionCases()),
	Bad: []Bad{
		bad("other length", binary(ops.Add), "Add: input 1: got shape (4), want one that broadcasts with (3)", tensor.Shape{3}, tensor.Shape{4}),
		bad("version below 0", binary(versions.Version(-1).Add), "got version -1, want 0 to 2", tensor.Shape{3}, tensor.Shape{3}),
	},
	Random: func(r *rand.Rand) Case { return addCase(randomShape(r, 1, 4)...) },
	Wide:   func(s *Sizes) Case { return addCase(s.Shape(s.Elements(3), 1, 3)...) },
	Peers: `
def peers(c, d):
    s = c["shapes"][0]
    yield TORCH + " add", lambda: (drawn(d, s), drawn(d, s), empty(d, s)), lambda a, b, o: torch.add(a, b, out=o)
`,
})

// addComposed is a graph of three ops: 3 (a + b).
func addComposed() Case {
	c := addCase(31, 33)
	c.Name, c.Composed = "three times [31 33]", true
	c.Build = func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		y, err := ops.Add(in[0], in[1])
		if err != nil {
			return nil, err
		}
		z, err := ops.Add(y, y)
		if err != nil {
			return nil, err
		}
		return ops.Add(z, y)
	}
	once := c.Reference
	c.Reference = func(in ...[]float64) (out, magnitude []float64) {
		out, magnitude = once(in...)
		for i := range out {
			out[i], magnitude[i] = 3*out[i], 3*magnitude[i]
		}
		return out, magnitude
	}
	return c
}

func addCase(s ...int) Case {
	return elements(fmt.Sprint(s), binary(ops.Add), func(x []float64) (y, magnitude float64) {
		return x[0] + x[1], math.Abs(x[0]) + math.Abs(x[1])
	}, s, s)
}
