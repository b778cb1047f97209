package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The ops of this file take integers beside numbers. In the cases these are constants of the graph.

// integersOf returns a constant of integers of a type beside a node, in no graph beside a constant in none. It returns nil beside no node, which the op is to refuse.
func integersOf(beside *gorgonia.Node, dt kernels.Dtype, list []int, shape tensor.Shape) (*gorgonia.Node, error) {
	if beside == nil {
		return nil, nil
	}
	v, m := values.New(dt, shape)
	for i, x := range list {
		copy(m[int64(i)*dt.Size():], Encode(dt, []float64{float64(x)}))
	}
	if beside.Graph() == nil {
		return gorgonia.NewConstant(v), nil
	}
	return ops.Constant(beside.Graph(), v)
}

// indexTypes are the types of indices, one of which a case has.
var indexTypes = []kernels.Dtype{kernels.Int64, kernels.Int32, kernels.Int, kernels.Uint8}

// indexedBy is an op of numbers and of integers, a constant that is drawn for the case.
func indexedBy(dt kernels.Dtype, list []int, shape tensor.Shape, op func(in []*gorgonia.Node, integers *gorgonia.Node) (*gorgonia.Node, error)) Build {
	return func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		integers, err := integersOf(in[0], dt, list, shape)
		if err != nil {
			return nil, err
		}
		return op(in, integers)
	}
}

// below returns n integers from 0 to below a limit, the same for equal arguments. A quarter of them is equal.
func below(limit, n int) []int {
	r, list := rand.New(rand.NewPCG(uint64(limit), uint64(n))), make([]int, n)
	for i := range list {
		if list[i] = r.IntN(limit); r.IntN(4) == 0 {
			list[i] = limit / 2
		}
	}
	return list
}

var _ = register(Spec{
	Name: "Embedding", Formula: "out[i..., j] = table[ids[i...], j]", Doc: "Rows of a table by integers of any type; equal ids add up in the gradient, in their order.",
	AnyType: true, Generated: true,
	Cases: composed(embeddingCase(7, tensor.Shape{5}, 0), embeddingCase(7, tensor.Shape{5}, 1, 3), embeddingCase(200, tensor.Shape{4, 9}, 3, 16), embeddingCase(31, tensor.Shape{}, 0, 5),
		embeddingCase(1000, tensor.Shape{40, 30}, 0, 64), embeddingCase(3, tensor.Shape{5000}, 0, 7), embeddingCase(20000, tensor.Shape{3000}, 2, 33), embeddingCase(1, tensor.Shape{1}, 0, 1)),
	Bad: []Bad{bad("ids of numbers", binary(ops.Embedding), "input 1: got float64, want integers", tensor.Shape{3, 4}, tensor.Shape{2}), bad("a scalar", binary(ops.Embedding), "input 0: got a scalar", tensor.Shape{}, tensor.Shape{2})},
	Random: func(r *rand.Rand) Case {
		return composed(embeddingCase(1+r.IntN(250), randomShape(r, 0, 2), r.IntN(4), randomShape(r, 0, 2)...))[0]
	},
})

func embeddingCase(rows int, ids tensor.Shape, index int, row ...int) Case {
	table := append(tensor.Shape{rows}, row...)
	list, n := below(rows, max(ids.TotalSize(), 1)), table.TotalSize()/rows
	return Case{
		Name: fmt.Sprintf("%v of %v by %v", []int(ids), []int(table), indexTypes[index]), Shapes: []tensor.Shape{table},
		Build: indexedBy(indexTypes[index], list, ids, func(in []*gorgonia.Node, integers *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Embedding(in[0], integers)
		}),
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			for _, id := range list {
				out = append(out, in[0][id*n:(id+1)*n]...)
			}
			return out, absolute(out)
		},
	}
}

// absolute returns absolute values.
func absolute(list []float64) []float64 {
	list = slices.Clone(list)
	for i, x := range list {
		list[i] = math.Abs(x)
	}
	return list
}

