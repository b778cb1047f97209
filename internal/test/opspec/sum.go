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
	Name:      "Sum",
	AnyType:   true,
	Formula:   "out[kept] = Σ x[...] over axes",
	Doc:       "Sum over any set of axes of a tensor of any rank.",
	Tolerance: 1,
	Cases: slices.Concat(sumCases(false), []Case{
		large(sumCase(false, tensor.Shape{1<<29 + 3}), kernels.Float32),
		large(sumCase(false, tensor.Shape{1<<15 + 1, 1<<14 + 1}, 0), kernels.Float32),
		large(sumCase(false, tensor.Shape{1<<15 + 1, 1<<14 + 1}, 1), kernels.Float32),
		timed("all 512x512", sumCase(false, tensor.Shape{1 << 9, 1 << 9})),
		timed("all 2^28", sumCase(false, tensor.Shape{1 << 28}), inBoth...),
		timed("all 2^30", sumCase(false, tensor.Shape{1 << 30})),
		timed("rows 16384x16384", sumCase(false, tensor.Shape{1 << 14, 1 << 14}, 1)),
		timed("columns 16384x16384", sumCase(false, tensor.Shape{1 << 14, 1 << 14}, 0), inBoth...),
		timed("both 16384x16384", sumCase(false, tensor.Shape{1 << 14, 1 << 14}, 0, 1)),
		against("all 2^22", sumCase(false, tensor.Shape{1 << 22}), along(gorgonia.Sum)),
		against("rows 2048x2048", sumCase(false, tensor.Shape{2048, 2048}, 1), along(gorgonia.Sum, 1)),
		against("columns 2048x2048", sumCase(false, tensor.Shape{2048, 2048}, 0), along(gorgonia.Sum, 0)),
		against("middle of 64x256x256", sumCase(false, tensor.Shape{64, 256, 256}, 1), along(gorgonia.Sum, 1)),
	}, sumVersionCases()),
	Bad: append(alongBad(ops.Sum),
		bad("version below 0", along(versions.Version(-1).Sum), "got version -1, want 0 to 9", tensor.Shape{3, 4}),
		bad("version too large", along(versions.Version(10).Sum), "got version 10, want 0 to 9", tensor.Shape{3, 4}),
		bad("one axis by a version", along(versions.Version(4).Sum, 0), "Sum[0] version 4: got an output of shape (4)", tensor.Shape{3, 4}),
		bad("the matrices' version on a vector", along(versions.Version(9).Sum, 0), "Sum[0] version 9: got shape (7), want a matrix", tensor.Shape{7})),
	Random: func(r *rand.Rand) Case { return randomSum(r, false) },
	Wide:   func(s *Sizes) Case { return wideSum(s, false) },
	Peers:  sumPeers,
})

var _ = register(Spec{
	Name:      "Mean",
	Formula:   "out[kept] = Σ x[...] over axes / number of terms",
	Doc:       "Mean over any set of axes of a tensor of any rank.",
	Tolerance: 2, // the division rounds once more
	Cases: append(sumCases(true),
		large(sumCase(true, tensor.Shape{1<<29 + 3}), kernels.Float32),
		against("all 2^22", sumCase(true, tensor.Shape{1 << 22}), along(gorgonia.Mean))),
	Bad:    alongBad(ops.Mean),
	Random: func(r *rand.Rand) Case { return randomSum(r, true) },
	Wide:   func(s *Sizes) Case { return wideSum(s, true) },
	Peers:  sumPeers,
})

const sumPeers = `
def peers(c, d):
    s, axes, name = c["shapes"][0], tuple(c["axes"]), c["op"].lower()
    make = lambda: (drawn(d, s), empty(d, [n for a, n in enumerate(s) if a not in axes]))
    yield f"{TORCH} {name}", make, lambda x, o: getattr(torch, name)(x, dim=axes, out=o)
    if cupy:
        yield f"CuPy {cupy.__version__} {name}", make, cupy_call(lambda x, o: getattr(x, name)(axis=axes, out=o))
`

// along is a reduction over axes.
func along(f func(x *gorgonia.Node, along ...int) (*gorgonia.Node, error), axes ...int) Build {
	return func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return f(in[0], axes...) }
}

