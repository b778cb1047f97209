package cudaops

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// shapeCases are ops that move elements, and broadcasts.
func shapeCases() []lowered {
	list := []lowered{
		{
			name: "reshape of a transpose", shapes: [][]int{{4, 6}},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Reshape(G.Must(G.Transpose(x[0])), tensor.Shape{8, 3}) },
			ref:   func(x ...array) array { return array{[]int{8, 3}, x[0].transposed(1, 0).v} },
		},
		{
			name: "ravel of a transpose", shapes: [][]int{{2, 3, 4}},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Ravel(G.Must(G.Transpose(x[0], 2, 0, 1))) },
			ref:   func(x ...array) array { return x[0].transposed(2, 0, 1).flat() },
		},
		{
			name: "transpose of a square", shapes: [][]int{{2, 3, 4}},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Transpose(G.Must(G.Square(x[0])), 1, 2, 0) },
			ref: func(x ...array) array {
				return x[0].apply(func(v float64) float64 { return v * v }).transposed(1, 2, 0)
			},
		},
		{
			name: "softmax of a transpose", shapes: [][]int{{4, 6}},
			build: func(x ...*G.Node) (*G.Node, error) { return G.LogSoftMax(G.Must(G.Transpose(x[0])), 1) },
			ref:   func(x ...array) array { return x[0].transposed(1, 0).logSoftMax(1) },
		},
		{
			name: "keep dims", shapes: [][]int{{4, 6}},
			build: func(x ...*G.Node) (*G.Node, error) {
				return G.KeepDims(x[0], false, func(x *G.Node) (*G.Node, error) { return G.Sum(x, 1) })
			},
			ref: func(x ...array) array { return x[0].sum(1).keep(1) },
		},
		{
			name: "layer norm", shapes: [][]int{{4, 6}, {6}, {6}},
			build: func(x ...*G.Node) (*G.Node, error) {
				centred := G.Must(G.BroadcastSub(x[0], G.Must(G.Mean(x[0], 1)), nil, []byte{1}))
				deviation := G.Must(G.Sqrt(G.Must(G.Add(G.Must(G.Mean(G.Must(G.Square(centred)), 1)), G.NewConstant(number(x[0], 0.01))))))
				scaled := G.Must(G.BroadcastHadamardProd(G.Must(G.BroadcastHadamardDiv(centred, deviation, nil, []byte{1})), x[1], nil, []byte{0}))
				return G.BroadcastAdd(scaled, x[2], nil, []byte{0})
			},
			ref: layerNorm,
		},
		{
			name: "mean of a constant", shapes: [][]int{{3}},
			build: func(x ...*G.Node) (*G.Node, error) {
				c := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(tensor.Range(x[0].Dtype(), 1, 7)))
				return G.Add(x[0], G.Must(G.Mean(G.Must(G.Square(x[0].Graph().AddNode(G.NewConstant(c)))), 0)))
			},
			ref: func(x ...array) array {
				return minus(x[0], array{[]int{3}, []float64{-8.5, -14.5, -22.5}})
			},
		},
	}
	return slices.Concat(list, sliceCases(), repeatCases(), broadcastCases())
}

// sliceCases are slices of one or more axes, and single elements.
func sliceCases() (list []lowered) {
	for _, c := range []struct {
		shape  []int
		slices []tensor.Slice
		to     []int
		from   []int // the first index
		step   []int
		axes   []int // that stay
	}{
		{[]int{7}, []tensor.Slice{G.S(2, 5)}, []int{3}, []int{2}, []int{1}, []int{0}},
		{[]int{7}, []tensor.Slice{G.S(3)}, nil, []int{3}, []int{1}, nil},
		{[]int{4, 6}, []tensor.Slice{G.S(1, 3)}, []int{2, 6}, []int{1, 0}, []int{1, 1}, []int{0, 1}},
		{[]int{4, 6}, []tensor.Slice{nil, G.S(2, 6)}, []int{4, 4}, []int{0, 2}, []int{1, 1}, []int{0, 1}},
		{[]int{4, 6}, []tensor.Slice{nil, G.S(2)}, []int{4}, []int{0, 2}, []int{1, 1}, []int{0}},
		{[]int{4, 6}, []tensor.Slice{G.S(1), G.S(1, 3)}, []int{2}, []int{1, 1}, []int{1, 1}, []int{1}},
		{[]int{8, 3}, []tensor.Slice{G.S(1, 7, 2)}, []int{3, 3}, []int{1, 0}, []int{2, 1}, []int{0, 1}},
		{[]int{3, 4, 5}, []tensor.Slice{nil, G.S(1, 3), G.S(0, 4)}, []int{3, 2, 4}, []int{0, 1, 0}, []int{1, 1, 1}, []int{0, 1, 2}},
		{[]int{3, 4, 5}, []tensor.Slice{G.S(2), nil, G.S(0, 4)}, []int{4, 4}, []int{2, 0, 0}, []int{1, 1, 1}, []int{1, 2}},
	} {
		list = append(list, lowered{
			name: fmt.Sprintf("slice %v of %v", c.slices, c.shape), shapes: [][]int{c.shape},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Slice(x[0], c.slices...) },
			ref: func(x ...array) array {
				return generate(c.to, func(i []int) float64 {
					at := slices.Clone(c.from)
					for k, axis := range c.axes {
						at[axis] += i[k] * c.step[axis]
					}
					return x[0].at(at...)
				})
			},
		})
	}
	return append(list, lowered{
		name: "one element", shapes: [][]int{{3, 4}}, noGradient: true, noTape: "it gives them all",
		build: func(x ...*G.Node) (*G.Node, error) { return G.At(G.Must(G.Square(x[0])), 1, 2) },
		ref:   func(x ...array) array { return array{nil, []float64{x[0].at(1, 2) * x[0].at(1, 2)}} },
	})
}