var _ = register(Spec{
	Name: "Pick", Formula: "out[i,k,j] = x[i,indices[i,k,j],j]", Doc: "Elements along an axis by integers of any type, as numpy's take_along_axis.",
	AnyType: true, Generated: true,
	Cases: composed(pickCase(tensor.Shape{9}, 0, 5, 0), pickCase(tensor.Shape{4, 7}, 1, 3, 1), pickCase(tensor.Shape{5, 6, 3}, 1, 11, 2), pickCase(tensor.Shape{5, 6, 3}, 0, 1, 3), pickCase(tensor.Shape{1}, 0, 1, 0),
		pickCase(tensor.Shape{50, 1000}, 1, 20, 0), pickCase(tensor.Shape{3, 700, 40}, 1, 900, 1), pickCase(tensor.Shape{40000}, 0, 3000, 0)),
	Bad: []Bad{bad("indices of numbers", func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Pick(in[0], in[1], 0) }, "input 1: got float64, want integers", tensor.Shape{3}, tensor.Shape{3}),
		bad("another axis", func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Pick(in[0], in[0], 2) }, "got axis 2 of shape (3, 4)", tensor.Shape{3, 4})},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 1, 3)
		return composed(pickCase(s, r.IntN(len(s)), 1+r.IntN(9), r.IntN(3)))[0]
	},
})

func pickCase(s tensor.Shape, axis, count, index int) Case {
	to := s.Clone()
	to[axis] = count
	inner, extent := behind(s, axis), s[axis]
	list := below(extent, to.TotalSize())
	if indexTypes[index] == kernels.Uint8 {
		list = below(min(extent, 256), to.TotalSize())
	}
	return Case{
		Name: fmt.Sprintf("%d of %v along %d by %v", count, []int(s), axis, indexTypes[index]), Shapes: []tensor.Shape{s},
		Build: indexedBy(indexTypes[index], list, to, func(in []*gorgonia.Node, integers *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Pick(in[0], integers, axis)
		}),
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			for i, at := range list {
				out = append(out, in[0][(i/(count*inner)*extent+at)*inner+i%inner])
			}
			return out, absolute(out)
		},
	}
}

var _ = register(Spec{
	Name: "Update", Formula: "out = x with rows at a position along an axis replaced", Doc: "Writes rows at a computed position; in place for a state of cudaops.State.",
	AnyType: true, Mixed: true, Generated: true,
	Cases: composed(updateCase(tensor.Shape{5}, 2, 0, 1), updateCase(tensor.Shape{4, 7}, 3, 1, 4), updateCase(tensor.Shape{4, 7, 8}, 1, 1, 1), updateCase(tensor.Shape{2, 3, 50, 64}, 7, 2, 2),
		updateCase(tensor.Shape{1}, 1, 0, 1), updateCase(tensor.Shape{30, 40, 50}, 40, 1, 30), updateCase(tensor.Shape{6, 9, 2}, 4, 1, 6)),
	Bad: []Bad{bad("a position of numbers", func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Update(in[0], in[0], in[1], 0) }, "got a position of float64, want int or int64", tensor.Shape{3}, tensor.Shape{})},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 1, 4)
		axis, positions := r.IntN(len(s)), 1
		if axis > 0 && r.IntN(2) == 0 {
			positions = s[0]
		}
		return composed(updateCase(s, 1+r.IntN(s[axis]), axis, positions))[0]
	},
})

// updateCase updates n rows along an axis, at one position or at one for each index of axis 0.
func updateCase(s tensor.Shape, n, axis, positions int) Case {
	rows, at := s.Clone(), tensor.ScalarShape()
	if rows[axis] = n; positions > 1 {
		at = tensor.Shape{positions}
	}
	list := below(s[axis]-n+1, positions)
	return Case{
		Name: fmt.Sprintf("%d of %v along %d at %d", n, []int(s), axis, positions), Shapes: []tensor.Shape{s, rows},
		Build: indexedBy(kernels.Int, list, at, func(in []*gorgonia.Node, integers *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Update(in[0], in[1], integers, axis)
		}),
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			out = slices.Clone(in[0])
			eachUpdated(s, n, axis, list, func(row, whole int) { out[whole] = in[1][row] })
			return out, absolute(out)
		},
	}
}