func sumCases(mean bool) []Case {
	return []Case{
		sumCase(mean, tensor.Shape{1}), sumCase(mean, tensor.Shape{7}), sumCase(mean, tensor.Shape{1025}), sumCase(mean, tensor.Shape{1000003}),
		sumCase(mean, tensor.Shape{4001, 13, 3}, 1), sumCase(mean, tensor.Shape{331, 245, 2}, 1), sumCase(mean, tensor.Shape{1031, 4, 128}, 2), sumCase(mean, tensor.Shape{140, 33, 32}, 1),
		sumCase(mean, tensor.Shape{7492, 54}, 0), sumCase(mean, tensor.Shape{9, 5003, 3}, 1), sumCase(mean, tensor.Shape{5, 40009}, 1), sumCase(mean, tensor.Shape{17, 50021}, 0),
		sumCase(mean, tensor.Shape{4, 20011, 11}, 1), sumCase(mean, tensor.Shape{37, 31, 38, 15}, 0, 2), sumCase(mean, tensor.Shape{3, 7, 5003}, 0, 2), sumCase(mean, tensor.Shape{3, 5, 70001}, 0, 2),
		sumCase(mean, tensor.Shape{7, 300007}, 0), sumCase(mean, tensor.Shape{2, 300001}, 0), sumCase(mean, tensor.Shape{40, 9, 7001}, 1),
		sumCase(mean, tensor.Shape{2, 14, 3, 17, 5}, 1, 3), sumCase(mean, tensor.Shape{40, 3, 50, 2}, 0, 2),
		sumCase(mean, tensor.Shape{1201, 3, 5, 7}, 1, 3), sumCase(mean, tensor.Shape{1031, 2, 3, 2, 4}, 1, 3), sumCase(mean, tensor.Shape{301, 13, 2, 8}, 1, 3), sumCase(mean, tensor.Shape{3, 50, 5, 2731}, 0, 2),
		sumCase(mean, tensor.Shape{3, 5}), sumCase(mean, tensor.Shape{3, 5}, 0), sumCase(mean, tensor.Shape{3, 5}, 1),
		sumCase(mean, tensor.Shape{1, 513}, 0), sumCase(mean, tensor.Shape{1, 513}, 1), sumCase(mean, tensor.Shape{513, 1}, 0),
		sumCase(mean, tensor.Shape{257, 1031}, 0), sumCase(mean, tensor.Shape{257, 1031}, 1), sumCase(mean, tensor.Shape{257, 1031}),
		sumCase(mean, tensor.Shape{2, 70001}, 0), sumCase(mean, tensor.Shape{2, 70001}, 1), sumCase(mean, tensor.Shape{70001, 2}, 0),
		sumCase(mean, tensor.Shape{4096, 64}, 0), sumCase(mean, tensor.Shape{3, 40000, 4}, 1),
		sumCase(mean, tensor.Shape{300, 5, 90, 4}, 0, 2), sumCase(mean, tensor.Shape{4, 9, 5, 7}, 0, 2), sumCase(mean, tensor.Shape{4, 9, 5, 7}, 1, 3), sumCase(mean, tensor.Shape{4, 9, 5, 7}, 1),
		sumCase(mean, tensor.Shape{2, 3, 2, 3, 2, 3}, 0, 2, 4), sumCase(mean, tensor.Shape{2, 3, 2, 3, 2, 3}, 5, 1),
		sumCase(mean, tensor.Shape{4, 3, 5, 7}, 1, 3), sumCase(mean, tensor.Shape{3, 7, 4, 5, 3}, 0, 2, 4), sumCase(mean, tensor.Shape{5, 8}, 0), // passes; whole vectors of columns
		sumCase(mean, tensor.Shape{1, 1}, 0), sumCase(mean, tensor.Shape{1, 1}, 1), sumCase(mean, tensor.Shape{7919, 1, 13}, 1), sumCase(mean, tensor.Shape{7919, 1, 13}, 0, 2),
	}
}

func randomSum(r *rand.Rand, mean bool) Case {
	s := randomShape(r, 1, 5)
	var axes []int
	for a := range s {
		if r.IntN(2) == 0 {
			axes = append(axes, a)
		}
	}
	return sumCase(mean, s, axes...)
}

// wideSum sums over any axes, one at least.
func wideSum(s *Sizes, mean bool) Case {
	shape := s.Shape(s.Elements(1), 1, 4)
	axes := []int{s.IntN(len(shape))}
	for a := range shape {
		if a != axes[0] && s.IntN(3) == 0 {
			axes = append(axes, a)
		}
	}
	slices.Sort(axes)
	return sumCase(mean, shape, axes...)
}

func sumCase(mean bool, s tensor.Shape, over ...int) Case {
	f := ops.Sum
	if mean {
		f = ops.Mean
	}
	axes := over
	if len(axes) == 0 {
		for a := range s {
			axes = append(axes, a)
		}
	}
	return Case{
		Name:       fmt.Sprintf("%v over %v", []int(s), axes),
		Shapes:     []tensor.Shape{s},
		Parameters: Parameters{Axes: axes},
		Build:      along(f, over...),
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			n := without(s, axes...).TotalSize()
			sums, magnitude := make([]total, n), make([]float64, n)
			index(s, func(flat int, at []int) {
				k := flatten(s, at, axes)
				sums[k].add(in[0][flat])
				magnitude[k] += math.Abs(in[0][flat])
			})
			terms := 1.0
			if mean {
				terms = float64(len(in[0]) / n)
			}
			for k := range sums {
				out = append(out, sums[k].value()/terms)
				magnitude[k] /= terms
			}
			return out, magnitude
		},
	}
}