// repeatCases are repeats whose operands Gorgonia takes for one shape.
func repeatCases() []lowered {
	return []lowered{{
		name: "repeat of a longer axis", shapes: [][]int{{2, 3}, {4, 3}}, noGradient: true,
		build: func(x ...*G.Node) (*G.Node, error) {
			wide, _, err := G.Broadcast(x[0], x[1], G.NewBroadcastPattern([]byte{0}, nil))
			return wide, err
		},
		ref: func(x ...array) array {
			return generate([]int{8, 3}, func(i []int) float64 { return x[0].at(i[0]/4, i[1]) })
		},
	}}
}

// as returns the array in another shape.
func (a array) as(shape []int) array { return array{shape, a.v} }

// number returns a number of the element type of a node.
func number(n *G.Node, v float64) any {
	if n.Dtype() == tensor.Float32 {
		return float32(v)
	}
	return v
}

// broadcastCases are broadcasts of either operand.
func broadcastCases() (list []lowered) {
	for _, c := range []struct {
		a, b        []int
		left, right []byte
	}{
		{a: []int{3, 5}, b: []int{5}, right: []byte{0}},
		{a: []int{3, 5}, b: []int{1, 5}, right: []byte{0}},
		{a: []int{3, 5}, b: []int{3, 1}, right: []byte{1}},
		{a: []int{1, 5}, b: []int{3, 5}, left: []byte{0}},
		{a: []int{3, 1}, b: []int{1, 5}, left: []byte{1}, right: []byte{0}},
		{a: []int{2, 3, 4}, b: []int{1, 3, 1}, right: []byte{0, 2}},
		{a: []int{2, 3, 4}, b: []int{1, 1, 4}, right: []byte{0, 1}},
	} {
		name := fmt.Sprintf(" of %v and %v", c.a, c.b)
		shape := make([]int, len(c.a))
		for i := range shape {
			shape[i] = c.a[i]
			if k := i + len(c.b) - len(c.a); k >= 0 {
				shape[i] = max(shape[i], c.b[k])
			}
		}
		combined := func(f func(x, y float64) float64) func(x ...array) array {
			return func(x ...array) array {
				return generate(shape, func(i []int) float64 { return f(x[0].at(i...), x[1].at(i...)) })
			}
		}
		list = append(list, lowered{
			name: "broadcast sum" + name, shapes: [][]int{c.a, c.b},
			build: func(x ...*G.Node) (*G.Node, error) { return G.BroadcastAdd(x[0], x[1], c.left, c.right) },
			ref:   combined(func(x, y float64) float64 { return x + y }),
		}, lowered{
			name: "broadcast quotient" + name, shapes: [][]int{c.a, c.b}, positive: true,
			build: func(x ...*G.Node) (*G.Node, error) { return G.BroadcastHadamardDiv(x[0], x[1], c.left, c.right) },
			ref:   combined(func(x, y float64) float64 { return x / y }),
		}, lowered{
			name: "broadcast comparison" + name, shapes: [][]int{c.a, c.b}, noGradient: true,
			build: func(x ...*G.Node) (*G.Node, error) { return G.BroadcastLt(x[0], x[1], true, c.left, c.right) },
			ref: combined(func(x, y float64) float64 {
				if x < y {
					return 1
				}
				return 0
			}),
		})
	}
	return list
}

// A node without elements, wherever its shape has a 0, is an error of NewVM that names it.
func TestShapesWithoutElements(t *testing.T) {
	unary := map[string]unaryOp{
		"Square": G.Square, "Rectify": G.Rectify, "Add": func(x *G.Node) (*G.Node, error) { return G.Add(x, x) },
		"ConvType": func(x *G.Node) (*G.Node, error) { return G.ConvType(x, tensor.Float64, tensor.Int) },
		"Sum":      func(x *G.Node) (*G.Node, error) { return G.Sum(x) },
		"Reshape":  func(x *G.Node) (*G.Node, error) { return G.Reshape(x, append(tensor.Shape{1}, x.Shape()...)) },
		"Concat":   func(x *G.Node) (*G.Node, error) { return G.Concat(0, x, x) },
	}
	made := 0
	for _, shape := range []tensor.Shape{{0}, {3, 0}, {0, 3}, {3, 0, 2}, {2, 0, 0, 3}} {
		for name, op := range unary {
			g := G.NewGraph()
			x := G.NewTensor(g, tensor.Float64, len(shape), G.WithName("x"), G.WithShape(shape...))
			if _, err := attempt(func() (*G.Node, error) { return op(x) }); err != nil {
				continue // Gorgonia refuses it itself
			}
			made++
			want := fmt.Sprintf("node x: got shape %v, want at least one element", shape)
			if vm, err := NewVM(g, OnHost()); vm != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of shape %v: got the error %v, want one with %q", name, shape, err, want)
			}
		}
	}
	if made == 0 {
		t.Error("Gorgonia made no graph")
	}
}