// eachUpdated calls f for each element of n rows along an axis of a shape, with its index among the rows and in the whole.
func eachUpdated(s tensor.Shape, n, axis int, positions []int, f func(row, whole int)) {
	inner := behind(s, axis)
	outer := s.TotalSize() / s[axis] / inner
	for o := range outer {
		p := positions[o*len(positions)/outer]
		for k := range n * inner {
			f(o*n*inner+k, (o*s[axis]+p)*inner+k)
		}
	}
}

var _ = register(Spec{
	Name: "RowsAt", Formula: "out[..., k, ...] = x[..., position + k, ...]", Doc: "Rows from a computed position on along an axis.",
	AnyType: true, Generated: true,
	Cases: composed(rowsAtCase(tensor.Shape{1}, 1, 0, 1), rowsAtCase(tensor.Shape{5}, 2, 0, 1), rowsAtCase(tensor.Shape{4, 7}, 3, 1, 4), rowsAtCase(tensor.Shape{4, 7, 8}, 1, 1, 1), rowsAtCase(tensor.Shape{2, 3, 50, 64}, 7, 2, 2)),
	Bad: []Bad{bad("too many rows", func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		at, err := integersOf(in[0], kernels.Int, []int{0}, tensor.ScalarShape())
		if err != nil {
			return nil, err
		}
		return ops.RowsAt(in[0], at, 4, 0)
	}, "got 4 rows, want 1 to 3", tensor.Shape{3})},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 1, 4)
		axis := r.IntN(len(s))
		return composed(rowsAtCase(s, 1+r.IntN(s[axis]), axis, 1))[0]
	},
})

func rowsAtCase(s tensor.Shape, n, axis, positions int) Case {
	c, at := updateCase(s, n, axis, positions), tensor.ScalarShape()
	if positions > 1 {
		at = tensor.Shape{positions}
	}
	list := below(s[axis]-n+1, positions)
	c.Shapes = c.Shapes[:1]
	c.Build = indexedBy(kernels.Int64, list, at, func(in []*gorgonia.Node, integers *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.RowsAt(in[0], integers, n, axis)
	})
	c.Reference = func(in ...[]float64) (out, magnitude []float64) {
		out = make([]float64, len(in[0])/s[axis]*n)
		eachUpdated(s, n, axis, list, func(row, whole int) { out[row] = in[0][whole] })
		return out, absolute(out)
	}
	return c
}

var _ = register(Spec{
	Name: "CumSum", Formula: "out[i,k,j] = Σ x[i,l,j] over l ≤ k", Doc: "Sums up to each element along an axis, in an order that follows from the shape.",
	Tolerance: 32,
	Cases: []Case{cumSumCase(tensor.Shape{1}, 0), cumSumCase(tensor.Shape{1031}, 0), cumSumCase(tensor.Shape{7, 33}, 1), cumSumCase(tensor.Shape{7, 33}, 0), cumSumCase(tensor.Shape{3, 50, 4}, 1), cumSumCase(tensor.Shape{100003}, 0),
		cumSumCase(tensor.Shape{5, 20011}, 1), cumSumCase(tensor.Shape{20011, 5}, 0), cumSumCase(tensor.Shape{600, 40}, 1), cumSumCase(tensor.Shape{3, 1, 5}, 1)},
	Bad:     []Bad{bad("another axis", unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.CumSum(x, 1) }), "got axis 1 of shape (3)", tensor.Shape{3})},
	AnyType: true, Generated: true,
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 1, 4)
		return cumSumCase(s, r.IntN(len(s)))
	},
})

func cumSumCase(s tensor.Shape, axis int) Case {
	return Case{
		Name: fmt.Sprintf("%v along %d", []int(s), axis), Shapes: []tensor.Shape{s},
		Build: unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.CumSum(x, axis) }),
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			out, magnitude = slices.Clone(in[0]), absolute(in[0])
			inner := behind(s, axis)
			for i := range out {
				if i/inner%s[axis] > 0 {
					out[i] += out[i-inner]
					magnitude[i] += magnitude[i-inner]
				}
			}
			return out, magnitude
		},
	}
}

