package opspec

import (
	"math/rand/v2"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Machines are one rank, for which collectives are the identity; package cudaops tests them on several.
var (
	_ = register(collectiveSpec("AllReduce", "out = x[0] + ... + x[n-1]", "Sum or mean of the values of all ranks.",
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.AllReduce(x, ops.MeanOfRanks) }))
	_ = register(collectiveSpec("BroadcastFrom", "out = x[root]", "The value of one rank on all ranks.",
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.BroadcastFrom(x, 0) },
		bad("a rank below 0", func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.BroadcastFrom(in[0], -1) }, "got rank -1", tensor.Shape{3})))
	_ = register(collectiveSpec("AllGather", "out = x[0], ..., x[n-1]", "Concatenation of the values of n ranks.",
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.AllGather(x, 1) },
		bad("no ranks", func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.AllGather(in[0], 0) }, "got 0 ranks", tensor.Shape{3}),
		bad("a scalar", func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.AllGather(in[0], 1) }, "got a scalar", tensor.Shape{})))
	_ = register(collectiveSpec("ReduceScatter", "out = part r of (x[0] + ... + x[n-1])", "Part of the sum or mean of the values of n ranks.",
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.ReduceScatter(x, 1, ops.MeanOfRanks) },
		bad("ranks that do not divide", func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return ops.ReduceScatter(in[0], 2, ops.SumOfRanks)
		}, "want a first axis that is a multiple of 2 ranks", tensor.Shape{3})))
)

func collectiveSpec(name, formula, doc string, build func(x *gorgonia.Node) (*gorgonia.Node, error), refused ...Bad) Spec {
	of := func(s tensor.Shape) Case { return elementCase(s, unary(build), func(x float64) float64 { return x }) }
	return Spec{
		Name: name, Formula: formula, Doc: doc, Tolerance: 8, Generated: true,
		Cases:  []Case{of(tensor.Shape{1}), of(tensor.Shape{1021}), of(tensor.Shape{17, 1, 31})},
		Bad:    append(refused, bad("no elements", unary(build), "want at least one element", tensor.Shape{0})),
		Random: func(r *rand.Rand) Case { return of(randomShape(r, 1, 5)) },
	}
}