var _ = register(Spec{
	Name: "CrossEntropy", Formula: "out = mean of log Σ exp(logits[i,c]) - logits[i,labels[i]]", Doc: "The loss of integer labels along axis 1, with ignored labels, smoothing and weights of classes.",
	Tolerance: 16, Generated: true,
	Cases: composed(crossEntropyCase(tensor.Shape{1}, 0, 0, false), crossEntropyCase(tensor.Shape{5}, 0, 0, false), crossEntropyCase(tensor.Shape{7, 33}, 0, 0, false), crossEntropyCase(tensor.Shape{4, 6, 9}, 0.1, 1, false), crossEntropyCase(tensor.Shape{64, 1000}, 0.2, 2, false), crossEntropyCase(tensor.Shape{3, 20011}, 0, 1, false),
		crossEntropyCase(tensor.Shape{2, 5, 1, 3}, 0.5, 3, false), crossEntropyCase(tensor.Shape{5}, 0.25, 1, true), crossEntropyCase(tensor.Shape{9, 33}, 0, 0, true), crossEntropyCase(tensor.Shape{4, 6, 9}, 0.25, 3, true)),
	Bad: []Bad{bad("weights of other classes", func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		labels, err := integersOf(in[0], kernels.Int64, []int{0, 1, 2}, tensor.Shape{3})
		if err != nil {
			return nil, err
		}
		return ops.CrossEntropy(in[0], labels, ops.ClassWeights(in[1]))
	}, "got weights float64 (3), want float64 (4)", tensor.Shape{3, 4}, tensor.Shape{3}),
		bad("labels of numbers", func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.CrossEntropy(in[0], in[1]) }, "want integers of shape (3)", tensor.Shape{3, 4}, tensor.Shape{3})},
	Random: func(r *rand.Rand) Case {
		return composed(crossEntropyCase(randomShape(r, 1, 4), float64(r.IntN(3))/4, r.IntN(3), r.IntN(3) == 0))[0]
	},
})

// crossEntropyCase ignores every fifth label. Its weights are 1, 2 and 3 in turn.
func crossEntropyCase(s tensor.Shape, smoothing float64, index int, weighted bool) Case {
	axis := min(len(s)-1, 1)
	labels, classes := without(s, axis), s[axis]
	ignored := 255
	list := below(min(classes, 200), max(labels.TotalSize(), 1))
	for i := range list {
		if i%5 == 4 {
			list[i] = ignored
		}
	}
	inner := s.TotalSize() / classes
	if axis > 0 {
		inner /= s[0]
	}
	name, weights := "", slices.Repeat([]int{1}, classes)
	if weighted {
		name = ", weights"
		for c := range weights {
			weights[c] = 1 + c%3
		}
	}
	return Case{
		Name: fmt.Sprintf("%v by %v, smoothing %v%s", []int(s), indexTypes[index], smoothing, name), Shapes: []tensor.Shape{s},
		Build: indexedBy(indexTypes[index], list, labels, func(in []*gorgonia.Node, integers *gorgonia.Node) (*gorgonia.Node, error) {
			opts := []ops.CrossEntropyOption{ops.LabelSmoothing(smoothing), ops.IgnoreLabel(ignored)}
			if weighted {
				w, err := integersOf(in[0], kernels.Int64, weights, tensor.Shape{classes})
				if err == nil {
					w, err = ops.Cast(w, in[0].Dtype())
				}
				if err != nil {
					return nil, err
				}
				opts = append(opts, ops.ClassWeights(w))
			}
			return ops.CrossEntropy(in[0], integers, opts...)
		}),
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			var sum, size total
			counted := 0.0
			for i, label := range list {
				if label == ignored {
					continue
				}
				counted += float64(weights[label])
				most := math.Inf(-1)
				at := func(c int) float64 { return in[0][(i/inner*classes+c)*inner+i%inner] }
				for c := range classes {
					most = max(most, at(c))
				}
				var exps total
				for c := range classes {
					exps.add(math.Exp(at(c) - most))
				}
				lse := math.Log(exps.value()) + most
				add := func(share float64, c int) {
					sum.add(share * float64(weights[c]) * (lse - at(c)))
					size.add(share * float64(weights[c]) * (math.Abs(lse-most) + math.Abs(most) + math.Abs(at(c))))
				}
				add(1-smoothing, label)
				for c := range classes {
					add(smoothing/float64(classes), c)
				}
			}
			return []float64{sum.value() / counted}, []float64{size.value() / counted}
		},
	}
}
